/* kernels.c - the kernels alone, launched as kernels.h says, without NCCL and the library: what a job cannot reach.
 *
 *   kernels -n N ... NAME      one process, one thread, all ranks
 *
 *   shapes      every algorithm, grid and datatype after any other on the same staging; grids may differ between ranks
 *   alignments  every algorithm with every alignment of either buffer, with counts next to the edges of words and lines
 *   blanks      data that is nearly what places hold while nothing has come
 *   longest     every algorithm with as long a message as there is room for, of whole lines, by grids of few threads and of many
 *   epochs      epochs that start next to the wrap of 32 bits and to the last that there are
 *   late        ranks whose launches come late
 *   places      so, of grids that are resident as a whole on odd ranks only, crews too: `--sms 4`, which hold PLACES blocks
 *   multicast   so, of the kernels on a multicast object alone, one upon the other
 *   oneway      so, of broadcasts and reduces on the least staging
 *   pairs       so, of messages between two ranks, on rings of several lengths
 *   bulk        so, of long messages in pieces on the shortest rings
 *   wide        messages between two ranks whose streams have more than a hundred warps: `--sms 64 --block 256`
 *   full        long messages by grids of nearly all multiprocessors, which some kernels have other code for than for few blocks: `--sms 64 --block 256`
 *   far         batches that touch more than a cache holds, of three and four ranks, whose reduce-scatters are other code then
 *   timeout     waits that outlast their limit
 *   abort       the way out of a wait
 *   stopped     launches of a device that was told to stop before
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "long.h"
#include "reference.h"
#include "trial.h"

enum { ONE_WAY_LAUNCHES = POOL }; /* of a salvo, at most */

static const uint64_t LONG_WAIT_NS = 100000000; /* after which a wait without a limit is told, too: staging.cuh */

/* Counts of `size` bytes each, at most one next to the edges of the first 17 words and of some lines. */
static int edge_counts(size_t line, size_t size, int ranks, size_t *count) {
    const size_t lines[] = {2 * line, line * (size_t)ranks, line * (size_t)ranks + line, 2 * line * (size_t)ranks};
    int n = 0;
    for (size_t k = 0; k < 18 + sizeof lines / sizeof *lines; k++) {
        const size_t elements = (k < 18 ? 8 * k : lines[k - 18]) / size;
        for (size_t c = elements ? elements - 1 : 1; c <= elements + 1; c++)
            if (c) count[n++] = c;
    }
    return n;
}

/* One call of every alignment that the element size has, and so on round the counts until each had some. */
static void alignments_of(struct trial *trial, const struct options *o, int kernel, int datatype) {
    enum { MOST_EDGES = 80, CALLS = 8 };
    const unsigned size = (unsigned)ref_datatype_size(datatype), classes = 8 / size;
    const unsigned places = classes * classes + classes; /* in place, the alignments are one */
    size_t count[MOST_EDGES];
    const int counts = edge_counts(bl_kernel_line(kernel), size, trial->rig.part->count, count);
    const long each = o->calls ? o->calls : 4, all = (long)places * each > counts ? (long)places * each : counts;
    struct call calls[CALLS] = {0};
    struct shape shape = {.kernel = kernel, .threads = 64, .most_blocks = 2, .messages = 1};
    for (int k = 0; k < CALLS; k++)
        call_allocate(trial->rig.part, &calls[k],
                      (2 * BL_LINE_DATA * BOX_RANKS + 8) *
                          (bl_kernel_mixed(kernel) || collective_has_blocks(bl_kernel_collective(kernel))
                               ? (size_t)trial->rig.part->count
                               : 1));
    for (long done = 0; done < all;) {
        int n = 0;
        for (; n < CALLS && done < all; n++, done++) {
            const unsigned place = (unsigned)(done % places), turn = (unsigned)(done / places);
            struct call *call = &calls[n];
            call->collective = trial_collective(trial, kernel);
            call->datatype = datatype;
            do call->redop = (int)ref_below(&trial->state, REF_REDOPS);
            while (!trial_covers(trial, kernel, datatype, call->redop));
            call->seed = trial_seed(kernel, call->redop, ref_next(&trial->state));
            call->count = count[(done + done / counts * 7) % counts];
            call->to_itself = is_paired(kernel) && (place / 2 + turn) % 2;
            shape.general = is_paired(kernel) && (place + turn + turn / 2) % 2;
            shape.twoshot = bl_kernel_mixed(kernel) && (place + turn) % 2;
            call->in_place = place >= classes * classes;
            call->send_offset = place % classes * size;
            call->recv_offset = place / classes % classes * size;
            call->skew = turn % 2 ? (unsigned)ref_below(&trial->state, classes) * size : 0;
            call_prepare(trial->rig.part, call);
            for (int i = 0; i < trial->rig.part->count; i++) rig_launch(&trial->rig, call, &shape, i);
        }
        rig_drain(&trial->rig);
        rig_expect_no_error(&trial->rig);
        for (int k = 0; k < n; k++) call_check(trial->rig.part, &calls[k]);
    }
    for (int k = 0; k < CALLS; k++) call_free(trial->rig.part, &calls[k]);
}

