/* call.c - one all-reduce of a test, its buffers and their check to the byte; see box.h. */
#include <pthread.h>
#include <stdatomic.h>
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

static size_t data_at(const struct call *call, int i, bool recv) {
    return GUARD + (recv && !call->in_place ? call->recv_offset : call->send_offset) + call->skew * (unsigned)i % 8;
}

static size_t call_bytes(const struct call *call) {
    return call->count * ref_datatype_size(call->datatype);
}

void call_allocate(struct part *part, struct call *call, size_t room) {
    if (call->room >= room && call->room) return;
    call_free(part, call);
    call->room = room ? room : 1;
    for (int i = 0; i < part->count; i++) {
        part_enter(part, i);
        CU_OK(cuMemAlloc(&call->send[i], room_with_guards(call->room)));
        CU_OK(cuMemAlloc(&call->recv[i], room_with_guards(call->room)));
        CHECK((call->send[i] | call->recv[i]) % ALIGNMENT == 0);
    }
    call->expected = malloc(call->room);
    CHECK(call->expected);
}

void call_free(struct part *part, struct call *call) {
    if (!call->room) return;
    for (int i = 0; i < part->count; i++) {
        part_enter(part, i);
        CU_OK(cuMemFree(call->send[i]));
        CU_OK(cuMemFree(call->recv[i]));
    }
    free(call->expected);
    call->expected = NULL;
    call->room = 0;
}

void call_prepare(struct part *part, struct call *call) {
    CHECK(call->send_offset + 8 <= SLACK && call->recv_offset + 8 <= SLACK);
    call_allocate(part, call, call_bytes(call));
    ref_allreduce(call->datatype, call->redop, call->seed, part->box->nranks, call->count, call->expected);
    call->hash = 0;
    call_refill(part, call);
}

void call_refill(struct part *part, struct call *call) {
    size_t room = room_with_guards(call->room);
    unsigned char *image = malloc(room);
    CHECK(image);
    for (int i = 0; i < part->count; i++) {
        part_enter(part, i);
        poison(call->seed, image, room);
        CU_OK(cuMemcpyHtoD(call->recv[i], image, room));
        ref_input(call->datatype, call->seed, part->rank[i].rank, call->count, image + data_at(call, i, false));
        CU_OK(cuMemcpyHtoD(call->send[i], image, room));
    }
    free(image);
}

CUdeviceptr call_sendbuff(const struct call *call, int i) {
    return call->send[i] + data_at(call, i, false);
}

CUdeviceptr call_recvbuff(const struct call *call, int i) {
    return (call->in_place ? call->send[i] : call->recv[i]) + data_at(call, i, true);
}

ncclResult_t call_issue_rank(struct part *part, struct call *call, int i, ncclComm_t comm, CUstream stream) {
    part_enter(part, i);
    return ncclAllReduce((void *)call_sendbuff(call, i), (void *)call_recvbuff(call, i), call->count,
                         (ncclDataType_t)call->datatype, (ncclRedOp_t)call->redop, comm, stream);
}

void call_issue(struct part *part, struct call *call) {
    part_group_start(part);
    for (int i = 0; i < part->count; i++) {
        struct rank *rank = &part->rank[i];
        NCCL_OK(call_issue_rank(part, call, i, rank->comm, rank->stream[call->stream]));
    }
    part_group_end(part);
}

/* --- checks --- */

