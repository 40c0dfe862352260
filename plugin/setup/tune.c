/* tune.c - see steps.h.  On a box whose thresholds nobody has measured the ranks of a new communicator do so, once for each number of ranks:
 * every algorithm against NCCL at a few sizes, on the new communicator's staging and an NCCL communicator of Beeline's own.  Rank 0 keeps what
 * they find where the next communicator, or job, reads it (docs/tuning.md).
 *
 * What fails here ends the measuring on all ranks, and the communicator has the thresholds that there were; only kernels that do not
 * end, or a peer that is gone, end set-up. */
#include "steps.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "vote.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/params.h"
#include "base/why.h"
#include "launch/order.h"
#include "real/real.h"
#include "tune/found.h"
#include "tune/measure.h"
#include "tune/remember.h"

enum { MOST_CALLS = 16, MORE_CALLS = 4, FIRST = 1 << 10, STEP = 4, FEWEST = 4 /* sizes that say something */ };
static const uint64_t ROOM = 64 << 20; /* of each buffer */
static const double HOPELESS = 3, LOST = 1.5, STEADY = 0.02;

/* Of one rank. */
struct bl_tuning {
    struct bl_table candidates; /* a range for each algorithm and spread */
    char path[PATH_MAX];        /* of the cache: rank 0's */
    int lock;
    ncclUniqueId id;
    ncclComm_t baseline;
    struct bl_gauge gauge;
    uint64_t begin;
    bool ours_run; /* kernels of Beeline's may, and not of NCCL's */
    struct bl_found found;
};

/* What all ranks hear of each when it has measured. */
struct heard {
    uint32_t failed;
    double seconds; /* since it began */
    double us[BL_TIMES_WAYS];
};

bool bl_tune_wanted(const struct bl_member *member) {
    return member->comm->table.unmeasured != 0;
}

bool bl_tune_well(const struct bl_member *member) {
    return bl_tune_wanted(member) && member->tuning_verdict.outcome == BL_WELL;
}

const struct bl_table *bl_tune_candidates(const struct bl_member *member) {
    return bl_tune_well(member) ? &member->tuning->candidates : NULL;
}

/* --- whether, and what --- */

/* A bit for each number of ranks that rank 0's process has measured, or has tried to: what there is no time for, or cannot be kept, is not
 * tried with every communicator. */
static atomic_uint tried;

/* Rank 0's word, which goes to the others with its table. */
bool bl_tune_permitted(const struct bl_identity *all, int nranks) {
    char path[PATH_MAX];
    const char *bent = bl_params_nccl_bent();
    const char *why = NULL;
    bl_params_tuning_path(BL_TUNING_CACHE, path, sizeof(path));
    if (!bl_params()->tune)
        why = "BEELINE_TUNE=0";
    else if (bl_params_tuning_built_in())
        why = "BEELINE_TUNING_FILE=built-in";
    else if (bent)
        why = bent;
    else if (bl_identity_least(all, nranks).max_blocks != UINT_MAX)
        why = "its launches are limited (maxCTAs)";
    else if (bl_identity_short(all, nranks) || /* large sizes would go in smaller pieces than elsewhere */
             all[0].staging < BL_STAGING_USUAL)
        why = "its staging is limited";
    else if (!path[0])
        why = "neither XDG_CACHE_HOME nor HOME says where to keep it";
    else if (atomic_load(&tried) >> nranks & 1)
        why = "this process has tried to";
    if (why) bl_info("thresholds of this box with %d ranks are not measured: %s", nranks, why);
    return !why;
}

struct look {
    const struct bl_comm *of;
    bool busy;
};

static void look_at(struct bl_comm *comm, void *arg) {
    struct look *look = arg;
    if (comm == look->of || comm->device != look->of->device) return;
    if (!atomic_load(&comm->active) && !atomic_load(&comm->shares_room)) return;
    if (bl_order_query(comm) == CUDA_ERROR_NOT_READY) look->busy = true;
}

/* Calls of other communicators on this GPU may wait for ranks that wait for us, and take time from what is measured.  0, or -1 and bl_why(). */
static int check_idle(const struct bl_comm *comm) {
    struct look look = {.of = comm};
    if (!bl_context_push(comm)) return bl_fail("its context cannot be made current");
    bl_comm_each(look_at, &look);
    bl_context_pop();
    return look.busy ? bl_fail("calls of another communicator are under way") : 0;
}