/* --- words of a rank's blank, in all ways but that which is the blank itself --- */

static uint64_t nearly_blank(const struct part *part, uint64_t word) {
    enum { LINE = BL_LINE_DATA / 8, WAYS = 4 };
    const uint64_t line = word / LINE, way = line % WAYS;
    const bool first = word % LINE < LINE / 2; /* of a cell's two words */
    uint64_t blank[2];
    rig_blank((int)(line / WAYS % (uint64_t)part->count), blank);
    if (way < 2) return blank[way];
    return way == 2 ? blank[first] : first ? blank[0] : blank[1] ^ 1;
}

/* Each rank's in all ways, and some. */
static int nearly_blank_words(const struct part *part) {
    return 4 * part->count * BL_LINE_DATA / 8 + 5;
}

static void blanks_of(struct trial *trial, int kernel, bool in_place, uint64_t *words, uint64_t *got) {
    enum { LAUNCHES = 3 };
    struct part *const part = trial->rig.part;
    const int collective = (int)bl_kernel_collective(kernel), ranks = part->count;
    const int COUNT = nearly_blank_words(part);
    const int sent = bl_collective_has(collective, BL_SCATTERS) ? ranks : 1,
              received = bl_collective_has(collective, BL_GATHERS) ? ranks : 1;
    const struct shape shape = {.kernel = kernel, .threads = 64, .most_blocks = 2, .messages = 1};
    struct call call = {.collective = collective,
                        .datatype = BL_UINT64,
                        .redop = BL_MAX,
                        .count = (size_t)COUNT,
                        .in_place = in_place,
                        .seed = 1};
    call_prepare(part, &call);
    for (int w = 0; w < COUNT * ranks; w++) words[w] = nearly_blank(part, (uint64_t)(w % COUNT));
    for (int k = 0; k < LAUNCHES; k++) {
        for (int i = 0; i < ranks; i++) {
            struct rank *const rank = part_enter(part, i);
            if (!in_place)
                CU_OK(cuMemsetD8Async(call_recvbuff(&call, i), 0, (size_t)(received * COUNT) * sizeof *got,
                                      rank->stream[0]));
            CU_OK(cuStreamSynchronize(rank->stream[0]));
            box_upload(call_sendbuff(&call, i), words, (size_t)(sent * COUNT) * sizeof *words);
        }
        rig_settle(&trial->rig);
        for (int i = 0; i < ranks; i++) rig_launch(&trial->rig, &call, &shape, i);
        rig_drain(&trial->rig);
        rig_expect_no_error(&trial->rig);
        for (int i = 0; i < ranks; i++) {
            CU_OK(cuMemcpyDtoH(got, call_recvbuff(&call, i), (size_t)(received * COUNT) * sizeof *got));
            for (int w = 0; w < received * COUNT; w++)
                CHECK(got[w] == words[w], "%s: word %d of rank %d", bl_kernel_name(kernel), w, i);
        }
    }
    call_free(part, &call);
}

