/* staging.cuh - who writes where in a rank's staging, and why nobody overwrites what is still to be read; and how a wait for a
 * peer goes.
 *
 * Every launch takes the epoch e that the last one left behind, and leaves a higher one.  Its lowest bit names the half that is
 * free, below; the others count launches.  (63 bits do not wrap in the life of a machine.)  In every launch each rank sends to each peer,
 * and ends only when something came from each peer.  So:
 *
 * A rank in launch k+1 has ended launch k, hence heard from each peer in launch k, hence each peer has ended launch k-1.
 *
 * (Broadcast and reduce, and launches of several collectives, in which not every rank sends to each peer, have memory and counters of their own: oneway.cuh.  Nothing
 * here is about them.)
 *
 * Packets and lines have two halves each.  A launch writes into the half e & 1, and the next one into the other.  So a half comes to be
 * used again no earlier than in launch k+1 if it was in k-1: each peer has ended that.  (Two shots have inputs and results there, each in a place of its own.)
 *
 * **Packets** carry the epoch that their launch leaves behind as a flag: it never came before and is never zero.
 *
 * **Lines** carry nothing but data: a place holds the *blank* while nothing has come, 16 bytes that its rank has drawn at random, and what is
 * not the blank has come.  Each 16 bytes of a line are one access and come for themselves.  Who has read them puts the blank back in the same launch,
 * so all that a launch finds blank at its beginning is blank at its end; and whoever writes there next does so after we have ended the
 * launch, as above.  Nobody but the rank itself knows its blank, and nothing of a staging is ever in anybody's buffer, so no data has it
 * (but by chance, once in 2^128).  Whatever is sent is received, each 16 bytes by one thread.  A launch that fails, or is told to stop, leaves what it
 * has not received: launches behind it send nothing, which peers could not tell from data, and take nothing (is_stopped).
 *
 * The shape of a launch (grid, datatype, redop) may change from launch to launch, and differ from rank to rank: a line's
 * place depends on its number alone.  (But all ranks launch allreduce_twoshot_ll128_warps.cu with blocks of one size.)  Packets and
 * lines are apart, because a line holds user data where a packet has its flag.
 */
#ifndef BEELINE_STAGING_CUH
#define BEELINE_STAGING_CUH

#include <core/primitives.cuh>

enum { PACKET_BYTES = 16, LINE_BYTES = 128, LINE_LANES = 8 };
/* Words of a line; of one that has a flag, as those of rings have (oneway.cuh, pairs.cuh). */
enum { LINE_WORDS = 16, FLAGGED_WORDS = 15 };

/* A part of every rank's staging: a place of `stride` bytes for each source.  Of lines, number k lies (first + k) & mask lines
 * from the place's begin. */
struct Region {
    uint64_t offset, stride;
    uint64_t first = 0, mask = UINT64_MAX;
};

BL_DEVICE Region packet_region(const struct bl_kernel_args &a, uint64_t e) {
    const uint64_t stride = a.layout.packets * PACKET_BYTES;
    return {a.layout.packet_offset + (e & 1) * (a.nranks - 1) * stride, stride};
}
BL_DEVICE Region lines_of_half(const struct bl_kernel_args &a, uint64_t e, uint64_t lines_each) {
    const uint64_t half = e & 1;
    return {a.layout.line_offset + half * a.layout.half_lines * LINE_BYTES, lines_each * LINE_BYTES};
}
/* A place for the peers and the rank itself. */
BL_DEVICE Region rank_region(const struct bl_kernel_args &a, uint64_t e) {
    return lines_of_half(a, e, a.layout.rank_lines);
}
/* A place for each peer; and what lies in it behind so many lines. */
BL_DEVICE Region peer_region(const struct bl_kernel_args &a, uint64_t e) {
    return lines_of_half(a, e, a.layout.peer_lines);
}
BL_DEVICE Region behind(Region r, uint64_t lines) {
    r.offset += lines * LINE_BYTES;
    return r;
}

/* Where `source`, a peer of `owner`, writes in the owner's region; and where the owner itself does, if the region has room
 * for that. */