/* A row of a tuning file for an algorithm that is tried; 0: it is not. */
static int write_row(char *text, size_t size, const struct bl_algorithm *algorithm, int spread, int nranks, int row) {
    const enum bl_kernel kernel = algorithm->kernel[spread];
    if (kernel == BL_KERNEL_NONE || kernel == BL_KERNEL_ALLGATHER_CE || algorithm->traits & BL_NVLS) return 0;
    return snprintf(text, size, "%s %d %d %s%s\n", bl_collective_name(algorithm->collective), nranks, row,
                    algorithm->name, spread == BL_BY_WARPS ? " spread=warps" : "");
}

/* A table in which each algorithm and spread has a row, so that its range says how it works here. */
static int make_candidates(struct bl_member *member) {
    const struct bl_comm *comm = member->comm;
    char text[4096] = "gpu any\n";
    size_t used = strlen(text);
    int row = 0;
    for (int a = 0; a < bl_algorithm_count; a++)
        for (int spread = 0; spread < BL_SPREADS && used < sizeof(text); spread++)
            used += (size_t)write_row(text + used, sizeof(text) - used, &bl_algorithms[a], spread, comm->nranks, ++row);
    for (int c = 0; c < BL_COLLECTIVES && used < sizeof(text); c++)
        used += (size_t)snprintf(text + used, sizeof(text) - used, "%s %d max nccl\n",
                                 bl_collective_name((enum bl_collective)c), comm->nranks);
    if (used >= sizeof(text)) return bl_fail("too many algorithms");
    const struct bl_tuning_file file = {"all algorithms", text, false};
    const struct bl_settings settings = {.files = &file, .file_count = 1};
    const struct bl_facts facts = bl_tables_facts(member->all, comm->nranks, member->link, &comm->args.layout);
    bl_table_build(&member->tuning->candidates, &facts, &settings, NULL, NULL);
    return 0;
}

int bl_tune_plan(struct bl_member *member) {
    struct bl_tuning *tuning = member->tuning = calloc(1, sizeof(*tuning));
    if (!tuning) return bl_fail("out of host memory");
    tuning->lock = -1;
    const char *bent = bl_params_nccl_bent(); /* here: with NCCL_COMM_BLOCKING=1 nothing would end a wait for a peer */
    if (bent) return bl_fail("%s", bent);
    if (check_idle(member->comm)) return -1;
    if (make_candidates(member)) return -1;
    if (member->comm->rank) return 0;
    bl_params_tuning_path(BL_TUNING_CACHE, tuning->path, sizeof(tuning->path));
    return bl_remember_begin(tuning->path, &tuning->lock);
}

/* --- NCCL's side --- */

int bl_tune_send_id(struct bl_member *member) {
    struct bl_tuning *tuning = member->tuning;
    if (member->comm->rank) return 0;
    atomic_fetch_or(&tried, 1u << member->comm->nranks);
    const int status = bl_baseline_id(&tuning->id);
    bl_step_send(member, BL_STEP_TUNE_ID, &tuning->id, sizeof(tuning->id), -1);
    return status;
}

int bl_tune_receive_id(struct bl_member *member) {
    if (member->comm->rank)
        bl_step_receive(member, 0, BL_STEP_TUNE_ID, &member->tuning->id, sizeof(member->tuning->id), NULL,
                        bl_step_deadline());
    return 0;
}

/* For a call, or what NCCL does: before the peers give up on us. */
static uint64_t deadline(void) {
    return bl_clock_ns() + bl_params()->setup_timeout * 500000000u;
}

/* The members' handles and communicators, side by side, for calls of NCCL. */
struct side {
    struct bl_comm *comms[BL_MAX_RANKS];
    ncclComm_t handles[BL_MAX_RANKS];
    struct bl_gauge gauges[BL_MAX_RANKS];
};

static void gather(struct side *side, struct bl_member **members, int count) {
    for (int i = 0; i < count; i++) {
        side->comms[i] = members[i]->comm;
        side->handles[i] = members[i]->tuning->baseline;
        side->gauges[i] = members[i]->tuning->gauge;
    }
}

/* status: as of bl_measure. */
static void fail_all(struct bl_member **members, int count, int status) {
    for (int i = 0; i < count; i++) {
        const int rank = members[i]->comm->rank;
        bl_verdict_say(&members[i]->tuning_verdict, rank, BL_DECLINED, status == BL_MEASURE_LATE ? -1 : rank, "%s",
                       bl_why());
    }
}

