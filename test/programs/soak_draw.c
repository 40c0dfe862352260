/* soak_draw.c - what a batch of the soak calls, sends and must receive; see soak.h.
 *
 * Inputs are small whole numbers, so that every sum, product and average is exact in every type and in any order.  They repeat
 * after a prime number of elements: a buffer costs as much as a copy.
 */
#include "soak.h"

#include <stdio.h>
#include <string.h>

#include "reference.h"

enum { PERIOD = 61, POISON = 0xa5, GAP = 64, ALIGN = 64, OFFSETS = 16 };

/* --- numbers --- */
/* Whole numbers up to which a type is exact, as ncclDataType_t numbers them. */
static const double exact_up_to[REF_DATATYPES] = {127,  255,     1 << 20,   1 << 20, 1ll << 40, 1ll << 40,
                                                  2048, 1 << 24, 1ll << 50, 256,     16,        8};

static bool is_float(int datatype) {
    return datatype >= ncclFloat16;
}

static bool reduces(int kind) {
    return kind == BL_ALLREDUCE || kind == BL_REDUCESCATTER || kind == BL_REDUCE;
}

static void encode(void *out, int datatype, const double *pattern, size_t count) {
    for (size_t i = 0; i < count; i++) {
        const double v = pattern[i];
        switch (ref_datatype_size(datatype)) {
        case 1:
            ((uint8_t *)out)[i] = is_float(datatype) ? (uint8_t)ref_narrow(datatype, (float)v) : (uint8_t)(int64_t)v;
            break;
        case 2: ((uint16_t *)out)[i] = (uint16_t)ref_narrow(datatype, (float)v); break;
        case 4:
            if (is_float(datatype))
                ((float *)out)[i] = (float)v;
            else
                ((uint32_t *)out)[i] = (uint32_t)(int64_t)v;
            break;
        default:
            if (is_float(datatype))
                ((double *)out)[i] = v;
            else
                ((uint64_t *)out)[i] = (uint64_t)(int64_t)v;
        }
    }
}

/* `count` elements at p, which need not be aligned. */
static void fill(unsigned char *p, int datatype, const double *pattern, size_t count) {
    uint64_t period[PERIOD];
    const size_t size = ref_datatype_size(datatype), bytes = count * size;
    size_t done = PERIOD * size < bytes ? PERIOD * size : bytes;
    encode(period, datatype, pattern, done / size);
    memcpy(p, period, done);
    for (; done < bytes; done *= 2) memcpy(p + done, p, bytes - done < done ? bytes - done : done);
}

/* How many numbers, from 0 on, an input is drawn from. */
static uint64_t span(const struct soak_call *call) {
    const double most = exact_up_to[call->datatype];
    if (!reduces(call->kind) || call->redop == ncclMin || call->redop == ncclMax) return (uint64_t)most;
    if (call->redop == ncclProd) return 2; /* 1 and 2 */
    return (uint64_t)(most / call->team.nranks) + 1;
}

/* What rank `rank` sends in its block number `block`. */
static void input(const struct soak_call *call, int rank, int block, double pattern[PERIOD]) {
    const uint64_t numbers = span(call), from = reduces(call->kind) && call->redop == ncclProd;
    uint64_t state = ref_mix(call->seed, (uint64_t)(block * 64 + rank));
    for (int i = 0; i < PERIOD; i++) pattern[i] = (double)(from + ref_below(&state, numbers));
}

static double combine(int redop, double a, double b) {
    switch (redop) {
    case ncclProd: return a * b;
    case ncclMin: return b < a ? b : a;
    case ncclMax: return b > a ? b : a;
    default: return a + b;
    }
}

/* What comes of all ranks' blocks of that number. */
static void reduced(const struct soak_call *call, int block, double pattern[PERIOD]) {
    double other[PERIOD];
    input(call, 0, block, pattern);
    for (int r = 1; r < call->team.nranks; r++) {
        input(call, r, block, other);
        for (int i = 0; i < PERIOD; i++) pattern[i] = combine(call->redop, pattern[i], other[i]);
    }
    if (call->redop != ncclAvg) return;
    for (int i = 0; i < PERIOD; i++) {
        pattern[i] /= call->team.nranks;
        if (!is_float(call->datatype)) pattern[i] = (double)(int64_t)pattern[i];
    }
}

/* --- where things lie --- */
static bool to_all(const struct soak_call *call) {
    return call->kind == BL_ALLTOALL || call->kind == UNEVEN;
}

static size_t blocks_sent(const struct soak_call *call) {
    return call->kind == BL_REDUCESCATTER || to_all(call) ? (size_t)call->team.nranks : 1;
}

static size_t blocks_received(const struct soak_call *call) {
    return call->kind == BL_ALLGATHER || to_all(call) ? (size_t)call->team.nranks : 1;
}

