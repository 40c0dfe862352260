/* call.c - one collective of a test, its buffers and their check to the byte; see box.h. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "box.h"
#include "reference.h"

/* Guards are as wide as two lines: a kernel that rounds up by one lands in them. */
enum { GUARD = 512, ALIGNMENT = 256, SLACK = 64 };

static unsigned char poison_at(uint64_t seed, size_t i) {
    return (unsigned char)(i * 131 + seed * 17 + 0xa5);
}

static void poison(uint64_t seed, unsigned char *p, size_t bytes) {
    for (size_t i = 0; i < bytes; i++) p[i] = poison_at(seed, i);
}

static size_t room_with_guards(size_t bytes) {
    return bytes + 2 * GUARD + SLACK;
}

static const struct {
    const char *function;
    bool gathers, scatters; /* has a block for each rank where it receives; where it sends */
    bool reduces;
    bool root_sends, root_receives; /* the root alone */
    bool paired; /* a group of two calls, in which a rank sends to the next one and receives from the one before */
} collectives[BL_COLLECTIVES] = {
    [BL_ALLREDUCE] = {"ncclAllReduce", .reduces = true},
    [BL_ALLGATHER] = {"ncclAllGather", .gathers = true},
    [BL_REDUCESCATTER] = {"ncclReduceScatter", .scatters = true, .reduces = true},
    [BL_ALLTOALL] = {"ncclAlltoAll", .gathers = true, .scatters = true},
    [BL_BROADCAST] = {"ncclBroadcast", .root_sends = true},
    [BL_REDUCE] = {"ncclReduce", .reduces = true, .root_receives = true},
    [BL_SENDRECV] = {"ncclSend", .paired = true},
};

/* Not all programs are linked to kernels.c. */
static const char *const names[BL_COLLECTIVES] = {
#define BL_COLLECTIVE(COLLECTIVE, name, words, traits) #name,
#include "collectives.def"
};

const char *collective_name(int collective) {
    return names[collective];
}
const char *collective_function(int collective) {
    return collectives[collective].function;
}
bool collective_has_blocks(int collective) {
    return collectives[collective].gathers || collectives[collective].scatters;
}
bool collective_is_paired(int collective) {
    return collectives[collective].paired;
}
int collective_find(const char *name) {
    for (int i = 0; i < BL_COLLECTIVES; i++)
        if (strcmp(names[i], name) == 0) return i;
    return -1;
}

/* --- where things lie --- */

static size_t block_bytes(const struct call *call) {
    return call->count * ref_datatype_size(call->datatype);
}
static size_t blocks_sent(const struct call *call) {
    return collectives[call->collective].scatters ? (size_t)call->nranks : 1;
}
static size_t blocks_received(const struct call *call) {
    return collectives[call->collective].gathers ? (size_t)call->nranks : 1;
}

static bool is_root(const struct call *call, int i) {
    return call->first_rank + i == call->root;
}
static bool sends(const struct call *call, int i) {
    return !collectives[call->collective].root_sends || is_root(call, i);
}
static bool receives(const struct call *call, int i) {
    return !collectives[call->collective].root_receives || is_root(call, i);
}
/* Of the ranks that may go without a buffer, about every other one does. */
static bool goes_without(const struct call *call, int i) {
    return ref_mix(call->seed, 0x2bu + (uint64_t)(call->first_rank + i)) % 2;
}

/* Bytes from the begin of the buffer that is sent from, or received to, to the data of rank i of the part. */
static size_t data_at(const struct call *call, int i, bool recv) {
    const size_t begin =
        GUARD + (recv && !call->in_place ? call->recv_offset : call->send_offset) + call->skew * (unsigned)i % 8;
    const bool is_block = recv ? collectives[call->collective].scatters : collectives[call->collective].gathers;
    return begin + (call->in_place && is_block ? (size_t)(call->first_rank + i) * block_bytes(call) : 0);
}

void call_allocate(struct part *part, struct call *call, size_t room) {
    if (call->room >= room && call->room) return;
    call_free(part, call);
    call->room = room ? room : 1;
    each_rank (part, i) {
        CU_OK(cuMemAlloc(&call->send[i], room_with_guards(call->room)));
        CU_OK(cuMemAlloc(&call->recv[i], room_with_guards(call->room)));
        CHECK((call->send[i] | call->recv[i]) % ALIGNMENT == 0);
    }
    call->expected = malloc(call->room * (size_t)part->count);
    CHECK(call->expected);
}

void call_free(struct part *part, struct call *call) {
    if (!call->room) return;
    each_rank (part, i) {
        CU_OK(cuMemFree(call->send[i]));
        CU_OK(cuMemFree(call->recv[i]));
    }
    free(call->expected);
    call->expected = NULL;
    call->room = 0;
}

/* Ranks receive what no other does; it is held for each rank of the part. */
static bool all_differ(const struct call *call) {
    return call->collective == BL_ALLTOALL || collectives[call->collective].paired;
}

/* No rank's two buffers may be one: what it has yet to send would be gone. */
static bool has_in_place(const struct call *call) {
    return !all_differ(call);
}

