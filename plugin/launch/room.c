#include "room.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* OTHERS: narrow launches that a wide one leaves room for. */
enum { OTHERS = 3, SM_BLOCKS = 2, NCCL_SMS = 32 /* of a kernel of NCCL's, at most by default */ };
/* From sm_90 on NCCL's blocks come four at a time, to one GPC. */
enum { CLUSTER = 4, GPC_SMS = 18 };
enum { ISSUE_NAPS = 100, NAP_NS = 20000 }; /* how long, 2 ms, a call waits for what other threads are issuing */

struct bl_room {
    struct bl_room *next;
    CUcontext context;
    uint64_t context_id;    /* another one once the device has been reset: what was there is gone */
    unsigned sms;           /* multiprocessors of the GPU */
    bool clusters;          /* kernels can be in clusters of blocks, and NCCL's are */
    atomic_uint least_sms;  /* that a launch so far could use: streams of a green context have only its own */
    atomic_uint nccl_comms; /* communicators that have had a kernel of NCCL's */
    pthread_mutex_t lock;   /* of what follows */
    uint64_t turns;         /* launches of those that were not alone */
    struct bl_comm **comms;
    int capacity;
    atomic_int count;
    atomic_int chaining;    /* threads that are about to wait for events */
    atomic_bool in_a_graph; /* some are waited for in graphs, too */
    atomic_uint kinds;      /* of NCCL's kernels that were launched: turn.h */
    CUevent *spare;         /* of those that have left meanwhile */
    int spares, spare_capacity;
};

/* What there is for launches that are to find room wherever their streams are. */
struct space {
    unsigned kept;           /* places for blocks that nobody counts on */
    unsigned places;         /* the others */
    unsigned beside_nccl;    /* the same while a kernel of NCCL may be in flight, which takes whole multiprocessors */
    unsigned narrow, fewest; /* blocks of a launch: as many as NCCL's kernels have; as make one worth while */
    unsigned messages;       /* of one of messages: about as the largest of NCCL's have */
    unsigned most_nccl;      /* kernels of NCCL's that leave those alone */
};

static pthread_mutex_t rooms_lock = PTHREAD_MUTEX_INITIALIZER;
static struct bl_room *rooms; /* one for each context that ever had a communicator; never freed */

/* --- what a communicator holds: one word, so that whoever finds its work done can say so without a lock ---
 * The lowest bits are blocks, or tell that a kernel of NCCL's holds room; OPEN while a call is being issued, so its event says
 * nothing of it yet; the rest counts calls, so that what is known of one is not said of the next. */
static const uint64_t BLOCKS = 0xfff, OF_NCCL = 1 << 12, OPEN = 1 << 13, CALL = 1 << 14;

/* Besides what it may still hold of earlier calls, until somebody finds that all have ended. */
static void hold(struct bl_comm *comm, uint64_t what) {
    uint64_t held = atomic_load_explicit(&comm->room.holds, memory_order_relaxed), next;
    do {
        const uint64_t blocks = held & BLOCKS, more = what & BLOCKS;
        next = (held & ~(CALL - 1)) + CALL + ((blocks > more ? blocks : more) | ((held | what) & OF_NCCL) | OPEN);
    } while (!atomic_compare_exchange_weak(&comm->room.holds, &held, next));
}

void bl_room_taken(struct bl_comm *comm) {
    if (!atomic_load(&comm->room.nccl_comes)) atomic_fetch_and(&comm->room.holds, ~OPEN);
}

void bl_room_taken_nccl(struct bl_comm *comm) {
    atomic_store(&comm->room.nccl_comes, false);
    bl_room_taken(comm);
}

/* --- coming and going --- */
static unsigned at_least_one(unsigned n) {
    return n ? n : 1;
}

/* Multiprocessors that may be left over, three on each GPC, however others are taken: with 88 blocks on as many of 132, 28 of 32 blocks in
 * clusters of four found room (H100: docs/benchmarks/h100-x4-2026-11-27-groups.md). */
static unsigned lost_to_clusters(const struct bl_room *room, unsigned sms, unsigned nccl) {
    return room->clusters && nccl >= CLUSTER ? (CLUSTER - 1) * ((sms + GPC_SMS - 1) / GPC_SMS) : 0;
}

/* On H200, with 132: NCCL takes 24 to 32 of them on an NVSwitch box, and in a green context, too.  Messages have 35, which give 64 KB
 * both ways a warp for each quad. */