size_t uneven_count(const struct soak_call *call, int from, int to) {
    const uint64_t drawn = ref_mix(call->seed, 0xa11u + (uint64_t)(from * 64 + to));
    return drawn % 3 ? (size_t)(drawn / 3 % (call->count + 1)) : 0;
}

/* Elements of a block, between this rank and that of the block. */
static size_t elements(const struct soak_call *call, int from, int to) {
    return call->kind == UNEVEN ? uneven_count(call, from, to) : call->count;
}

static size_t block_bytes(const struct soak_call *call) {
    return call->count * ref_datatype_size(call->datatype);
}

static void place(struct soak_call *call, size_t slot, uint64_t *mine) {
    const size_t size = ref_datatype_size(call->datatype), block = (size_t)call->team.rank * block_bytes(call);
    call->slot = slot;
    call->send_at = slot + GAP + (ref_below(mine, 2) ? size * ref_below(mine, OFFSETS) : 0);
    call->recv_at = slot + GAP + (ref_below(mine, 2) ? size * ref_below(mine, OFFSETS) : 0);
    if (!call->in_place) return;
    call->send_at = call->recv_at;
    if (call->kind == BL_ALLGATHER) call->send_at += block;
    if (call->kind == BL_REDUCESCATTER) call->recv_at += block;
}

static void write_input(struct batch *batch, const struct soak_call *call) {
    const bool is_root = call->team.rank == call->root;
    unsigned char *at = (call->in_place ? batch->recv : batch->send) + call->send_at;
    double pattern[PERIOD];
    if (call->kind == BL_BROADCAST && !is_root) return;
    for (size_t b = 0; b < blocks_sent(call); b++) {
        input(call, call->team.rank, (int)b, pattern);
        fill(at + b * block_bytes(call), call->datatype, pattern, elements(call, call->team.rank, (int)b));
    }
}

static void write_result(struct batch *batch, const struct soak_call *call) {
    const int rank = call->team.rank, nranks = call->team.nranks;
    double pattern[PERIOD];
    if (call->kind == BL_REDUCE && rank != call->root) return;
    for (size_t b = 0; b < blocks_received(call); b++) {
        switch (call->kind) {
        case BL_ALLREDUCE:
        case BL_REDUCE: reduced(call, 0, pattern); break;
        case BL_REDUCESCATTER: reduced(call, rank, pattern); break;
        case BL_ALLGATHER: input(call, (int)b, 0, pattern); break;
        case BL_ALLTOALL:
        case UNEVEN: input(call, (int)b, rank, pattern); break;
        case BL_BROADCAST: input(call, call->root, 0, pattern); break;
        default: input(call, (rank + nranks - 1) % nranks, 0, pattern); break;
        }
        fill(batch->image + call->recv_at + b * block_bytes(call), call->datatype, pattern,
             elements(call, (int)b, rank));
    }
}

/* --- drawing --- */
/* Most are small; how many there are is such that a batch costs about the same. */
static const struct size_class {
    unsigned percent;
    size_t most;
    int calls;
} classes[] = {{88, 1 << 10, SOAK_CALLS}, {97, 64 << 10, 64}, {100, SIZE_MAX, 6}};

static const struct size_class *draw_class(uint64_t *common) {
    const uint64_t percent = ref_below(common, 100);
    const struct size_class *c = classes;
    while (percent >= c->percent) c++;
    return c;
}

/* From 0 on, small ones as often as those twice as large. */
static size_t draw_bytes(uint64_t *common, size_t most) {
    const unsigned bits = 64 - (unsigned)__builtin_clzll((unsigned long long)most);
    const uint64_t below = 2ull << ref_below(common, bits);
    return ref_below(common, below < most ? below : most + 1);
}

static void draw_call(struct soak_call *call, const struct plan *plan, uint64_t *common, size_t most) {
    const uint64_t redop = ref_below(common, REF_REDOPS), root = ref_next(common);
    const size_t bytes = draw_bytes(common, most);
    call->kind = (int)ref_below(common, SOAK_KINDS);
    call->comm = (int)ref_below(common, SOAK_COMMS);
    call->datatype = (int)ref_below(common, REF_DATATYPES);
    call->in_place = ref_below(common, 3) == 0 && !to_all(call) && call->kind != SEND_RECV;
    call->seed = ref_next(common);
    call->team = plan->team[call->comm];
    const unsigned nranks = (unsigned)call->team.nranks;
    call->root = (int)(root % nranks);
    /* A sum divided by 3 is exact in no floating-point type. */
    call->redop = redop == ncclAvg && is_float(call->datatype) && nranks & (nranks - 1) ? ncclSum : (int)redop;
    const bool blocks = call->kind == BL_ALLGATHER || call->kind == BL_REDUCESCATTER || to_all(call);
    call->count = bytes / ref_datatype_size(call->datatype) / (blocks ? nranks : 1);
}