static void blanks(struct part *part, const struct options *o) {
    const size_t most = (size_t)(nearly_blank_words(part) * part->count);
    uint64_t *const words = malloc(2 * most * sizeof *words);
    struct trial trial;
    CHECK(words);
    trial_open(&trial, part, o);
    for (int kernel = 0; kernel < BL_KERNELS; kernel++)
        if (trial_launches(&trial, kernel) && !bl_kernel_batch(kernel) && !bl_kernel_multicast(kernel) &&
            bl_kernel_line(kernel) == BL_LINE_DATA && trial_covers(&trial, kernel, BL_UINT64, BL_MAX))
            for (int in_place = 0; in_place < 1 + (bl_kernel_collective(kernel) == BL_ALLREDUCE); in_place++)
                blanks_of(&trial, kernel, in_place != 0, words, words + most);
    trial_close(&trial);
    free(words);
}

/* --- launches behind a stop: they send nothing, and take nothing of what those before them left --- */

static void stopped(struct part *part, const struct options *o) {
    static const uint64_t left[2] = {1, 2};
    struct trial trial;
    uint64_t blank[2];
    trial_open(&trial, part, o);
    struct rig *const rig = &trial.rig;
    rig_stop(rig, 0);
    rig_fill_lines(rig, 0, left);
    for (int kernel = 0; kernel < BL_KERNELS; kernel++) {
        if (!trial_launches(&trial, kernel) || bl_kernel_line(kernel) != BL_LINE_DATA || bl_kernel_multicast(kernel) ||
            !trial_covers(&trial, kernel, BL_INT32, BL_SUM))
            continue;
        for (unsigned blocks = 1; blocks < 20; blocks += 9) { /* crews, too */
            struct call call = {.collective = bl_kernel_collective(kernel),
                                .datatype = BL_INT32,
                                .count = 3000 / (size_t)part->count,
                                .seed = trial_seed(kernel, BL_SUM, 1)};
            const struct shape shape = {.kernel = kernel, .threads = 64, .most_blocks = blocks, .messages = 1};
            call_prepare(part, &call);
            rig_settle(rig);
            rig_launch(rig, &call, &shape, 0);
            CU_OK(cuStreamSynchronize(part_enter(part, 0)->stream[0]));
            call_free(part, &call);
        }
    }
    rig_check_lines(rig, 0, left);
    for (int i = 1; i < part->count; i++) {
        rig_blank(i, blank);
        rig_check_lines(rig, i, blank);
    }
    rig->torn = true;
    trial_close(&trial);
}

/* --- what main chooses from --- */

static void shapes(struct part *part, const struct options *o) {
    struct trial trial;
    trial_open(&trial, part, o);
    trial_salvos(&trial, o, false);
    trial_close(&trial);
}

static void alignments(struct part *part, const struct options *o) {
    static const int datatypes[] = {BL_UINT8, BL_FLOAT8E5M2, BL_BFLOAT16, BL_FLOAT32, BL_INT64};
    struct trial trial;
    trial_open(&trial, part, o);
    for (int kernel = 0; kernel < BL_KERNELS; kernel++)
        for (size_t d = 0; d < sizeof datatypes / sizeof *datatypes && trial_launches(&trial, kernel); d++) {
            if (d > 0 && strstr(bl_kernel_name(kernel), ":warps"))
                break; /* bytes have every alignment that others have */
            if (trial_covers(&trial, kernel, datatypes[d], BL_SUM) && (d == 0 || bl_kernel_reduces(kernel)))
                alignments_of(&trial, o, kernel, datatypes[d]);
        }
    trial_close(&trial);
}

static void late(struct part *part, const struct options *o) {
    struct trial trial;
    trial_open(&trial, part, o);
    trial_salvos(&trial, o, true);
    trial_close(&trial);
}

static void places(struct part *part, const struct options *o) {
    struct trial trial;
    trial_open(&trial, part, o);
    trial.few_places = true;
    trial.least_scale = 12;
    trial_salvos(&trial, o, true);
    trial_close(&trial);
}

static void multicast(struct part *part, const struct options *o) {
    struct trial trial;
    trial_open(&trial, part, o);
    CHECK(trial.rig.multicast, "only on an emulated box of topology nvls");
    trial.only = bl_kernel_multicast;
    trial.last_kernel = BL_KERNEL_ALLREDUCE_ONESHOT_NVLS;
    /* A half that never changes shows in one salvo of some.  Of many ranks one is enough, and as much as a box has stacks for. */
    for (int k = 0; k < (part->box->nranks > 4 ? 1 : 6); k++) trial_salvos(&trial, o, true);
    trial_close(&trial);
}