bool bl_tune_open(struct bl_member **members, int count) {
    struct side side;
    ncclComm_t *handles[BL_MAX_RANKS];
    gather(&side, members, count);
    for (int i = 0; i < count; i++) handles[i] = &members[i]->tuning->baseline;
    int status = bl_baseline_open(side.comms, handles, count, &members[0]->tuning->id, bl_step_deadline(),
                                  &members[0]->resources->cancel);
    for (int i = 0; i < count && !status; i++) {
        struct bl_member *member = members[i];
        if (!bl_context_push(member->comm))
            status = bl_fail("its context cannot be made current");
        else {
            status =
                bl_gauge_open(&member->tuning->gauge, member->comm, member->stream, ROOM, &member->resources->cancel);
            if (!status) status = check_idle(member->comm);
            bl_context_pop();
        }
    }
    if (status) fail_all(members, count, status);
    return bl_step_vote(members, count);
}

/* What runs still is told to leave: Beeline's kernels, which cannot be used any more then, before NCCL's communicator is ended, since that may
 * wait for all of the GPU's work. */
static void calm(struct bl_member *member) {
    const uint64_t until = deadline();
    if (member->tuning->ours_run) {
        bl_member_fail(member, BL_FAILED, member->comm->rank, "measuring: kernels did not end");
        __atomic_store_n(&member->comm->control->abort, 1, __ATOMIC_RELEASE);
    } else {
        bl_baseline_close(&member->comm, &member->tuning->baseline, 1, true, until);
    }
    if (!bl_context_push(member->comm)) return;
    CUresult status;
    while ((status = bl_driver()->cuStreamQuery(member->stream)) == CUDA_ERROR_NOT_READY && bl_clock_ns() < until)
        bl_nap(1000000);
    bl_context_pop();
    if (status != CUDA_ERROR_NOT_READY) return;
    member->resources->stuck = true;
    bl_member_fail(member, BL_FAILED, member->comm->rank, "measuring: kernels did not end");
}

/* --- measuring --- */

static bool fits(const struct bl_comm *comm, const struct bl_range *range, uint64_t bytes) {
    const enum bl_kernel kernel = bl_range_kernel(range);
    return bytes <= comm->most_bytes[kernel] || bl_kernel_in_pieces(kernel, comm->nranks);
}

/* NCCL's, and those of the candidates; the same on all ranks. */
static int list_ways(struct bl_tuning *tuning, enum bl_collective collective) {
    int ways = 1;
    const struct bl_table *table = &tuning->candidates;
    for (uint32_t i = 0; i < table->ranges[collective] && ways < BL_TIMES_WAYS; i++)
        if (table->range[collective][i].algorithm != BL_ROUTE_NCCL)
            tuning->found.range[collective][ways++] = &table->range[collective][i];
    return ways;
}

/* How many sizes of a collective fit the buffers. */
static int count_sizes(enum bl_collective collective, int nranks) {
    const uint64_t blocks = bl_collective_has(collective, BL_GATHERS | BL_SCATTERS) ? (uint64_t)nranks : 1;
    int sizes = 0;
    for (uint64_t bytes = FIRST; bytes * blocks <= ROOM && sizes < BL_TIMES_SIZES; bytes *= STEP) sizes++;
    return sizes;
}

/* All hear of all: in `worst` is the time of the slowest rank, and how long rank 0 has been at it.  False: one has failed. */
static bool exchange(struct bl_member **members, int count, const struct heard *mine, struct heard *worst) {
    bool well = true;
    for (int i = 0; i < count; i++) bl_step_send(members[i], BL_STEP_TUNE, &mine[i], sizeof(mine[i]), -1);
    for (int i = 0; i < count; i++) {
        *worst = mine[i];
        for (int peer = 0; peer < members[i]->comm->nranks; peer++) {
            struct heard one;
            if (peer == members[i]->comm->rank) continue;
            if (!bl_step_receive(members[i], peer, BL_STEP_TUNE, &one, sizeof(one), NULL, bl_step_deadline())) {
                well = false;
                continue;
            }
            worst->failed |= one.failed;
            if (peer == 0) worst->seconds = one.seconds;
            for (int way = 0; way < BL_TIMES_WAYS; way++)
                if (one.us[way] > worst->us[way]) worst->us[way] = one.us[way];
        }
        well = well && !worst->failed;
    }
    return well;
}

