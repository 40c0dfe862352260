/* messages.c - lists of messages, their data and their check; see messages.h. */
#include "messages.h"

#include <stdlib.h>
#include <string.h>

#include "reference.h"

enum { GAP = 256, OFFSETS = 64, ALIGNMENT = 256 };

void messages_add(struct messages *list, int from, int to, size_t bytes) {
    if (list->count == list->most) {
        list->most = list->most ? 2 * list->most : 32;
        list->message = realloc(list->message, (size_t)list->most * sizeof *list->message);
        CHECK(list->message);
    }
    list->message[list->count++] = (struct message){from, to, bytes, 0, 0};
}

/* Every other one is of larger elements, where it can be. */
static bool of_words(const struct message *m, int i) {
    return i % 2 && m->bytes % 8 == 0;
}

/* Where the data of message i begin in an arena that is used up to *used. */
static size_t place(const struct message *m, int i, uint64_t which, size_t *used) {
    const size_t past = draw((uint64_t)i, which, 3) ? draw((uint64_t)i, which + 2, OFFSETS) : 0;
    const size_t at = *used + GAP + (of_words(m, i) ? past / 8 * 8 : past);
    *used = (at + m->bytes + GAP + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    return at;
}

void messages_open(struct part *part, struct messages *list) {
    const int rank = self(part)->rank;
    size_t sent = GAP, received = GAP;
    for (int i = 0; i < list->count; i++) {
        struct message *m = &list->message[i];
        if (m->from == rank) m->send_at = place(m, i, 0, &sent);
        if (m->to == rank) m->recv_at = place(m, i, 1, &received);
    }
    list->room = sent > received ? sent : received;
    CU_OK(cuMemAlloc(&list->send, list->room));
    CU_OK(cuMemAlloc(&list->recv, list->room));
}

void messages_close(struct messages *list) {
    CU_OK(cuMemFree(list->send));
    CU_OK(cuMemFree(list->recv));
    free(list->message);
    *list = (struct messages){0};
}

/* --- data --- */
static void poison(unsigned char *image, size_t bytes) {
    for (size_t i = 0; i < bytes; i++) image[i] = (unsigned char)(i * 131 + 0xa5);
}

static void data(const struct messages *list, int i, unsigned char *to) {
    uint64_t state = ref_mix(list->seed, (uint64_t)i);
    size_t left = list->message[i].bytes;
    for (; left; to += left < 8 ? left : 8, left -= left < 8 ? left : 8) {
        const uint64_t word = ref_next(&state);
        memcpy(to, &word, left < 8 ? left : 8);
    }
}

/* What is in an arena: of that which is sent, or received and all has come. */
static void image_of(struct part *part, const struct messages *list, enum ends end, unsigned char *image) {
    poison(image, list->room);
    for (int i = 0; i < list->count; i++) {
        const struct message *m = &list->message[i];
        if ((end == SENT ? m->from : m->to) == self(part)->rank)
            data(list, i, image + (end == SENT ? m->send_at : m->recv_at));
    }
}

void messages_fill(struct part *part, struct messages *list, uint64_t seed) {
    unsigned char *image = malloc(list->room);
    CHECK(image);
    list->seed = seed;
    image_of(part, list, SENT, image);
    box_upload(list->send, image, list->room);
    poison(image, list->room);
    box_upload(list->recv, image, list->room);
    free(image);
}

/* The message whose data or ground an arena has at that byte. */
static int message_at(struct part *part, const struct messages *list, enum ends end, size_t at) {
    int found = 0;
    for (int i = 0; i < list->count; i++) {
        const struct message *m = &list->message[i];
        if ((end == SENT ? m->from : m->to) == self(part)->rank && (end == SENT ? m->send_at : m->recv_at) < at + GAP)
            found = i;
    }
    return found;
}

static void compare(struct part *part, const struct messages *list, enum ends end, const unsigned char *expected) {
    unsigned char *image = malloc(list->room);
    size_t at = 0;
    CHECK(image);
    CU_OK(cuMemcpyDtoH(image, end == SENT ? list->send : list->recv, list->room));
    if (memcmp(image, expected, list->room)) {
        while (image[at] == expected[at]) at++;
        const int i = message_at(part, list, end, at);
        const struct message *m = &list->message[i];
        FAIL("rank %d: %s: message %d of %d, %zu bytes from %d to %d: byte %ld is %02x, expected %02x",
             self(part)->rank, end == SENT ? "what is sent was written to" : "received", i, list->count, m->bytes,
             m->from, m->to, (long)at - (long)(end == SENT ? m->send_at : m->recv_at), image[at], expected[at]);
    }
    free(image);
}

static void check(struct part *part, const struct messages *list, bool arrived) {
    unsigned char *expected = malloc(list->room);
    CHECK(expected);
    image_of(part, list, SENT, expected);
    compare(part, list, SENT, expected);
    if (arrived)
        image_of(part, list, RECEIVED, expected);
    else
        poison(expected, list->room);
    compare(part, list, RECEIVED, expected);
    free(expected);
}

void messages_check(struct part *part, const struct messages *list) {
    check(part, list, true);
}
void messages_check_untouched(struct part *part, const struct messages *list) {
    check(part, list, false);
}

/* --- posting --- */
static ncclResult_t post(struct part *part, const struct messages *list, enum ends ends, int first, int last,
                         ncclComm_t comm, CUstream stream, int *posted) {
    const int rank = self(part)->rank;
    ncclResult_t result = ncclSuccess;
    *posted = 0;
    for (int i = first; i < last && result == ncclSuccess; i++) {
        const struct message *m = &list->message[i];
        const bool sends = (ends & SENT) && m->from == rank, receives = (ends & RECEIVED) && m->to == rank;
        const ncclDataType_t type = of_words(m, i) ? ncclInt64 : ncclInt8;
        const size_t count = of_words(m, i) ? m->bytes / 8 : m->bytes;
        if (sends && receives) NCCL_OK(ncclGroupStart());
        if (sends) result = ncclSend((void *)(list->send + m->send_at), count, type, m->to, comm, stream);
        if (receives && result == ncclSuccess)
            result = ncclRecv((void *)(list->recv + m->recv_at), count, type, m->from, comm, stream);
        if (sends && receives && result == ncclSuccess) NCCL_OK(ncclGroupEnd());
        *posted += sends + receives;
    }
    return result;
}

int messages_post(struct part *part, const struct messages *list, enum ends ends, int first, int last, ncclComm_t comm,
                  CUstream stream) {
    int posted;
    NCCL_OK(post(part, list, ends, first, last, comm, stream, &posted));
    return posted;
}

ncclResult_t messages_try(struct part *part, const struct messages *list, enum ends ends, int first, int last,
                          ncclComm_t comm, CUstream stream) {
    int posted;
    return post(part, list, ends, first, last, comm, stream, &posted);
}

void messages_group(struct part *part, const struct messages *list, enum ends ends, int first, int last,
                    ncclComm_t comm, CUstream stream) {
    NCCL_OK(ncclGroupStart());
    messages_post(part, list, ends, first, last, comm, stream);
    group_end(comm);
}

/* --- sizes --- */
size_t message_size(const struct settings *s, uint64_t k) {
    const size_t edge = 4 * s->small, sizes[] = {
                                          0,
                                          1,
                                          3,
                                          7,
                                          8,
                                          16,
                                          15,
                                          0,
                                          120,
                                          119,
                                          121,
                                          479,
                                          480,
                                          481,
                                          512,
                                          959,
                                          s->small,
                                          s->small - 1,
                                          edge - 1,
                                          edge,
                                          edge + 1,
                                          s->middle,
                                          s->middle - 8,
                                          s->middle + 5,
                                      };
    if (k % 29 == 28) return s->large + k % 9;
    return sizes[k % (sizeof sizes / sizeof *sizes)];
}

void messages_connect(struct part *part, const struct settings *s, int ranks, ncclComm_t comm, CUstream stream) {
    struct messages first = {0};
    doing(part, "first messages");
    if (self(part)->rank >= ranks) return;
    for (int from = 0; from < ranks; from++)
        for (int to = 0; to < ranks; to++) {
            messages_add(&first, from, to, 4);
            messages_add(&first, from, to, s->large); /* NCCL's, where small ones are not */
        }
    messages_open(part, &first);
    messages_fill(part, &first, 0);
    messages_group(part, &first, BOTH_ENDS, 0, first.count, comm, stream);
    stream_sync(stream);
    messages_check(part, &first);
    messages_close(&first);
}