/* One launch of each of several collectives after another by rank 0, which receives nothing of them, while the others come later: more than the rings
 * hold, of which each is told as soon as it is over, or where they have few lines, when the next begins. */
static void run_ahead(struct trial *trial, int kernel, unsigned warps, size_t lines) {
    enum { LAUNCHES = 16 };
    struct part *part = trial->rig.part;
    const struct shape shape = {.kernel = kernel, .threads = 32, .most_blocks = warps, .messages = 2};
    struct call calls[LAUNCHES][2] = {0};
    for (int k = 0; k < LAUNCHES; k++)
        for (int m = 0; m < 2; m++) {
            struct call *call = &calls[k][m];
            *call = (struct call){.collective = m ? BL_REDUCE : BL_BROADCAST,
                                  .datatype = BL_INT32,
                                  .count = lines * BL_FLAGGED_DATA / sizeof(int32_t),
                                  .seed = ref_next(&trial->state)};
            while (call_root(part, call) != m) call->seed++;
            call_prepare(part, call);
        }
    for (int i = 0; i < part->count; i++) {
        for (int k = 0; k < LAUNCHES; k++) rig_launch(&trial->rig, calls[k], &shape, i);
        nanosleep(&(struct timespec){.tv_nsec = i ? 0 : 2000000}, NULL);
    }
    rig_drain(&trial->rig);
    rig_expect_no_error(&trial->rig);
    for (int k = 0; k < LAUNCHES; k++)
        for (int m = 0; m < 2; m++) {
            call_check(part, &calls[k][m]);
            call_free(part, &calls[k][m]);
        }
}

/* On rings that a few launches fill. */
static void oneway(struct part *part, const struct options *o) {
    struct trial trial;
    trial_open_on(&trial, part, o, bl_staging_minimum(part->count));
    trial.only = is_one_way;
    trial.launches = ONE_WAY_LAUNCHES;
    trial.least_scale = 8;
    trial.most_late_ns = 20000000;
    trial.last_kernel = BL_KERNEL_BROADCAST_LL128;
    rig_set_epochs(&trial.rig, 0, 0xfffffff0u);
    for (int k = 0; k < 6; k++) trial_salvos(&trial, o, k % 2);
    static const struct {
        unsigned warps;
        size_t lines;
    } ahead[] = {{2, 8}, {4, 8}, {1, 4}, {2, 4}}; /* some lines for a group of lanes, and one for each */
    for (size_t k = 0; k < sizeof ahead / sizeof *ahead; k++) {
        run_ahead(&trial, BL_KERNEL_MIXED_LL128_BATCH, ahead[k].warps, ahead[k].lines);
        run_ahead(&trial, BL_KERNEL_MIXED_LL128_FEW, ahead[k].warps, ahead[k].lines);
    }
    trial_close(&trial);
}

/* On the shortest rings, which the larger messages go round some times. */
static void bulk(struct part *part, const struct options *o) {
    uint64_t staging = bl_staging_minimum(part->count);
    struct bl_staging_layout layout;
    struct trial trial;
    while (bl_staging_plan(&layout, part->count, staging, BL_WITH_PIECES, true) || !layout.bulk_bytes)
        staging += 64 << 10;
    trial_open_on(&trial, part, o, staging);
    trial.only = bl_kernel_bulk;
    trial.launches = 3;
    trial.most_bytes = 8 * layout.bulk_bytes;
    trial.least_scale = 4;
    trial.last_kernel = BL_KERNEL_ALLREDUCE_BULK;
    rig_set_epochs(&trial.rig, 0, 0xfffffff0u);
    trial_salvos(&trial, o, false);
    trial_salvos(&trial, o, true);
    trial_close(&trial);
}