static struct space space_of(const struct bl_room *room) {
    const unsigned sms = atomic_load_explicit(&room->least_sms, memory_order_relaxed), nccl = room->sms / 4;
    const unsigned left_to_nccl = nccl + lost_to_clusters(room, sms, nccl);
    struct space space = {.kept = at_least_one(sms / 16),
                          .beside_nccl = sms > left_to_nccl ? sms - left_to_nccl : 0,
                          .narrow = at_least_one(sms * 2 / 11),
                          .messages = at_least_one(sms * 4 / 15),
                          .fewest = at_least_one(sms / 32)};
    space.places = SM_BLOCKS * sms - space.kept;
    space.most_nccl =
        (sms - at_least_one(space.kept / SM_BLOCKS)) / (room->sms > NCCL_SMS ? NCCL_SMS : at_least_one(nccl));
    return space;
}

/* Before a launch on the stream. */
static void note_multiprocessors(struct bl_room *room, const struct bl_comm *comm, CUstream stream,
                                 const struct bl_order_turn *turn) {
    const struct bl_driver *cu = bl_driver();
    CUgreenCtx green = NULL;
    CUdevResource has;
    if ((turn->stream && turn->stream == comm->order.last_stream) || !cu->cuStreamGetGreenCtx) return;
    if (cu->cuStreamGetGreenCtx(stream, &green) != CUDA_SUCCESS || !green) return;
    if (cu->cuGreenCtxGetDevResource(green, &has, CU_DEV_RESOURCE_TYPE_SM) != CUDA_SUCCESS || !has.sm.smCount) return;
    unsigned least = atomic_load(&room->least_sms);
    while (has.sm.smCount < least && !atomic_compare_exchange_weak(&room->least_sms, &least, has.sm.smCount)) {
    }
}