struct point {
    enum bl_collective collective;
    uint64_t bytes;
    int ways;
    bool tried[BL_TIMES_WAYS];
};

/* Each way that is tried, in turn, so many calls each.  False: it has failed here; calls that can be made are made all the
 * same, for the peers do so. */
static bool measure(struct bl_member **members, int count, const struct point *point, unsigned calls,
                    double us[BL_MAX_RANKS][BL_TIMES_WAYS]) {
    static const struct bl_range nccl = {.algorithm = BL_ROUTE_NCCL};
    struct bl_tuning *tuning = members[0]->tuning;
    struct side side;
    bool well = true;
    int status = 0;
    gather(&side, members, count);
    for (int w = 0; w < point->ways && (!status || status == BL_MEASURE_UNTIMED); w++) {
        const struct bl_way way = {&tuning->candidates, w ? tuning->found.range[point->collective][w] : &nccl,
                                   side.handles};
        double mean[BL_MAX_RANKS];
        if (!point->tried[w]) continue;
        status = bl_measure(side.gauges, count, point->collective, &way, point->bytes, calls, deadline(), mean);
        if (status) fail_all(members, count, status);
        for (int i = 0; i < count; i++) members[i]->tuning->ours_run = status && status != BL_MEASURE_UNTIMED && w > 0;
        for (int i = 0; i < count && !status; i++) us[i][w] = mean[i];
        well = well && !status;
    }
    return well;
}

/* Times of one size by so many calls each, the same on all ranks.  False: some rank has failed. */
static bool take_times(struct bl_member **members, int count, const struct point *point, unsigned calls,
                       struct heard *worst) {
    double us[BL_MAX_RANKS][BL_TIMES_WAYS] = {0};
    struct heard mine[BL_MAX_RANKS] = {0};
    const bool well = measure(members, count, point, calls, us);
    for (int i = 0; i < count; i++) {
        const bool disturbed = well && check_idle(members[i]->comm); /* by another thread's calls */
        if (disturbed) fail_all(&members[i], 1, -1);
        mine[i].failed = !well || disturbed;
        mine[i].seconds = (double)(bl_clock_ns() - members[i]->tuning->begin) / 1e9;
        memcpy(mine[i].us, us[i], sizeof(mine[i].us));
    }
    return exchange(members, count, mine, worst);
}

static bool is_steady(const struct heard *a, const struct heard *b) {
    for (int way = 0; way < BL_TIMES_WAYS; way++)
        if (a->us[way] < b->us[way] * (1 - STEADY) || a->us[way] > b->us[way] * (1 + STEADY)) return false;
    return true;
}

/* The same by more and more calls, until they change nothing, or the time is over. */
static bool take_steady_times(struct bl_member **members, int count, const struct point *point, double end,
                              struct heard *worst) {
    for (unsigned calls = 1;; calls *= MORE_CALLS) {
        const struct heard before = *worst;
        if (!take_times(members, count, point, calls, worst)) return false;
        if (calls == MOST_CALLS || worst->seconds >= end || (calls > 1 && is_steady(&before, worst))) return true;
    }
}

static double fastest(const double *us, int from, int ways) {
    double best = 0;
    for (int way = from; way < ways; way++)
        if (us[way] > 0 && (best <= 0 || us[way] < best)) best = us[way];
    return best;
}

/* What is slower the larger the message, by so much, is not tried at larger ones; and when NCCL is that much faster twice, nothing is. */
static bool goes_on(struct point *point, const struct bl_times *times) {
    const int last = times->sizes - 1;
    const double *us = times->us[last], *before = last ? times->us[last - 1] : NULL;
    if (!before) return true;
    for (int way = 1; way < point->ways; way++) {
        if (us[way] <= 0 || before[way] <= 0) continue;
        const double behind = us[way] / fastest(us, 0, point->ways);
        if (behind > HOPELESS && behind >= before[way] / fastest(before, 0, point->ways)) point->tried[way] = false;
    }
    const double mine = fastest(us, 1, point->ways), mine_before = fastest(before, 1, point->ways);
    return mine > 0 && !(mine > LOST * us[0] && mine_before > LOST * before[0]);
}