BL_DEVICE unsigned char *place_of(const struct bl_kernel_args &a, const Region &r, unsigned owner, unsigned source) {
    return a.staging[owner] + r.offset + (source - (source > owner)) * r.stride;
}
BL_DEVICE unsigned char *own_place(const struct bl_kernel_args &a, const Region &r) {
    return a.staging[a.rank] + r.offset + (a.nranks - 1) * r.stride;
}

BL_DEVICE uint64_t offset_of(const Region &r, uint64_t line) {
    return ((r.first + line) & r.mask) * LINE_BYTES;
}

/* a.nranks, of which the compiler knows it where kernels for N ranks are for no other number. */
template <int N> BL_DEVICE unsigned nranks_of(const struct bl_kernel_args &a) {
    return N == 2 ? 2 : a.nranks;
}

/* The i-th peer to write to, i = 1..nranks-1: each rank begins with another, so that no rank's links fill up first. */
BL_DEVICE unsigned peer_at(unsigned rank, unsigned i, unsigned nranks) {
    return rank + i < nranks ? rank + i : rank + i - nranks;
}

/* What a launch leaves behind: the other half is the next. */
enum { EPOCH_STEP = 2 };
BL_DEVICE uint64_t next_epoch(uint64_t e) {
    return (e ^ 1) + EPOCH_STEP;
}

/* A launch that begins when the device has been told to stop sends nothing, takes nothing and leaves the first wait at the first poll that
 * fails: on the GPU's way here may be thousands of them, on data that never came.  So that it costs no branch, and waits for
 * nothing, before user data is loaded, that is a bit of the epoch, and so of every flag: BL_WORD_STOP holds zero or STOPPED.
 * Epochs do not grow so far; no flag with that bit was ever sent. */
static const uint64_t STOPPED = (uint64_t)1 << 63;
BL_DEVICE bool is_stopped(uint64_t flag) {
    return (int64_t)flag < 0;
}

/* How a reader knows that a line has come; and whether the launch is stopped. */
struct Flag { /* in rings: the word behind the data */
    uint64_t flag;
};
struct Blank {     /* elsewhere: it is not what this rank's places hold until then */
    uint64_t flag; /* the epoch that the launch leaves behind */
    Pair blank;
};
BL_DEVICE Blank blank_of(const struct bl_kernel_args &a, uint64_t e) {
    return {next_epoch(e), {a.blank[0], a.blank[1]}};
}

/* The epoch is kept once a block, so that a launch starts with one load, in parallel with those of the user's data, and
 * ends without an atomic: each block updates its own word, and the blocks of this launch share those of the blocks that
 * it lacks.  Beside each lies a copy of BL_WORD_STOP, for the same load: a second one would take 50 ns on an H200. */
struct alignas(16) EpochAndStop {
    uint64_t epoch, stop;
};
BL_DEVICE EpochAndStop *epoch_of(const struct bl_kernel_args &a, unsigned block) {
    return (EpochAndStop *)(a.epochs + BL_WORD_EPOCHS) + block;
}

BL_DEVICE uint64_t epoch_begin(const struct bl_kernel_args &a) {
    stream_wait();
    const EpochAndStop word = load_own(epoch_of(a, block_in_grid()));
    return word.epoch | word.stop;
}

BL_DEVICE void epoch_end(const struct bl_kernel_args &a, uint64_t flag) {
    block_sync(); /* every warp has read the word of this block */
    if (thread_in_block() == 0) store_own(&epoch_of(a, block_in_grid())->epoch, flag);
    for (unsigned b = blocks_in_grid() + thread_in_grid(); b < BL_MAX_BLOCKS; b += threads_in_grid())
        store_own(&epoch_of(a, b)->epoch, flag);
}

/* Waiting for peers: poll, and every so often look whether to give up.  Uniform over the warp. */
struct Wait {
    uint32_t polls;
    uint64_t since;
};

static const uint64_t HOST_LOOK_NS = 1000000, LONG_WAIT_NS = 100000000;

/* For the waits of a launch with this flag. */
BL_DEVICE Wait wait_begin(uint64_t flag) {
    const Wait wait = {is_stopped(flag) ? UINT32_MAX : 0, 0};
    return wait;
}