/* Ranks of one process must have the same bits, NaNs included: the first to come leaves its hash for the others. */
static void same_on_all_ranks(const struct call *call, uint64_t hash) {
    enum { SLOTS = 4096 };
    static struct { uint64_t seed, hash; } slots[SLOTS];
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    size_t slot = ref_mix(call->seed, 1) % SLOTS;
    uint64_t key = ref_mix(call->seed, (uint64_t)call->datatype * 8 + (uint64_t)call->redop) ^ call->count;
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

static void fail_element(const struct call *call, int rank, const unsigned char *image, size_t from, size_t at) {
    size_t size = ref_datatype_size(call->datatype);
    const unsigned char *result = image + from;
    uint64_t got = 0, want = 0;
    memcpy(&got, result + at * size, size);
    memcpy(&want, (char *)call->expected + at * size, size);
    FAIL("rank %d, %s %s, count %zu, %s, offsets %u %u (skew %u), stream %d, call seed %llu: element %zu is 0x%llx, "
         "expected "
         "0x%llx%s",
         rank, ref_datatype_name(call->datatype), ref_redop_name(call->redop), call->count,
         call->in_place ? "in place" : "out of place", call->send_offset, call->recv_offset, call->skew, call->stream,
         (unsigned long long)call->seed, at, (unsigned long long)got, (unsigned long long)want,
         memcmp(result + at * size, (unsigned char[8]){poison_at(call->seed, from + at * size)}, 1)
             ? ""
             : " (perhaps never written)");
}

static void check_guards(const struct call *call, int rank, const char *what, const unsigned char *image, size_t from,
                         size_t to) {
    size_t room = room_with_guards(call->room);
    for (size_t i = 0; i < room; i++) {
        if (i >= from && i < to) continue;
        if (image[i] != poison_at(call->seed, i))
            FAIL("rank %d, %s %s, count %zu, offsets %u %u (skew %u): %s was written at byte %ld of its %zu", rank,
                 ref_datatype_name(call->datatype), ref_redop_name(call->redop), call->count, call->send_offset,
                 call->recv_offset, call->skew, what, (long)i - (long)from, to - from);
    }
}

void call_check(struct part *part, struct call *call) {
    size_t bytes = call_bytes(call), size = ref_datatype_size(call->datatype), room = room_with_guards(call->room);
    unsigned char *image = malloc(room), *input = malloc(bytes + size);
    CHECK(image && input);
    for (int i = 0; i < part->count; i++) {
        int r = part->rank[i].rank;
        part_enter(part, i);
        size_t from = data_at(call, i, true);
        CU_OK(cuMemcpyDtoH(image, call->in_place ? call->send[i] : call->recv[i], room));
        size_t at = ref_differ(call->datatype, image + from, call->expected, call->count);
        if (at < call->count) fail_element(call, r, image, from, at);
        check_guards(call, r, call->in_place ? "the buffer" : "recvbuff", image, from, from + bytes);
        uint64_t hash = hash_of(image + from, bytes);
        same_on_all_ranks(call, hash);
        if (!call->hash) call->hash = hash;
        CHECK(call->hash == hash, "rank %d: the same call gave other bits than before", r);

        CU_OK(cuMemcpyDtoH(image, call->in_place ? call->recv[i] : call->send[i], room));
        from = data_at(call, i, false);
        if (call->in_place) {
            check_guards(call, r, "another buffer", image, 0, 0);
            continue;
        }
        ref_input(call->datatype, call->seed, r, call->count, input);
        CHECK(memcmp(image + from, input, bytes) == 0, "rank %d: sendbuff was written", r);
        check_guards(call, r, "sendbuff", image, from, from + bytes);
    }
    free(image);
    free(input);
}

void call_check_untouched(struct part *part, struct call *call) {
    size_t bytes = call_bytes(call), room = room_with_guards(call->room);
    unsigned char *image = malloc(room), *input = malloc(bytes + 8);
    CHECK(image && input);
    for (int i = 0; i < part->count; i++) {
        int r = part->rank[i].rank;
        size_t from = data_at(call, i, false);
        part_enter(part, i);
        CU_OK(cuMemcpyDtoH(image, call->recv[i], room));
        check_guards(call, r, "recvbuff", image, 0, 0);
        CU_OK(cuMemcpyDtoH(image, call->send[i], room));
        ref_input(call->datatype, call->seed, r, call->count, input);
        CHECK(memcmp(image + from, input, bytes) == 0, "rank %d: sendbuff was written", r);
        check_guards(call, r, "sendbuff", image, from, from + bytes);
    }
    free(image);
    free(input);
}