/* What rank i of the part receives; one for all where all receive the same. */
static unsigned char *expected_of(const struct call *call, int i) {
    const bool scatters = collectives[call->collective].scatters;
    if (all_differ(call)) return call->expected + (size_t)i * blocks_received(call) * block_bytes(call);
    return call->expected + (scatters ? (size_t)(call->first_rank + i) * block_bytes(call) : 0);
}

/* Block r of rank i is block i of rank r. */
static void expect_transposed(const struct part *part, struct call *call) {
    for (int i = 0; i < part->count; i++)
        for (int r = 0; r < call->nranks; r++)
            ref_input_from(call->datatype, call->seed, r, (size_t)(call->first_rank + i) * call->count, call->count,
                           expected_of(call, i) + (size_t)r * block_bytes(call));
}

static void expect_neighbour(const struct part *part, struct call *call) {
    const int before = call->to_itself ? 0 : call->nranks - 1;
    for (int i = 0; i < part->count; i++)
        ref_input(call->datatype, call->seed, (call->first_rank + i + before) % call->nranks, call->count,
                  expected_of(call, i));
}

static void expect(const struct part *part, struct call *call) {
    if (collectives[call->collective].paired) {
        expect_neighbour(part, call);
        return;
    }
    switch (call->collective) {
    case BL_ALLTOALL: expect_transposed(part, call); break;
    case BL_BROADCAST: ref_input(call->datatype, call->seed, call->root, call->count, call->expected); break;
    case BL_ALLGATHER:
        for (int r = 0; r < call->nranks; r++)
            ref_input(call->datatype, call->seed, r, call->count, call->expected + (size_t)r * block_bytes(call));
        break;
    default:
        ref_allreduce(call->datatype, call->redop, call->seed, call->nranks, blocks_sent(call) * call->count,
                      call->expected);
    }
}

static uint64_t seed_of(const struct part *part, const struct call *call) {
    return part->box->whole ? ref_whole(call->seed) : call->seed;
}

int call_root(const struct part *part, const struct call *call) {
    return (int)(ref_mix(seed_of(part, call), 0x7007) % (unsigned)part->box->nranks);
}

void call_prepare(struct part *part, struct call *call) {
    CHECK(call->send_offset + 8 <= SLACK && call->recv_offset + 8 <= SLACK);
    call->root = call_root(part, call);
    call->seed = seed_of(part, call);
    call->nranks = part->box->nranks;
    call->first_rank = part->rank[0].rank;
    if (!has_in_place(call)) call->in_place = false;
    call_allocate(part, call, (collective_has_blocks(call->collective) ? (size_t)call->nranks : 1) * block_bytes(call));
    expect(part, call);
    memset(call->hash, 0, sizeof call->hash);
    call_refill(part, call);
}

/* The image of rank i's buffer to send from as call_prepare makes it. */
static void fill(struct part *part, const struct call *call, int i, unsigned char *image) {
    poison(call->seed, image, room_with_guards(call->room));
    ref_input(call->datatype, call->seed, part->rank[i].rank, blocks_sent(call) * call->count,
              image + data_at(call, i, false));
}

void call_refill(struct part *part, struct call *call) {
    size_t room = room_with_guards(call->room);
    unsigned char *image = malloc(room);
    CHECK(image);
    each_rank (part, i) {
        poison(call->seed, image, room);
        box_upload(call->recv[i], image, room);
        fill(part, call, i, image);
        box_upload(call->send[i], image, room);
    }
    free(image);
}

CUdeviceptr call_sendbuff(const struct call *call, int i) {
    return sends(call, i) || !goes_without(call, i) ? call->send[i] + data_at(call, i, false) : 0;
}

CUdeviceptr call_recvbuff(const struct call *call, int i) {
    if (!receives(call, i) && goes_without(call, i)) return 0;
    return (call->in_place ? call->send[i] : call->recv[i]) + data_at(call, i, true);
}

/* --- checks --- */

/* Ranks of one process must have the same bits, NaNs included: the first to come leaves its hash for the others. */
static void same_on_all_ranks(const struct call *call, uint64_t hash) {
    enum { SLOTS = 4096 };
    static struct { uint64_t seed, hash; } slots[SLOTS];
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    size_t slot = ref_mix(call->seed, 1) % SLOTS;
    uint64_t kind = ((uint64_t)call->collective * REF_DATATYPES + (uint64_t)call->datatype) * 8 + (uint64_t)call->redop;
    uint64_t key = ref_mix(call->seed, kind) ^ call->count;
    pthread_mutex_lock(&lock);
    if (slots[slot].seed != key) {
        slots[slot].seed = key;
        slots[slot].hash = hash;
    }
    bool same = slots[slot].hash == hash;
    pthread_mutex_unlock(&lock);
    CHECK(same, "%s %s count %zu: ranks differ in the bits of a NaN", ref_datatype_name(call->datatype),
          ref_redop_name(call->redop), call->count);
}

static uint64_t hash_of(const unsigned char *p, size_t bytes) {
    uint64_t h = 0xcbf29ce484222325u;
    for (size_t i = 0; i < bytes; i++) h = (h ^ p[i]) * 0x100000001b3u;
    return h | 1;
}