static void epochs(struct part *part, const struct options *o) {
    static const uint64_t start[] = {0xfffffff0u, 0x1fffffff8u, 0x7fffffff00000000u, 0x7ffffffffffff000u};
    for (size_t k = 0; k < sizeof start / sizeof *start; k++) {
        struct trial trial;
        trial_open(&trial, part, o);
        /* and the rings just before they begin anew */
        rig_set_epochs(&trial.rig, start[k],
                       start[k] / trial.rig.layout.oneway_lines * trial.rig.layout.oneway_lines - 1);
        trial_salvos(&trial, o, k % 2);
        trial_close(&trial);
    }
}

/* --- rank 0 calls, the others late or never --- */

enum { AFTERWARDS = 40 }; /* launches */

typedef void one_call(struct trial *trial, struct call *call, const struct shape *shape);

/* On a rig of its own; each rank's first call is prepared. */
static void one_kernel(struct part *part, const struct options *o, uint64_t timeout_ns, const struct shape *shape,
                       int collective, one_call *run) {
    struct trial trial;
    struct call call = {.collective = collective, .datatype = BL_INT32, .count = 100, .seed = 1};
    if (bl_kernel_mixed(shape->kernel)) call.count = 400; /* of whose lines each of some ranks has a share */
    trial_open(&trial, part, o);
    trial.rig.timeout_ns = timeout_ns;
    if (trial_launches(&trial, shape->kernel)) {
        do { /* until the root is one with which rank 0 waits */
            call.seed++;
            call_prepare(part, &call);
        } while (is_one_way(shape->kernel) && (call.root == 0) != (call.collective == BL_REDUCE));
        run(&trial, &call, shape);
        call_free(part, &call);
    }
    trial_close(&trial);
}

/* Of each kernel; where another may stand for it, of both; of those for several collectives what has a way of its own to wait. */
static void each_kernel(struct part *part, const struct options *o, uint64_t timeout_ns, one_call *run) {
    static const int mixed[] = {BL_REDUCE, BL_BROADCAST, BL_ALLREDUCE, BL_ALLTOALL};
    for (int of = 0; of < 2 * BL_KERNELS; of++) {
        const int kernel = of / 2;
        struct shape shape = {.kernel = kernel, .threads = 64, .most_blocks = 2, .messages = 1, .general = of % 2};
        if (!rig_launches(kernel) || (shape.general && !is_paired(kernel))) continue;
        if (!bl_kernel_mixed(kernel)) one_kernel(part, o, timeout_ns, &shape, bl_kernel_collective(kernel), run);
        shape.twoshot = true;
        for (int k = 0; k < 4 && bl_kernel_mixed(kernel); k++)
            if (!collective_has_blocks(mixed[k]) || part->box->nranks <= BL_BATCH_FEW)
                one_kernel(part, o, timeout_ns, &shape, mixed[k], run);
    }
}

static bool runs(const struct trial *trial, int rank) {
    struct rank *r = part_enter(trial->rig.part, rank);
    const CUresult status = cu.cuStreamQuery(r->stream[0]);
    if (status != CUDA_SUCCESS && status != CUDA_ERROR_NOT_READY) FAIL("rank %d: CUDA error %d", rank, status);
    return status == CUDA_ERROR_NOT_READY;
}

