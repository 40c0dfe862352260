/* rig.c - see rig.h. */
#include "rig.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

extern const void *const bl_fatbins[];
extern const int bl_fatbin_count;

/* The first rank that is on the GPU of rank i. */
static int first_there(const struct part *part, int i) {
    int first = 0;
    while (part->rank[first].device != part->rank[i].device) first++;
    return first;
}

void rig_settle(const struct rig *rig) {
    each_rank (rig->part, i) CU_OK(cuStreamSynchronize(NULL));
}

/* What pairs.cuh has behind the rings: a word for each receiver, and one for each of its channels. */
enum { PAIR_WORDS_THERE = BL_MAX_RANKS * BL_PAIR_CREDIT };

/* Of pairs: the last one, up to this number, that is a position. */
static uint64_t pair_position(const struct bl_staging_layout *layout, uint64_t number) {
    const uint64_t lap = UINT64_C(1) << bl_pair_lap_log2(layout), places = layout->pair_quads;
    return number % lap < places ? number : number - number % lap + places - 1;
}

/* Of rings of pieces (kernels/carriers/bulk.cuh): credit of each place for all that are gone before the cursor-th. */
static void set_credit(const struct rig *rig, uint64_t cursor) {
    const int n = rig->part->count;
    const uint64_t places = rig->layout.bulk_bytes / bl_bulk_piece(n), rings = BL_BULK_STREAMS * (uint64_t)(n - 1),
                   words = rings * places;
    uint64_t *credit = calloc(words, sizeof *credit);
    CHECK(credit);
    for (uint64_t w = 0; w < words; w++) {
        const uint64_t behind = (cursor - 1 - w) % places; /* so many came after the last of this place */
        credit[w] = cursor > behind ? cursor - behind : 0;
    }
    each_rank (rig->part, i)
        box_upload(rig->staging[i] + rig->layout.bulk_offset + rings * rig->layout.bulk_bytes + words * sizeof *credit,
                   credit, words * sizeof *credit);
    free(credit);
}

void rig_set_epochs(struct rig *rig, uint64_t epoch, uint64_t cursor) {
    uint64_t words[BL_LOCAL_WORDS] = {0}, epochs[BL_MAX_BLOCKS];
    uint64_t begun[BL_MAX_RANKS], told[PAIR_WORDS_THERE];
    for (int w = 0; w < BL_MAX_BLOCKS; w++) {
        epochs[w] = words[BL_WORD_EPOCHS + 2 * w] = epoch;
        words[BL_WORD_CURSORS + w] = words[BL_WORD_BULK_LAUNCHES + w] = cursor;
        for (int s = 0; s < BL_BULK_STREAMS; s++) words[BL_WORD_BULK + s * BL_MAX_BLOCKS + w] = cursor;
    }
    const uint64_t position = pair_position(&rig->layout, cursor);
    for (int w = 0; w < BL_PAIR_BLOCKS * BL_PAIR_WORDS; w++)
        words[BL_WORD_PAIRS + w] = w % BL_PAIR_WORDS < BL_PAIR_LAUNCHES ? position : 0;
    for (int w = 0; w < PAIR_WORDS_THERE; w++) told[w] = position;
    for (int r = 0; r < BL_MAX_RANKS; r++) begun[r] = cursor;
    each_rank (rig->part, i) {
        box_upload(rig->epochs[i], words, sizeof words);
        box_upload(rig->staging[i] + rig->layout.oneway_offset, begun, sizeof begun);
        box_upload(rig->staging[i] + rig->layout.credit_offset, told,
                   (size_t)rig->part->count * BL_PAIR_CREDIT * sizeof *told);
        if (rig->multicast) box_upload(rig->multicast->words[i], epochs, sizeof epochs);
    }
    if (rig->layout.bulk_bytes) set_credit(rig, cursor);
    rig_settle(rig);
}

enum { GUARD = 8 << 10 }; /* behind the staging: nobody writes there */