/* What a failure is told of: which call, on which rank. */
static const char *words_of(const struct call *call, int i) {
    static _Thread_local char text[256];
    snprintf(text, sizeof text,
             "rank %d, %s of %zu %s %s, root %d, %s, offsets %u %u (skew %u), stream %d, call seed %llu",
             call->first_rank + i, collective_name(call->collective), call->count, ref_datatype_name(call->datatype),
             ref_redop_name(call->redop), call->root, call->in_place ? "in place" : "out of place", call->send_offset,
             call->recv_offset, call->skew, call->stream, (unsigned long long)call->seed);
    return text;
}

/* Index of the first of `count` elements that is not as expected, or count. */
static size_t first_wrong(const struct call *call, const unsigned char *got, const unsigned char *expected,
                          size_t count) {
    const size_t size = ref_datatype_size(call->datatype);
    size_t at = 0;
    if (collectives[call->collective].reduces) return ref_differ(call->datatype, got, expected, count);
    if (memcmp(got, expected, count * size) == 0) return count; /* what is moved keeps every bit */
    while (memcmp(got + at * size, expected + at * size, size) == 0) at++;
    return at;
}

static void fail_element(const struct call *call, int i, const unsigned char *image, size_t from,
                         const unsigned char *expected, size_t at) {
    size_t size = ref_datatype_size(call->datatype);
    uint64_t got = 0, want = 0;
    memcpy(&got, image + from + at * size, size);
    memcpy(&want, expected + at * size, size);
    FAIL("%s: element %zu is 0x%llx, expected 0x%llx%s", words_of(call, i), at, (unsigned long long)got,
         (unsigned long long)want,
         image[from + at * size] == poison_at(call->seed, from + at * size) ? " (perhaps never written)" : "");
}

/* Every byte of a buffer is as it was. */
static void check_kept(const struct call *call, int i, const char *what, const unsigned char *image,
                       const unsigned char *before, size_t data) {
    size_t room = room_with_guards(call->room);
    if (memcmp(image, before, room) == 0) return;
    size_t at = 0;
    while (image[at] == before[at]) at++;
    FAIL("%s: %s was written at byte %ld from its data's begin", words_of(call, i), what, (long)at - (long)data);
}

/* Of rank i: the result, and that nothing else was written to the buffer that holds it, which was `before`. */
static void check_result(struct call *call, int i, const unsigned char *image, unsigned char *before) {
    const size_t from = data_at(call, i, true), size = ref_datatype_size(call->datatype);
    const size_t count = blocks_received(call) * call->count, bytes = count * size;
    const unsigned char *expected = expected_of(call, i);
    const size_t at = first_wrong(call, image + from, expected, count);
    if (at < count) fail_element(call, i, image, from, expected, at);
    const uint64_t hash = hash_of(image + from, bytes);
    if (!collectives[call->collective].scatters && !all_differ(call)) same_on_all_ranks(call, hash);
    if (!call->hash[i]) call->hash[i] = hash;
    CHECK(call->hash[i] == hash, "%s: the same call gave other bits than before", words_of(call, i));
    memcpy(before + from, image + from, bytes);
    check_kept(call, i, call->in_place ? "the buffer" : "recvbuff", image, before, from);
}

/* With `done`, results are where they belong; all else is as call_prepare left it. */
static void check(struct part *part, struct call *call, bool done) {
    size_t room = room_with_guards(call->room);
    unsigned char *image = malloc(room), *before = malloc(room);
    CHECK(image && before);
    for (int i = 0; i < part->count; i++) {
        const bool has_result = done && receives(call, i);
        part_enter(part, i);
        fill(part, call, i, before);
        CU_OK(cuMemcpyDtoH(image, call->send[i], room));
        if (has_result && call->in_place)
            check_result(call, i, image, before);
        else
            check_kept(call, i, "sendbuff", image, before, data_at(call, i, false));
        poison(call->seed, before, room);
        CU_OK(cuMemcpyDtoH(image, call->recv[i], room));
        if (has_result && !call->in_place)
            check_result(call, i, image, before);
        else
            check_kept(call, i, call->in_place ? "another buffer" : "recvbuff", image, before, data_at(call, i, true));
    }
    free(image);
    free(before);
}

void call_check(struct part *part, struct call *call) {
    check(part, call, true);
}

void call_check_untouched(struct part *part, struct call *call) {
    check(part, call, false);
}

size_t call_count_wrong(struct part *part, const struct call *call) {
    const size_t size = ref_datatype_size(call->datatype), count = blocks_received(call) * call->count;
    unsigned char *got = malloc(count * size);
    size_t wrong = 0;
    CHECK(got);
    for (int i = 0; i < part->count; i++) {
        if (!receives(call, i)) continue;
        const unsigned char *expected = expected_of(call, i);
        part_enter(part, i);
        CU_OK(cuMemcpyDtoH(got, call_recvbuff(call, i), count * size));
        for (size_t at = 0; (at += first_wrong(call, got + at * size, expected + at * size, count - at)) < count; at++)
            wrong++;
    }
    free(got);
    return wrong;
}