/* Until the rank says that it waits, longer than it said last. */
static void await_report(const struct trial *trial, int rank, const struct shape *shape, uint64_t last_beat) {
    while (__atomic_load_n(&trial->rig.control[rank]->beat, __ATOMIC_ACQUIRE) == last_beat) {
        CHECK(runs(trial, rank), "%s: rank %d did not wait", bl_kernel_name(shape->kernel), rank);
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
}

static void check_report(const struct trial *trial, int rank, const struct shape *shape, const struct call *call,
                         uint64_t launch) {
    const struct bl_control *control = trial->rig.control[rank];
    const char *name = bl_kernel_name(shape->kernel);
    CHECK(control->waiting_peer != (uint32_t)rank && control->waiting_peer < (uint32_t)trial->rig.part->count,
          "%s: peer %u", name, control->waiting_peer);
    CHECK(control->waiting_call == bl_kernel_call(shape->kernel, call->datatype, call->redop), "%s: call %x", name,
          control->waiting_call);
    CHECK(control->waiting_count == call->count, "%s: count %llu", name, (unsigned long long)control->waiting_count);
    CHECK(control->waiting_launch == launch, "%s: launch %llu", name, (unsigned long long)control->waiting_launch);
}

static _Atomic bool told_soon; /* by any kernel: a busy host may keep each of them waiting */

/* A limit that is over is told, and nothing else: the peers come, and the results are right. */
static void come_late(struct trial *trial, struct call *call, const struct shape *shape) {
    struct rig *rig = &trial->rig;
    const struct bl_control *control = rig->control[0];
    rig_launch(rig, call, shape, 0);
    await_report(trial, 0, shape, 0);
    CHECK(control->waited_ns > rig->timeout_ns, "%s: told after %llu ns", bl_kernel_name(shape->kernel),
          (unsigned long long)control->waited_ns);
    told_soon |= control->waited_ns < LONG_WAIT_NS;
    const uint64_t beat = control->beat;
    await_report(trial, 0, shape, beat); /* it waits on */
    check_report(trial, 0, shape, call, 1);
    CHECK(control->error == BL_KERNEL_TIMEOUT && !control->abort, "%s: error %u, abort %u",
          bl_kernel_name(shape->kernel), control->error, control->abort);
    rig->timeout_ns = 0;
    for (int i = 1; i < rig->part->count; i++) rig_launch(rig, call, shape, i);
    part_drain(rig->part);
    call_check(rig->part, call);
    for (int i = 1; i < rig->part->count; i++) CHECK(!rig->control[i]->error);
}

static void timeout(struct part *part, const struct options *o) {
    each_kernel(part, o, 2000000, come_late);
    CHECK(told_soon, "none of the kernels told of its limit sooner than of a long wait");
}

/* Who has no limit tells of its wait all the same.  Whoever is told to leave does, and sends nothing in the launches after
 * that: peers wait, rather than take what was made of data that never came. */
static void leave_wait(struct trial *trial, struct call *call, const struct shape *shape) {
    struct rig *rig = &trial->rig;
    const int ranks = rig->part->count;
    rig_launch(rig, call, shape, 0);
    await_report(trial, 0, shape, 0);
    check_report(trial, 0, shape, call, 1);
    for (int k = 0; k < AFTERWARDS; k++) rig_launch(rig, call, shape, 0);
    __atomic_store_n(&rig->control[0]->abort, 1, __ATOMIC_RELAXED);
    while (runs(trial, 0))
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL); /* or the time limit of the case ends it */
    CHECK(!rig->control[0]->error);
    rig->torn = true;
    if (is_one_way(shape->kernel)) return; /* rank 0 sends nothing in any case */
    for (int i = 1; i < ranks; i++)
        for (int k = 0; k < 2; k++) rig_launch(rig, call, shape, i);
    const int waiting = is_paired(shape->kernel) ? 2 : ranks; /* what rank 1 sends comes to the others */
    for (int i = 1; i < waiting; i++) {
        await_report(trial, i, shape, 0);
        CHECK(rig->control[i]->waiting_launch <= 2);
        __atomic_store_n(&rig->control[i]->abort, 1, __ATOMIC_RELAXED);
    }
    part_drain(rig->part);
}

static void leave(struct part *part, const struct options *o) {
    each_kernel(part, o, 0, leave_wait);
}

/* Streams of a hundred warps and more, as many as quads or a power of two, round a ring of BL_PAIR_CHANNELS, ahead of a
 * rank that is late. */