/* Groups and graphs: what the call before was part of goes on, or something begins. */
struct runs {
    enum run run;
    unsigned number, launches;
    int left, stream;
};

static void draw_run(struct soak_call *call, struct runs *runs, const struct plan *plan, uint64_t *common) {
    const uint64_t what = ref_below(common, 40), length = 2 + ref_below(common, 14),
                   launches = 1 + ref_below(common, 3);
    const int stream = (int)ref_below(common, SOAK_STREAMS);
    const bool renew = ref_below(common, 48) == 0;
    if (runs->left == 0) {
        runs->run = what < 2 ? GROUP : what == 2 && plan->graphs ? GRAPH : ALONE;
        runs->left = runs->run == ALONE ? 1 : (int)length;
        runs->number++;
        runs->launches = (unsigned)launches;
        runs->stream = stream;
        call->renew = renew;
    }
    runs->left--;
    call->run = runs->run;
    call->number = runs->number;
    call->launches = runs->run == GRAPH ? runs->launches : 1;
    call->stream = runs->run == GRAPH ? runs->stream : stream;
    if (call->launches > 1 && reduces(call->kind)) call->in_place = false; /* its input would be gone */
}

static void draw_delays(struct soak_call *call, uint64_t *mine) {
    const uint64_t host = ref_below(mine, 300), device = ref_below(mine, 200), us = ref_below(mine, 60);
    if (host == 0) call->host_us = (unsigned)us;
    if (device == 0) call->device_us = (unsigned)us;
}

void batch_draw(struct batch *batch, const struct plan *plan, uint64_t which, uint64_t calls) {
    uint64_t common = ref_mix(plan->seed, which), mine = ref_mix(common, 0x50ull + (uint64_t)plan->rank);
    const struct size_class *c = draw_class(&common);
    const size_t most = c->most < plan->most ? c->most : plan->most;
    const size_t slot = (most + OFFSETS * 8 + 2 * GAP + ALIGN - 1) / ALIGN * ALIGN;
    struct runs runs = {0};
    const uint64_t wanted = (uint64_t)c->calls < calls ? (uint64_t)c->calls : calls;
    batch->count = (int)(wanted < plan->room / slot ? wanted : plan->room / slot);
    batch->used = 0;
    for (int i = 0; i < batch->count; i++) {
        struct soak_call *call = &batch->call[i];
        *call = (struct soak_call){0};
        draw_call(call, plan, &common, most);
        draw_run(call, &runs, plan, &common);
        draw_delays(call, &mine);
        /* Equal on all ranks and for any number of them: only the room that this call may need. */
        const size_t whole =
            block_bytes(call) * (blocks_sent(call) > blocks_received(call) ? blocks_sent(call) : blocks_received(call));
        place(call, batch->used, &mine);
        batch->used += (whole + OFFSETS * 8 + 2 * GAP + ALIGN - 1) / ALIGN * ALIGN;
    }
    memset(batch->send, POISON, batch->used);
    memset(batch->recv, POISON, batch->used);
    for (int i = 0; i < batch->count; i++) write_input(batch, &batch->call[i]);
    memcpy(batch->image, batch->recv, batch->used);
    for (int i = 0; i < batch->count; i++) write_result(batch, &batch->call[i]);
}

/* --- telling --- */
void call_text(const struct soak_call *call, char *text, size_t size) {
    static const char *const runs[] = {"alone", "in a group", "in a graph"};
    const char *kind = call->kind == SEND_RECV ? "send_recv"
                       : call->kind == UNEVEN  ? "uneven sends, at most"
                                               : collective_name(call->kind);
    snprintf(text, size,
             "%s of %zu %s, %s, root %d, %d ranks%s, %s (%u launches), stream %d, addresses %zu and %zu modulo 128",
             kind, call->count, ref_datatype_name(call->datatype), ref_redop_name(call->redop), call->root,
             call->team.nranks, call->in_place ? ", in place" : "", runs[call->run], call->launches, call->stream,
             call->send_at % 128, call->recv_at % 128);
}

int batch_differs(const struct batch *batch, const unsigned char *received, char *text, size_t size) {
    char what[256];
    if (memcmp(received, batch->image, batch->used) == 0) return -1;
    size_t at = 0, wrong = 0;
    int i = 0;
    while (received[at] == batch->image[at]) at++;
    while (i + 1 < batch->count && batch->call[i + 1].slot <= at) i++;
    const struct soak_call *call = &batch->call[i];
    const size_t end = i + 1 < batch->count ? batch->call[i + 1].slot : batch->used;
    for (size_t b = at; b < end; b++) wrong += received[b] != batch->image[b];
    call_text(call, what, sizeof what);
    snprintf(text, size, "%s: %zu bytes wrong, first byte %zd of the result: %02x, expected %02x", what, wrong,
             (ssize_t)at - (ssize_t)call->recv_at, received[at], batch->image[at]);
    return i;
}