/* The sizes of a collective, within its share of the time that is left.  False: some rank has failed. */
static bool measure_collective(struct bl_member **members, int count, enum bl_collective collective,
                               int collectives_left, double *spent) {
    struct bl_tuning *tuning = members[0]->tuning;
    const struct bl_comm *comm = members[0]->comm;
    struct bl_times *times = &tuning->found.times[collective];
    struct point point = {.collective = collective, .bytes = FIRST, .ways = list_ways(tuning, collective)};
    const int sizes = count_sizes(collective, comm->nranks);
    const double limit = (double)members[0]->all[0].tune;
    const double end = *spent + (limit - *spent) / collectives_left;
    times->ways = point.ways;
    for (int way = 0; way < point.ways; way++) {
        point.tried[way] = true;
        times->few[way] = way && bl_kernel_bulk(bl_range_kernel(tuning->found.range[collective][way]));
    }
    for (int size = 0; size < sizes && *spent < end; size++, point.bytes *= STEP) {
        struct heard worst = {0};
        for (int way = 1; way < point.ways; way++)
            point.tried[way] = point.tried[way] && fits(comm, tuning->found.range[collective][way], point.bytes);
        if (!take_steady_times(members, count, &point, end, &worst)) return false;
        *spent = worst.seconds;
        times->bytes[size] = point.bytes;
        memcpy(times->us[size], worst.us, sizeof(times->us[size]));
        times->sizes++;
        if (!goes_on(&point, times)) return true;
    }
    if (times->sizes < FEWEST && times->sizes < sizes) times->sizes = 0;
    return true;
}

/* --- what is found --- */

static int remember(struct bl_member *member) {
    const struct bl_tuning *tuning = member->tuning;
    const struct bl_comm *comm = member->comm;
    const double seconds = (double)(bl_clock_ns() - tuning->begin) / 1e9;
    bool any = false;
    for (int c = 0; c < BL_COLLECTIVES; c++) any = any || tuning->found.times[c].sizes;
    if (!any) return bl_fail("%.2f s are not enough (BEELINE_TUNE)", seconds);
    char *text = bl_found_section(&tuning->found, comm->table.section, comm->nranks, seconds);
    const int status = text ? bl_remember(tuning->path, text) : -1;
    free(text);
    if (!status)
        bl_info("communicator %016llx: thresholds of this box with %d ranks measured in %.2f s, kept in %s",
                (unsigned long long)comm->id, comm->nranks, seconds, tuning->path);
    return status;
}

bool bl_tune_measure(struct bl_member **members, int count) {
    const uint32_t unmeasured = members[0]->comm->table.unmeasured;
    int left = __builtin_popcount(unmeasured);
    double spent = 0;
    bool well = true;
    for (int i = 0; i < count; i++) members[i]->tuning->begin = bl_clock_ns();
    for (int c = 0; c < BL_COLLECTIVES && well; c++)
        if (unmeasured >> c & 1) well = measure_collective(members, count, (enum bl_collective)c, left--, &spent);
    for (int i = 0; i < count && !well; i++) calm(members[i]);
    for (int i = 0; i < count && well; i++)
        if (members[i]->comm->rank == 0 && remember(members[i])) fail_all(&members[i], 1, -1);
    return bl_step_vote(members, count);
}

bool bl_tune_close(struct bl_member **members, int count) {
    struct side side;
    const bool well = bl_tune_well(members[0]);
    for (int i = 0; i < count; i++)
        if (!members[i]->tuning)
            return bl_step_all_well(members, count); /* nothing was opened; bl_tune_release has the rest */
    gather(&side, members, count);
    bl_baseline_close(side.comms, side.handles, count, !well, deadline());
    for (int i = 0; i < count; i++) {
        members[i]->tuning->baseline = NULL;
        bl_remember_end(&members[i]->tuning->lock);
        if (!well && members[i]->comm->rank == 0)
            bl_info("communicator %016llx: thresholds of this box with %d ranks are not measured: %s",
                    (unsigned long long)members[i]->comm->id, members[i]->comm->nranks, members[i]->tuning_verdict.why);
    }
    return bl_step_all_well(members, count);
}

void bl_tune_release(struct bl_member *member) {
    if (!member->tuning) return;
    if (!member->resources->stuck) bl_baseline_close(&member->comm, &member->tuning->baseline, 1, true, deadline());
    bl_remember_end(&member->tuning->lock);
    if (!member->resources->stuck) bl_gauge_close(&member->tuning->gauge);
    if (!member->tuning->baseline) free(member->tuning); /* else NCCL may be at it still */
    member->tuning = NULL;
}