static void wide(struct part *part, const struct options *o) {
    enum { QUAD = BL_QUAD * BL_FLAGGED_DATA, ROUND = 8, ROUNDS = 6 };
    struct call calls[ROUND] = {0};
    struct shape shape[ROUND];
    struct trial trial;
    uint64_t more = 0;
    trial_open_on(&trial, part, o, bl_staging_minimum(part->count));
    while (bl_pair_channels(&trial.rig.layout) < BL_PAIR_CHANNELS) {
        trial_close(&trial);
        trial_open_on(&trial, part, o, bl_staging_minimum(part->count) + (more += 4 << 20));
    }
    rig_set_epochs(&trial.rig, 0, 0xfffffff0u);
    for (int k = 0; k < ROUND; k++) call_allocate(part, &calls[k], 320 * QUAD);
    for (int round = 0; round < ROUNDS; round++) {
        const int late = round % part->count;
        for (int k = 0; k < ROUND; k++) {
            uint64_t *s = &trial.state;
            shape[k] =
                (struct shape){.kernel = BL_KERNEL_SENDRECV_LL128, .threads = 256, .most_blocks = 128, .messages = 1};
            if (ref_below(s, 2)) shape[k].odd_blocks = 40 + (unsigned)ref_below(s, 88);
            calls[k].collective = BL_SENDRECV;
            calls[k].datatype = BL_UINT8;
            calls[k].seed = ref_next(s);
            calls[k].send_offset = (unsigned)ref_below(s, 9);
            calls[k].recv_offset = (unsigned)ref_below(s, 9);
            calls[k].count = (100 + ref_below(s, 170)) * QUAD - ref_below(s, QUAD);
            call_prepare(part, &calls[k]);
        }
        for (int i = 1; i <= part->count; i++) {
            if (i == part->count) nanosleep(&(struct timespec){.tv_nsec = 3000000}, NULL);
            for (int k = 0; k < ROUND; k++) rig_launch(&trial.rig, &calls[k], &shape[k], (late + i) % part->count);
        }
        rig_drain(&trial.rig);
        rig_expect_no_error(&trial.rig);
        for (int k = 0; k < ROUND; k++) call_check(part, &calls[k]);
    }
    for (int k = 0; k < ROUND; k++) call_free(part, &calls[k]);
    trial_close(&trial);
}

/* On rings of one channel, of some, and of many; and a message of nothing, which is waited for. */
static void pairs(struct part *part, const struct options *o) {
    static const uint64_t more[] = {0, 1 << 20, 8 << 20};
    struct call nothing = {.collective = BL_SENDRECV, .datatype = BL_INT32, .seed = 1};
    struct trial trial;
    for (size_t k = 0; k < sizeof more / sizeof *more; k++) {
        trial_open_on(&trial, part, o, bl_staging_minimum(part->count) + more[k]);
        trial.only = is_paired;
        trial.launches = ONE_WAY_LAUNCHES;
        trial.least_scale = k ? 0 : 8;
        trial.most_late_ns = 5000000;
        trial.last_kernel = BL_KERNEL_SENDRECV_LL128;
        rig_set_epochs(&trial.rig, 0, 0xfffffff0u);
        trial_salvos(&trial, o, false);
        trial_salvos(&trial, o, true);
        trial_close(&trial);
    }
    for (int general = 0; general < 2; general++) {
        const struct shape shape = {
            .kernel = BL_KERNEL_SENDRECV_LL128, .threads = 64, .most_blocks = 2, .messages = 1, .general = general};
        trial_open(&trial, part, o);
        call_prepare(part, &nothing);
        rig_launch(&trial.rig, &nothing, &shape, 0);
        await_report(&trial, 0, &shape, 0);
        for (int i = 1; i < part->count; i++) rig_launch(&trial.rig, &nothing, &shape, i);
        rig_drain(&trial.rig);
        call_check(part, &nothing);
        call_free(part, &nothing);
        trial_close(&trial);
    }
}

static const struct {
    const char *name;
    void (*run)(struct part *, const struct options *);
} parts[] = {{"shapes", shapes},       {"alignments", alignments},
             {"longest", longest},     {"late", late},
             {"blanks", blanks},       {"places", places},
             {"oneway", oneway},       {"pairs", pairs},
             {"bulk", bulk},           {"wide", wide},
             {"full", full},           {"far", far},
             {"multicast", multicast}, {"epochs", epochs},
             {"timeout", timeout},     {"abort", leave},
             {"stopped", stopped}};

static void body(struct part *part) {
    const struct options *o = part->box->argument;
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        if (!o->name || strcmp(o->name, parts[i].name) != 0) continue;
        parts[i].run(part, o);
        return;
    }
    FAIL("names: shapes alignments blanks longest late places oneway pairs bulk wide full far multicast epochs timeout "
         "abort stopped");
}

int main(int argc, char **argv) {
    static struct options options;
    options_read(&options, argc, argv);
    box_run_bare(&options.box, body);
    return 0;
}