static void map_staging(struct rig *rig, int i) {
    const struct part *part = rig->part;
    const CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                      .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = part->rank[i].device}};
    CUmemAccessDesc access[BOX_RANKS];
    size_t granularity, gpus = 0;
    for (int r = 0; r < part->count; r++)
        if (first_there(part, r) == r)
            access[gpus++] = (CUmemAccessDesc){{.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = part->rank[r].device},
                                               CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CU_OK(cuMemGetAllocationGranularity(&granularity, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
    rig->bytes = (rig->layout.bytes + GUARD + granularity - 1) / granularity * granularity;
    CU_OK(cuMemCreate(&rig->handle[i], rig->bytes, &prop, 0));
    CU_OK(cuMemAddressReserve(&rig->staging[i], rig->bytes, 0, 0, 0));
    CU_OK(cuMemMap(rig->staging[i], rig->bytes, 0, rig->handle[i], 0));
    CU_OK(cuMemSetAccess(rig->staging[i], rig->bytes, access, gpus));
}

static void load_modules(struct rig *rig, int i) {
    const int first = first_there(rig->part, i);
    CHECK(bl_fatbin_count <= MOST_FATBINS);
    for (int m = 0; m < bl_fatbin_count; m++)
        if (first == i)
            CU_OK(cuModuleLoadData(&rig->module[i][m], bl_fatbins[m]));
        else
            rig->module[i][m] = rig->module[first][m];
}

void rig_blank(int i, uint64_t blank[2]) {
    blank[0] = UINT64_C(0x7ff4b1a27ff4b1a2) + (uint64_t)i;
    blank[1] = UINT64_C(0xfff4c3d5fff4c3d5) - (uint64_t)i;
}

void rig_fill_lines(struct rig *rig, int i, const uint64_t words[2]) {
    const uint64_t bytes = rig->layout.oneway_offset - rig->layout.line_offset;
    uint64_t *const lines = malloc(bytes);
    CHECK(lines);
    for (uint64_t w = 0; w < bytes / sizeof *lines; w++) lines[w] = words[w % 2];
    box_upload(rig->staging[i] + rig->layout.line_offset, lines, bytes);
    free(lines);
}

void rig_check_lines(const struct rig *rig, int i, const uint64_t words[2]) {
    const uint64_t at = rig->layout.line_offset, bytes = rig->layout.oneway_offset - at;
    uint64_t *const lines = malloc(bytes);
    CHECK(lines);
    CU_OK(cuMemcpyDtoH(lines, rig->staging[i] + at, bytes));
    for (uint64_t w = 0; w < bytes / sizeof *lines; w++)
        CHECK(lines[w] == words[w % 2], "rank %d: word %llu of the lines was left as %llx", i, (unsigned long long)w,
              (unsigned long long)lines[w]);
    free(lines);
}

/* Nothing has come. */
static void fill_blank(struct rig *rig, int i) {
    uint64_t blank[2];
    rig_blank(i, blank);
    rig_fill_lines(rig, i, blank);
}

void rig_stop(struct rig *rig, int i) {
    const uint64_t stopped = UINT64_C(1) << 63;
    for (int w = 0; w < BL_MAX_BLOCKS; w++)
        box_upload(rig->epochs[i] + (BL_WORD_EPOCHS + 2 * (size_t)w + 1) * sizeof stopped, &stopped, sizeof stopped);
    box_upload(rig->epochs[i] + BL_WORD_STOP * sizeof stopped, &stopped, sizeof stopped);
}

void rig_open(struct rig *rig, struct part *part, uint64_t staging_bytes, bool multicast, uint64_t timeout_ns) {
    *rig = (struct rig){.part = part, .timeout_ns = timeout_ns};
    CHECK(bl_staging_plan(&rig->layout, part->count, staging_bytes, BL_WITH_PIECES, multicast) == 0);
    for (int i = 0; i < part->count; i++) {
        struct rank *rank = part_enter(part, i);
        map_staging(rig, i);
        CU_OK(cuMemsetD8Async(rig->staging[i], 0, rig->bytes, rank->stream[0]));
        CU_OK(cuStreamSynchronize(rank->stream[0]));
        fill_blank(rig, i);
        CU_OK(cuMemAlloc(&rig->epochs[i], BL_LOCAL_WORDS * sizeof(uint64_t)));
        CU_OK(cuMemHostAlloc((void **)&rig->control[i], sizeof(struct bl_control), CU_MEMHOSTALLOC_DEVICEMAP));
        CU_OK(cuMemHostGetDevicePointer(&rig->control_there[i], rig->control[i], 0));
        memset(rig->control[i], 0, sizeof(struct bl_control));
        load_modules(rig, i);
    }
    rig_set_epochs(rig, 0, 0);
}

static void check_guard(const struct rig *rig, int i) {
    unsigned char guard[GUARD];
    CU_OK(cuMemcpyDtoH(guard, rig->staging[i] + rig->layout.bytes, GUARD));
    for (int at = 0; at < GUARD; at++) CHECK(!guard[at], "rank %d: byte %d behind the staging was written", i, at);
}

/* Each launch has left the lines as it found them. */
static void check_blank(const struct rig *rig, int i) {
    uint64_t blank[2];
    rig_blank(i, blank);
    rig_check_lines(rig, i, blank);
}

void rig_close(struct rig *rig) {
    rig_drain(rig);
    each_rank (rig->part, i) {
        check_guard(rig, i);
        if (!rig->torn) check_blank(rig, i);
        for (int m = 0; m < bl_fatbin_count && first_there(rig->part, i) == i; m++)
            CU_OK(cuModuleUnload(rig->module[i][m]));
        CU_OK(cuMemUnmap(rig->staging[i], rig->bytes));
        CU_OK(cuMemAddressFree(rig->staging[i], rig->bytes));
        CU_OK(cuMemRelease(rig->handle[i]));
        CU_OK(cuMemFree(rig->epochs[i]));
        CU_OK(cuMemFreeHost(rig->control[i]));
    }
}

static CUfunction find_function(struct rig *rig, int i, int kernel, int datatype) {
    CUfunction *known = &rig->function[i][kernel][datatype], found;
    char symbol[128];
    CHECK(bl_kernel_symbol(kernel, datatype, rig->part->count, symbol, sizeof symbol) == 0);
    for (int m = 0; m < bl_fatbin_count && !*known; m++)
        if (cu.cuModuleGetFunction(&found, rig->module[i][m], symbol) == CUDA_SUCCESS) *known = found;
    if (*known && bl_kernel_memory(kernel, BL_MAX_THREADS))
        CU_OK(cuFuncSetAttribute(
            *known, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
            (int)bl_kernel_memory(kernel, bl_kernel_threads_in(kernel, BL_MAX_THREADS, UINT64_MAX))));
    CHECK(*known, "no kernel %s", symbol);
    return *known;
}

/* Fills in the messages; returns the bytes of all, in whole lines. */
static uint64_t fill_batch(struct bl_batch_args *args, const struct call *calls, int messages, int i) {
    const uint64_t line = bl_collective_line(calls[0].collective);
    uint64_t lines = 0, of_root[BL_MAX_RANKS] = {0};
    for (int m = 0; m < messages; m++) {
        const uint64_t bytes = calls[m].count * bl_datatype_size(calls[m].datatype);
        const uint64_t elements = bl_collective_has(calls[m].collective, BL_REDUCES) ? calls[m].count : bytes;
        uint64_t *const place = &of_root[calls[m].root];
        args->message[m] = (struct bl_batch_message){(void *)call_sendbuff(&calls[m], i),
                                                     (void *)call_recvbuff(&calls[m], i), elements, *place};
        args->root[m] = (uint8_t)calls[m].root;
        args->roots |= 1u << calls[m].root;
        args->in_place |= calls[m].in_place;
        args->first_line[m] = (uint32_t)lines;
        lines += bl_lines_of(bytes, line);
        *place += bl_lines_of(bytes, line);
        if (args->span < *place) args->span = (uint32_t)*place;
    }
    for (int m = messages; m < BL_BATCH_MAX; m++) args->first_line[m] = UINT32_MAX;
    args->lines = (uint32_t)lines;
    return lines * line;
}

/* The same of calls of several collectives, of which all-reduces go in two shots if said so, however short. */
static uint64_t fill_mixed(struct bl_batch_args *args, const struct call *calls, int messages, int i, bool twoshot) {
    struct bl_mixed all;
    struct bl_mixed_fill fill;
    bl_mixed_begin(&all, (int)args->common.nranks);
    for (int m = 0; m < messages; m++)
        bl_mixed_count(&all, calls[m].collective, (unsigned)calls[m].root,
                       calls[m].count * bl_datatype_size(calls[m].datatype));
    CHECK(all.messages <= BL_BATCH_MAX);
    bl_mixed_fill_begin(&fill, args, &all);
    for (int m = 0; m < messages; m++)
        bl_mixed_fill_add(&fill, calls[m].collective, (unsigned)calls[m].root, (void *)call_sendbuff(&calls[m], i),
                          (void *)call_recvbuff(&calls[m], i), calls[m].count * bl_datatype_size(calls[m].datatype));
    for (unsigned m = 0; m < all.messages && twoshot; m++)
        if (args->root[m] / BL_MAX_RANKS == BL_MIXED_ONESHOT) {
            args->root[m] = BL_MIXED_TWOSHOT * BL_MAX_RANKS;
            args->shared = true;
        }
    return all.lines * BL_FLAGGED_DATA;
}

static unsigned divide_up(unsigned a, unsigned b) {
    return (a + b - 1) / b;
}

/* Puts one end of a call behind the stream's other messages. */
static void add_end(struct bl_pairs_args *args, struct bl_pairs_stream *stream, const struct call *call, int i,
                    bool sends) {
    args->message[stream->first + stream->messages++] =
        (struct bl_pairs_message){sends ? (void *)call_sendbuff(call, i) : (void *)call_recvbuff(call, i),
                                  call->count * bl_datatype_size(call->datatype), stream->quads};
}

static void count_end(struct bl_pairs_args *args, struct bl_pairs_stream *stream, const struct call *call) {
    stream->quads += bl_pair_quads(call->count * bl_datatype_size(call->datatype));
    stream->warps = (uint16_t)bl_pair_warps(&args->common.layout, stream->quads);
}

static struct bl_pairs_stream *next_stream(struct bl_pairs_args *args, enum bl_pair_kind kind, int peer) {
    const struct bl_pairs_stream *last = args->streams ? &args->stream[args->streams - 1] : NULL;
    struct bl_pairs_stream *stream = &args->stream[args->streams++];
    CHECK(args->streams <= BL_PAIR_STREAMS);
    *stream = (struct bl_pairs_stream){
        .first = last ? (uint8_t)(last->first + last->messages) : 0, .kind = (uint8_t)kind, .peer = (uint8_t)peer};
    return stream;
}

/* The messages of one direction, one behind the other. */
static void fill_stream(struct bl_pairs_args *args, const struct call *calls, int messages, int i, bool sends) {
    const int ranks = (int)args->common.nranks;
    struct bl_pairs_stream *stream =
        next_stream(args, sends ? BL_PAIR_SEND : BL_PAIR_RECV, (i + (sends ? 1 : ranks - 1)) % ranks);
    for (int m = 0; m < messages; m++) {
        if (calls[m].to_itself) continue;
        add_end(args, stream, &calls[m], i, sends);
        count_end(args, stream, &calls[m]);
    }
    const unsigned peer = stream->peer, sender = sends ? (unsigned)i : peer, receiver = sends ? peer : (unsigned)i;
    stream->ring = args->common.staging[receiver] + bl_pair_ring(&args->common.layout, sender, receiver);
    stream->credit =
        (uint64_t *)(void *)(args->common.staging[sender] + bl_pair_credit(&args->common.layout, receiver));
}

static void fill_copy(struct bl_pairs_args *args, const struct call *call, int i) {
    struct bl_pairs_stream *stream = next_stream(args, BL_PAIR_COPY, i);
    add_end(args, stream, call, i, true);
    add_end(args, stream, call, i, false);
    count_end(args, stream, call);
}

/* Whether each stream gets by with so many warps if each has two quads, none of which share a channel. */
static bool comes_in_twos(const struct bl_pairs_args *args, unsigned most) {
    bool twos = true;
    for (unsigned s = 0; s < args->streams; s++) {
        const uint64_t quads = args->stream[s].quads;
        twos = twos && quads <= args->channels && args->streams * (quads + 1) / 2 <= most;
    }
    return twos;
}

/* A round of all ranks, of each call: to the next one, and from the one before, or from each to itself.  Streams have equal shares
 * of the warps at most; the grid is as large as these are. */
static void fill_pairs(struct bl_pairs_args *args, const struct call *calls, int messages, int i,
                       CUlaunchConfig *config) {
    const unsigned per_block = config->blockDimX / 32, most = config->gridDimX * per_block;
    unsigned warps = 0;
    int copies = 0;
    CHECK(2 * messages <= BL_PAIR_MESSAGES);
    for (int m = 0; m < messages; m++) copies += calls[m].to_itself;
    args->streams = 0;
    args->channels = (uint16_t)bl_pair_channels(&args->common.layout);
    args->lap_log2 = (uint16_t)bl_pair_lap_log2(&args->common.layout);
    for (int sends = 1; sends >= 0 && copies < messages; sends--) fill_stream(args, calls, messages, i, sends);
    args->pairs = args->streams;
    args->pairs_log2 = args->pairs / 2;
    for (int m = 0; m < messages; m++)
        if (calls[m].to_itself) fill_copy(args, &calls[m], i);
    const bool twos = comes_in_twos(args, most);
    for (unsigned s = 0; s < args->streams; s++) {
        struct bl_pairs_stream *stream = &args->stream[s];
        if (twos && args->streams * stream->warps > most) stream->warps = (uint16_t)((stream->quads + 1) / 2);
        for (unsigned widest = args->channels / 2; widest && args->streams * stream->warps > most; widest /= 2)
            if (stream->warps > widest) stream->warps = (uint16_t)widest;
        stream->first_warp = (uint16_t)warps;
        memset(&args->warp_stream[warps], (int)s, stream->warps);
        warps += stream->warps;
    }
    config->gridDimX = divide_up(warps, per_block);
    memset(&args->warp_stream[warps], BL_PAIR_STREAMS, config->gridDimX * per_block - warps);
}

unsigned rig_threads(const struct rig *rig, const struct shape *shape) {
    return bl_kernel_threads(shape->kernel, rig->part->count, shape->threads);
}

unsigned rig_blocks(const struct rig *rig, const struct shape *shape, uint64_t bytes) {
    return bl_kernel_blocks(shape->kernel, rig->part->count, bytes, rig_threads(rig, shape), shape->most_blocks);
}

void rig_launch(struct rig *rig, struct call *calls, const struct shape *shape, int i) {
    struct rank *rank = part_enter(rig->part, i);
    union {
        struct bl_kernel_args common;
        struct bl_batch_args batch;
        struct bl_pairs_args pairs;
    } args = {.common = {
                  .sendbuff = (void *)call_sendbuff(calls, i),
                  .recvbuff = (void *)call_recvbuff(calls, i),
                  .count = calls->count,
                  .stride = calls->count * bl_datatype_size(calls->datatype),
                  .size = (uint32_t)bl_datatype_size(calls->datatype),
                  .rank = (uint32_t)i,
                  .root = (uint32_t)calls->root,
                  .call = bl_kernel_call(shape->kernel, calls->datatype, calls->redop),
                  .nranks = (uint32_t)rig->part->count,
                  .timeout_ns = rig->timeout_ns,
                  .epochs = (uint64_t *)rig->epochs[i],
                  .control = (struct bl_control *)rig->control_there[i],
                  .layout = rig->layout,
              }};
    union {
        struct bl_batch_few_args batch;
        struct bl_pairs_few_args pairs;
    } few;
    bl_set_redop(&args.common, calls->redop);
    for (int r = 0; r < rig->part->count; r++) args.common.staging[r] = (unsigned char *)rig->staging[r];
    rig_blank(i, args.common.blank);
    if (rig->multicast) {
        args.common.replica = (unsigned char *)rig->multicast->replica[i];
        args.common.multicast = (unsigned char *)rig->multicast->all[i];
        args.common.multicast_words = (uint64_t *)rig->multicast->words[i];
    }
    const bool pairs = bl_kernel_pairs(shape->kernel), batch = bl_kernel_batch(shape->kernel);
    bool is_few = pairs ? !batch : bl_kernel_few(shape->kernel);
    const uint64_t bytes = bl_kernel_mixed(shape->kernel)
                               ? fill_mixed(&args.batch, calls, shape->messages, i, shape->twoshot)
                           : batch && !pairs ? fill_batch(&args.batch, calls, shape->messages, i)
                                             : calls->count * bl_datatype_size(calls->datatype);
    CUlaunchAttribute early = {.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION,
                               .value.programmaticStreamSerializationAllowed = 1};
    struct shape here = *shape;
    int kernel = shape->kernel;
    if (i % 2 && shape->odd_blocks) here.most_blocks = shape->odd_blocks;
    CUlaunchConfig config = {.gridDimX = rig_blocks(rig, &here, bytes),
                             .gridDimY = 1,
                             .gridDimZ = 1,
                             .blockDimX = rig_threads(rig, shape),
                             .blockDimY = 1,
                             .blockDimZ = 1,
                             .sharedMemBytes = (unsigned)bl_kernel_memory(kernel, rig_threads(rig, shape)),
                             .hStream = rank->stream[0],
                             .attrs = &early,
                             .numAttrs = 1};
    if (pairs) {
        fill_pairs(&args.pairs, calls, shape->messages, i, &config);
        kernel = bl_pairs_kernel(&args.pairs, is_few);
        CHECK(!is_few || !bl_kernel_batch(kernel) || bl_kernel_short(kernel), "more messages than few");
        if (shape->general) kernel = shape->kernel;
        is_few = !bl_kernel_batch(kernel);
        if (is_few) bl_pairs_few(&few.pairs, &args.pairs);
    } else if (is_few) {
        bl_batch_few(&few.batch, &args.batch);
    }
    void *parameters[] = {is_few ? (void *)&few : &args}; /* a kernel for one message takes the beginning */
    CU_OK(cuLaunchKernelEx(&config, find_function(rig, i, kernel, calls->datatype), parameters, NULL));
}

int rig_failed(const struct rig *rig) {
    for (int i = 0; i < rig->part->count; i++)
        if (__atomic_load_n(&rig->control[i]->error, __ATOMIC_ACQUIRE)) return i;
    return -1;
}

void rig_drain(struct rig *rig) {
    for (int i = 0; i < rig->part->count; i++) {
        struct rank *rank = part_enter(rig->part, i);
        CUresult status;
        for (int s = 0; s < BOX_STREAMS; s++)
            while ((status = cu.cuStreamQuery(rank->stream[s])) != CUDA_SUCCESS) {
                if (status != CUDA_ERROR_NOT_READY) FAIL("rank %d, stream %d: CUDA error %d", i, s, status);
                for (int r = 0; r < rig->part->count && rig_failed(rig) >= 0; r++)
                    __atomic_store_n(&rig->control[r]->abort, 1, __ATOMIC_RELAXED);
                nanosleep(&(struct timespec){.tv_nsec = 20000}, NULL);
            }
    }
}

void rig_expect_no_error(const struct rig *rig) {
    const int i = rig_failed(rig);
    if (i >= 0)
        FAIL("rank %d: error %u: rank %u did not send, launch %llu, %s", i, rig->control[i]->error,
             rig->control[i]->waiting_peer, (unsigned long long)rig->control[i]->waiting_launch,
             bl_kernel_name((int)(rig->control[i]->waiting_call & 0xff)));
}