/* Those that this block's words count. */
BL_DEVICE uint64_t launches_before(const struct bl_kernel_args &a) {
    const unsigned block = block_in_grid();
    return load_relaxed_sys(&epoch_of(a, block)->epoch) / EPOCH_STEP +
           load_relaxed_sys(&a.epochs[BL_WORD_ONEWAYS + block]) +
           load_relaxed_sys(&a.epochs[BL_WORD_PAIRS + block % BL_PAIR_BLOCKS * BL_PAIR_WORDS + BL_PAIR_LAUNCHES]) +
           (a.multicast_words ? load_relaxed_sys(&a.multicast_words[block]) : 0);
}

/* Tells the host that this launch has been waiting for `peer`: struct bl_control. */
BL_DEVICE void tell_waiting(const struct bl_kernel_args &a, unsigned peer, uint64_t waited) {
    const bool too_long = a.timeout_ns != 0 && waited > a.timeout_ns;
    if (waited < LONG_WAIT_NS && !too_long) return;
    store_host64_relaxed_sys(&a.control->waited_ns, waited);
    store_host_relaxed_sys(&a.control->waiting_peer, peer);
    store_host_relaxed_sys(&a.control->waiting_call, a.call);
    store_host64_relaxed_sys(&a.control->waiting_count, a.count);
    store_host64_relaxed_sys(&a.control->waiting_launch, launches_before(a) + 1);
    fence_acq_rel_sys(); /* whoever reads what comes now reads what goes with it */
    store_host64_relaxed_sys(&a.control->beat, clock_ns());
    if (too_long) store_host_relaxed_sys(&a.control->error, BL_KERNEL_TIMEOUT);
}

/* For this launch's waits, and for the launches behind it. */
BL_DEVICE void stop_all(const struct bl_kernel_args &a) {
#pragma unroll 1 /* 256 stores would be most of a kernel's code */
    for (unsigned block = 0; block < BL_MAX_BLOCKS; block++) store_relaxed_sys(&epoch_of(a, block)->stop, STOPPED);
    store_relaxed_sys(&a.epochs[BL_WORD_STOP], STOPPED);
}

/* Whether the host has told this device to stop.  Words in host memory are read over PCIe one after another (1.5 us each on
 * an H200: 3 ms if every warp of a full grid looks), so at most one thread in HOST_LOOK_NS reads them, and leaves what it read
 * in device memory for all; the same one tells the host of the wait.  `waits_for` is a rank, or NOBODY. */
static const unsigned NOBODY = UINT32_MAX;
BL_DEVICE_COLD bool told_to_stop(const struct bl_kernel_args &a, unsigned waits_for, uint64_t waited, uint64_t now) {
    uint64_t *const next_look = &a.epochs[BL_WORD_NEXT_LOOK];
    const uint64_t due = load_relaxed_sys(next_look);
    if (now >= due && atomic_cas_relaxed_gpu(next_look, due, now + HOST_LOOK_NS) == due) {
        if (load_host_relaxed_sys(&a.control->abort))
            stop_all(a);
        else if (waits_for != NOBODY)
            tell_waiting(a, waits_for, waited);
    }
    return load_relaxed_sys(&a.epochs[BL_WORD_STOP]) != 0;
}

/* After a failed poll: whether it is time to look whether to give up (wait_on). */
BL_DEVICE bool wait_is_long(Wait &wait) {
    spin_pause();
    return ++wait.polls % POLLS_PER_LOOK == 0;
}

/* True to poll on, false to leave the kernel.  `missing` is a rank that this lane waits for, or its own if there is none. All
 * lanes of the warp call it together. */
BL_DEVICE bool wait_on(const struct bl_kernel_args &a, Wait &wait, unsigned missing) {
    const uint64_t now = clock_ns();
    if (wait.since == 0) wait.since = now;
    const unsigned waits_for = warp_least(missing == a.rank ? NOBODY : missing);
    const bool go_on = warp_all(!told_to_stop(a, waits_for, now - wait.since, now));
    warp_rejoin(); /* lines are polled by all of their lanes at once */
    return go_on;
}

/* What was waited for has come: the next wait has its own time. */
BL_DEVICE void wait_over(Wait &wait) {
    wait.since = 0;
}

#endif