static struct bl_room *room_of(struct bl_comm *comm) {
    struct bl_room *room;
    pthread_mutex_lock(&rooms_lock);
    for (room = rooms; room; room = room->next)
        if (room->context == comm->context && room->context_id == comm->context_id) break;
    if (!room && (room = calloc(1, sizeof(*room)))) {
        room->context = comm->context;
        room->context_id = comm->context_id;
        room->sms = (unsigned)bl_driver_attribute(comm->device, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
        room->clusters = bl_driver_attribute(comm->device, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR) >= 9;
        atomic_init(&room->least_sms, room->sms);
        pthread_mutex_init(&room->lock, NULL);
        room->next = rooms;
        rooms = room;
    }
    pthread_mutex_unlock(&rooms_lock);
    return room;
}

static bool grow(void **array, int *capacity, int needed, size_t size) {
    if (needed <= *capacity) return true;
    void *more = realloc(*array, (size_t)(2 * needed) * size);
    if (!more) return false;
    *array = more;
    *capacity = 2 * needed;
    return true;
}

int bl_room_enter(struct bl_comm *comm) {
    struct bl_room *room = room_of(comm);
    if (!room) return -1;
    pthread_mutex_lock(&room->lock);
    const int count = atomic_load(&room->count);
    /* Also room for its event in `spare`, so that leaving cannot fail. */
    const bool grown = grow((void **)&room->comms, &room->capacity, count + 1, sizeof(*room->comms)) &&
                       grow((void **)&room->spare, &room->spare_capacity, room->spares + count + 1, sizeof(CUevent));
    if (grown) {
        room->comms[count] = comm;
        atomic_store(&room->count, count + 1);
        comm->room.of = room;
    }
    pthread_mutex_unlock(&room->lock);
    return grown ? 0 : -1;
}

void bl_room_leave(struct bl_comm *comm, bool context_lives) {
    struct bl_room *room = comm->room.of;
    if (!room) return;
    comm->room.of = NULL;
    if (atomic_exchange(&comm->room.of_nccl, false)) atomic_fetch_sub(&room->nccl_comms, 1);
    pthread_mutex_lock(&room->lock);
    const int left = atomic_fetch_sub(&room->count, 1) - 1;
    for (int i = 0; i < left; i++)
        if (room->comms[i] == comm) room->comms[i] = room->comms[left];
    room->spare[room->spares++] = comm->order.event;
    comm->order.event = NULL;
    const bool unused = left == 0 || (!atomic_load(&room->chaining) && !atomic_load(&room->in_a_graph));
    const int count = unused ? room->spares : 0;
    CUevent spare[count + 1];
    memcpy(spare, room->spare, (size_t)count * sizeof(*spare));
    room->spares -= count;
    pthread_mutex_unlock(&room->lock);
    for (int i = 0; i < count && context_lives; i++) bl_driver()->cuEventDestroy(spare[i]);
}

/* --- what is in flight --- */
struct held {
    unsigned blocks;
    bool nccl; /* a kernel of NCCL's, too */
};

/* Blocks that graphs hold, which may be replayed at any time. */
static unsigned captured_by(const struct bl_comm *comm) {
    return atomic_load_explicit(&comm->room.captured, memory_order_relaxed);
}

static void note_captured(struct bl_comm *comm, unsigned blocks) {
    if (blocks > captured_by(comm)) atomic_store(&comm->room.captured, blocks);
}

/* Under the lock: whether others have graphs whose replays leave no event, so that nothing can be behind them. */
static bool has_untold(const struct bl_room *room, const struct bl_comm *comm) {
    for (int i = 0; i < atomic_load(&room->count); i++)
        if (room->comms[i] != comm && room->comms[i]->unmixed && captured_by(room->comms[i])) return true;
    return false;
}

/* What a communicator's eager calls may hold; none, once its event has come, if `ask`. */
static uint64_t held_by(struct bl_comm *comm, bool ask) {
    uint64_t word = atomic_load(&comm->room.holds);
    if (!ask || !(word & (BLOCKS | OF_NCCL)) || word & OPEN) return word & (BLOCKS | OF_NCCL);
    if (bl_driver()->cuEventQuery(comm->order.event) == CUDA_ERROR_NOT_READY) return word & (BLOCKS | OF_NCCL);
    atomic_compare_exchange_strong(&comm->room.holds, &word, word & ~(BLOCKS | OF_NCCL));
    return 0;
}

/* What goes on beside the communicator's own launch, if that is beside.h's: a kernel of NCCL's.  On a whole GPU messages need keep no
 * room for it, for they have few blocks (BL_PAIR_BLOCKS).  Collectives do: they are
 * beside NCCL's calls where their group makes communicators. */
static struct held held_beside(const struct bl_room *room, const struct bl_comm *comm, enum bl_kernel kernel) {
    const bool leaves_room = !bl_kernel_pairs(kernel) || atomic_load(&room->least_sms) < room->sms;
    return (struct held){0, leaves_room && atomic_load(&comm->beside.state) == BL_BESIDE_APART};
}

/* Under the lock. */
static struct held held_by_others(struct bl_room *room, const struct bl_comm *comm, enum bl_kernel kernel, bool ask) {
    struct held all = held_beside(room, comm, kernel);
    const CUstreamCaptureMode mode = ask ? bl_driver_relax() : CU_STREAM_CAPTURE_MODE_GLOBAL;
    for (int i = 0; i < atomic_load(&room->count); i++) {
        struct bl_comm *other = room->comms[i];
        if (other == comm) continue;
        const uint64_t word = held_by(other, ask);
        const unsigned now = (unsigned)(word & BLOCKS), captured = captured_by(other);
        all.nccl = all.nccl || word & OF_NCCL;
        all.blocks += captured > now ? captured : now;
    }
    if (ask) bl_driver_unrelax(mode);
    return all;
}

/* How many more blocks there is room for. */
static unsigned room_beside(const struct space *space, struct held held) {
    const unsigned all = held.nccl ? space->beside_nccl : space->places;
    return held.blocks < all ? all - held.blocks : 0;
}

/* How many a launch takes of what there is, so that others still find room, however they come; 0: it is to be chained. */
static unsigned share_beside(const struct space *space, struct held held) {
    const unsigned left = room_beside(space, held), reserved = OTHERS * space->narrow;
    if (left < space->fewest) return 0;
    if (left > reserved + space->narrow) return left - reserved;
    return left < space->narrow ? left : space->narrow;
}

/* At most so many blocks; of a kernel that goes in rounds either all, or few; of one that needs a multicast object all. */
static void narrow_to(const struct space *space, unsigned most, enum bl_kernel kernel, unsigned *blocks) {
    if (*blocks <= most || bl_kernel_multicast(kernel)) return;
    *blocks = bl_kernel_in_rounds(kernel) && most > space->kept ? space->kept : most;
}

/* Whether a launch fits, with fewer blocks if need be. */
static bool fit(const struct space *space, struct held held, enum bl_kernel kernel, unsigned *blocks) {
    const unsigned share = share_beside(space, held);
    if (share) narrow_to(space, share, kernel, blocks);
    return *blocks <= room_beside(space, held);
}

/* --- chains --- */

/* Whether what other threads were issuing when this call took its turn has been issued: only then events say anything of it. */
static bool others_are_issued(struct bl_room *room, const struct bl_comm *comm) {
    bool all = true;
    pthread_mutex_lock(&room->lock);
    for (int i = 0; i < atomic_load(&room->count); i++) {
        const struct bl_comm *other = room->comms[i];
        all = all && (other == comm || other->room.turn > comm->room.turn || !(atomic_load(&other->room.holds) & OPEN));
    }
    pthread_mutex_unlock(&room->lock);
    return all;
}

static _Thread_local char mark; /* of this thread */

/* Whether one of these is this thread's own: a call of NCCL's in the group that it is at the end of. */
static bool one_is_mine(struct bl_room *room, const struct bl_comm *comm) {
    bool any = false;
    pthread_mutex_lock(&room->lock);
    for (int i = 0; i < atomic_load(&room->count); i++) {
        const struct bl_hold *other = &room->comms[i]->room;
        any = any || (room->comms[i] != comm && atomic_load(&other->nccl_comes) && atomic_load(&other->whose) == &mark);
    }
    pthread_mutex_unlock(&room->lock);
    return any;
}

/* False if one takes long: it may wait for something behind this call. */
static bool await_issued(struct bl_room *room, const struct bl_comm *comm) {
    if (one_is_mine(room, comm)) return false;
    for (int i = 0; !others_are_issued(room, comm); i++) {
        if (i == ISSUE_NAPS) return false;
        nanosleep(&(struct timespec){.tv_nsec = NAP_NS}, NULL);
    }
    return true;
}

/* Behind whatever the other communicators have issued, or, if `wider`, their eager launches of more blocks.  Of what is in the same
 * capture, behind the nodes: the event would be recorded behind the last of its calls, of which some may be behind this one.
 * Events are collected under the lock and waited for without it: telling a stream to wait may itself take until the stream
 * has room; one that leaves meanwhile is not destroyed. */
static ncclResult_t chain(struct bl_room *room, const struct bl_comm *comm, CUstream stream,
                          const struct bl_order_turn *turn, unsigned wider) {
    ncclResult_t result = ncclSuccess;
    const int most = atomic_load(&room->count); /* whoever comes after that is not behind anything here */
    CUevent events[most + 1];
    int count = 0;
    const CUstreamCaptureMode mode = bl_driver_relax();
    pthread_mutex_lock(&room->lock);
    for (int i = 0; i < atomic_load(&room->count) && count < most && result == ncclSuccess; i++) {
        struct bl_comm *other = room->comms[i];
        if (other == comm || bl_order_follow(other, stream, turn, &result)) continue;
        const bool behind = wider ? (held_by(other, true) & BLOCKS) > wider
                                  : turn->capturing || captured_by(other) || held_by(other, true);
        if (behind) events[count++] = other->order.event;
    }
    atomic_fetch_add(&room->chaining, 1);
    if (turn->capturing && count > 0) atomic_store(&room->in_a_graph, true);
    pthread_mutex_unlock(&room->lock);
    bl_driver_unrelax(mode);
    if (result == ncclSuccess) result = bl_order_wait(stream, events, count, turn);
    atomic_fetch_sub(&room->chaining, 1);
    return result;
}

/* --- one call --- */
static bool alone(const struct bl_room *room) {
    return !room || atomic_load_explicit(&room->count, memory_order_acquire) < 2;
}

/* Nobody knows what is in flight when the graph is replayed, but what other graphs may hold then, and what is now. */
static ncclResult_t take_captured(struct bl_room *room, const struct space *space, struct bl_comm *comm,
                                  CUstream stream, const struct bl_order_turn *turn, enum bl_kernel kernel,
                                  unsigned *blocks) {
    pthread_mutex_lock(&room->lock);
    const bool fits = fit(space, held_by_others(room, comm, kernel, true), kernel, blocks);
    if (!fits && (bl_kernel_pairs(kernel) || has_untold(room, comm))) narrow_to(space, space->kept, kernel, blocks);
    note_captured(comm, *blocks);
    pthread_mutex_unlock(&room->lock);
    return fits || bl_kernel_pairs(kernel) ? ncclSuccess : chain(room, comm, stream, turn, 0);
}

/* What is taken is decided and said under one lock: of two threads that launch at once one sees the other. */
static ncclResult_t take_eager(struct bl_room *room, const struct space *space, struct bl_comm *comm, CUstream stream,
                               const struct bl_order_turn *turn, enum bl_kernel kernel, unsigned *blocks) {
    const unsigned wanted = *blocks;
    pthread_mutex_lock(&room->lock);
    bool fits = fit(space, held_by_others(room, comm, kernel, false), kernel, blocks);
    if (!fits || *blocks != wanted) { /* some of what seemed in flight may have ended */
        *blocks = wanted;
        fits = fit(space, held_by_others(room, comm, kernel, true), kernel, blocks);
    }
    if (!fits && (bl_kernel_pairs(kernel) || has_untold(room, comm))) narrow_to(space, space->kept, kernel, blocks);
    hold(comm, *blocks);
    comm->room.turn = ++room->turns;
    pthread_mutex_unlock(&room->lock);
    if (fits || bl_kernel_pairs(kernel)) return ncclSuccess;
    if (!await_issued(room, comm)) narrow_to(space, space->kept, kernel, blocks);
    return chain(room, comm, stream, turn, 0);
}

/* Others that have kernels of NCCL's now and then. */
static unsigned nccl_beside(const struct bl_room *room, const struct bl_comm *comm) {
    return atomic_load(&room->nccl_comms) - atomic_load(&comm->room.of_nccl);
}

static ncclResult_t take(struct bl_room *room, struct bl_comm *comm, CUstream stream, const struct bl_order_turn *turn,
                         enum bl_kernel kernel, unsigned *blocks) {
    if (alone(room) && !turn->capturing && !held_beside(room, comm, kernel).nccl) {
        hold(comm, *blocks);
        return ncclSuccess;
    }
    if (comm->in_order && !alone(room)) {
        if (turn->capturing)
            note_captured(comm, *blocks);
        else
            hold(comm, *blocks);
        return chain(room, comm, stream, turn, 0);
    }
    const struct space space = space_of(room);
    if (bl_kernel_pairs(kernel))
        narrow_to(&space, space.messages, kernel, blocks);
    else if (nccl_beside(room, comm) > space.most_nccl)
        narrow_to(&space, space.narrow, kernel, blocks);
    return turn->capturing ? take_captured(room, &space, comm, stream, turn, kernel, blocks)
                           : take_eager(room, &space, comm, stream, turn, kernel, blocks);
}

ncclResult_t bl_room_take(struct bl_comm *comm, CUstream stream, const struct bl_order_turn *turn,
                          enum bl_kernel kernel, unsigned *blocks) {
    struct bl_room *room = comm->room.of;
    if (!room) return ncclSuccess;
    note_multiprocessors(room, comm, stream, turn);
    if (!bl_kernel_bulk(kernel)) return take(room, comm, stream, turn, kernel, blocks);
    /* Beside a block that is given memory there is no room for a second one; so more than the stream has multiprocessors are of no use. */
    const unsigned least = at_least_one(atomic_load(&room->least_sms));
    unsigned places = SM_BLOCKS * (*blocks < least ? *blocks : least);
    const ncclResult_t result = take(room, comm, stream, turn, kernel, &places);
    *blocks = at_least_one(places / SM_BLOCKS);
    return result;
}

void bl_room_note_kinds(const struct bl_comm *comm, unsigned kinds) {
    if (kinds & ~bl_room_kinds(comm) && comm->room.of) atomic_fetch_or(&comm->room.of->kinds, kinds);
}

unsigned bl_room_kinds(const struct bl_comm *comm) {
    return comm->room.of ? atomic_load_explicit(&comm->room.of->kinds, memory_order_relaxed) : 0;
}

/* From now on launches beside it may have to be narrow; those in flight may be wide. */
static bool first_of_nccl(struct bl_room *room, struct bl_comm *comm) {
    if (atomic_load_explicit(&comm->room.of_nccl, memory_order_relaxed) || atomic_exchange(&comm->room.of_nccl, true))
        return false;
    return atomic_fetch_add(&room->nccl_comms, 1) + 1 > space_of(room).most_nccl;
}

ncclResult_t bl_room_take_nccl(struct bl_comm *comm, CUstream stream, const struct bl_order_turn *turn) {
    struct bl_room *room = comm->room.of;
    if (!room) return ncclSuccess;
    note_multiprocessors(room, comm, stream, turn);
    const bool crowded = first_of_nccl(room, comm);
    atomic_store(&comm->room.whose, &mark);
    atomic_store(&comm->room.nccl_comes, true);
    if (!turn->capturing)
        hold(comm, OF_NCCL);
    else if (comm->in_order)
        note_captured(comm, 1); /* others are to be behind its replays */
    if (alone(room)) return ncclSuccess;
    if (comm->in_order) return chain(room, comm, stream, turn, 0);
    /* Messages, which may wait for what comes behind this, are no wider. */
    return crowded && !turn->capturing ? chain(room, comm, stream, turn, space_of(room).messages) : ncclSuccess;
}
