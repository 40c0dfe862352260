/* staging.cuh - who writes where in a rank's staging, and why nobody overwrites what is still to be read.
 *
 * Every launch takes the epoch e that the last one left behind and leaves e + (passes | 1), so e's lowest bit
 * alternates from launch to launch: it names the *half* of the staging that the launch writes.  Pass p of a launch
 * marks what it sends with the flag e + 1 + p, which never came before and is never zero (64 bits do not wrap in the
 * life of a machine).
 *
 * Rule 1, between launches.  In every launch each rank sends at least once to each peer, and ends only when something
 * came from each peer.  So a rank in launch k+1 has ended launch k, hence heard from each peer in launch k, hence each
 * peer has ended launch k-1: nobody reads the half of launch k-1 any more, and launch k+1 may write it.
 *
 * Rule 2, between the passes of a launch (two-shot).  A slot is written and read by the same 8-lane group on every rank
 * (equal grids).  A group in pass p+1 has the results of pass p of each peer, which that peer's group sent after it had
 * read all inputs of pass p: so the slots of inputs are free.  It sends results in pass p+1 once it has the inputs of
 * pass p+1 of each peer, which that peer's group sent after it was done with pass p: so the slots of results are free.
 *
 * The shape of a launch (grid, algorithm, datatype) may change from launch to launch: rule 1 does not depend on it.
 * Packets and lines have regions of their own: a line holds user data where a packet has its flag.
 */
#ifndef BEELINE_STAGING_CUH
#define BEELINE_STAGING_CUH

#include <primitives.cuh>

enum { PACKET_BYTES = 16, LINE_BYTES = 128, LINE_WORDS = 15, LINE_LANES = 8 };

BL_DEVICE uint64_t packet_stride(const struct bl_kernel_args &a) {
    return a.layout.packets * PACKET_BYTES;
}
BL_DEVICE uint64_t line_stride(const struct bl_kernel_args &a) {
    return a.layout.lines * LINE_BYTES;
}

/* Where the packets of rank 0 lie in our own staging in the launch of epoch e; the next rank's are packet_stride on. */
BL_DEVICE unsigned char *packets_begin(const struct bl_kernel_args &a, uint64_t e) {
    return a.staging[a.rank] + a.layout.packet_offset + (e & 1) * a.nranks * packet_stride(a);
}

/* One-shot: the whole half belongs to the sources, 2 * layout.lines lines each. */
BL_DEVICE unsigned char *lines_begin(const struct bl_kernel_args &a, uint64_t e) {
    return a.staging[a.rank] + a.layout.line_offset + (e & 1) * a.nranks * 2 * line_stride(a);
}

/* Two-shot: a part of the half for each phase (0: inputs, 1: results). */
BL_DEVICE unsigned char *lines_begin_phase(const struct bl_kernel_args &a, uint64_t e, unsigned phase) {
    return lines_begin(a, e) + phase * a.nranks * line_stride(a);
}

/* The address in `owner`'s staging, as mapped here, of what `own` is in ours. */
BL_DEVICE unsigned char *staging_of(const struct bl_kernel_args &a, const unsigned char *own, unsigned owner) {
    return a.staging[owner] + (own - a.staging[a.rank]);
}

/* The i-th peer to write to, i = 1..nranks-1: each rank begins with another, so that no rank's links fill up first. */
BL_DEVICE unsigned peer_at(unsigned rank, unsigned i, unsigned nranks) {
    return rank + i < nranks ? rank + i : rank + i - nranks;
}

/* The epoch is kept once a warp, so that a launch starts with one load and ends with stores that nobody waits for,
 * without a barrier or an atomic: each warp of this launch updates its own word and its share of the words of those
 * warps that the grid lacks, in runs that fill whole sectors (strewn over the lines they cost a small grid 1.5 us on an
 * H200). */
BL_DEVICE uint64_t epoch_begin(const struct bl_kernel_args &a) {
    return load_own(&a.epochs[thread_in_grid() / 32]);
}

BL_DEVICE void epoch_end(const struct bl_kernel_args &a, uint64_t e, uint64_t passes) {
    warp_sync(); /* every lane has read the word of this warp */
    const unsigned warps = threads_in_grid() / 32, warp = thread_in_grid() / 32;
    const uint64_t next = e + (passes | 1);
    if (lane_in_warp() == 0) store_own(&a.epochs[warp], next);
    for (unsigned w = warps + thread_in_grid(); w < BL_MAX_WARPS; w += threads_in_grid()) store_own(&a.epochs[w], next);
}

/* Waiting for peers: poll, and every so often look whether to give up.  Uniform over the warp. */
struct Wait {
    uint32_t polls;
    uint64_t since;
};

static const uint64_t HOST_LOOK_NS = 1000000;

/* Whether the host, or a wait that ran out, has told this device to stop.  Words in host memory are read over PCIe one
 * after another (1.5 us each on an H200: 3 ms if every warp of a full grid looks), so at most one thread in
 * HOST_LOOK_NS reads them, and leaves what it read in device memory for all. */
BL_DEVICE bool told_to_stop(const struct bl_kernel_args &a, uint64_t now) {
    uint64_t *next_look = a.epochs + BL_MAX_WARPS, *stop = next_look + 1;
    const uint64_t due = load_relaxed_sys(next_look);
    if (now >= due && atomic_cas_relaxed_gpu(next_look, due, now + HOST_LOOK_NS) == due &&
        load_host_relaxed_sys(&a.control->abort))
        store_relaxed_sys(stop, 1);
    return load_relaxed_sys(stop) != 0;
}

/* After a failed poll: true to poll again, false to leave the kernel.  `missing` is a rank that this lane waits for, or
 * its own if there is none. */
BL_DEVICE bool wait_again(const struct bl_kernel_args &a, Wait &wait, unsigned missing, uint64_t flag) {
    spin_pause();
    if (++wait.polls % POLLS_PER_LOOK) return true;
    const uint64_t now = clock_ns();
    if (wait.since == 0) wait.since = now;
    const bool in_time = a.timeout_ns == 0 || now - wait.since <= a.timeout_ns;
    if (!warp_all(in_time)) {
        if (missing != a.rank) { /* this lane is one of those that wait */
            store_host_relaxed_sys(&a.control->error_peer, missing);
            store_host64_relaxed_sys(&a.control->error_epoch, flag);
            fence_acq_rel_sys(); /* whoever reads the error reads what goes with it */
            store_host_relaxed_sys(&a.control->error, BL_KERNEL_TIMEOUT);
            store_host_relaxed_sys(&a.control->abort, 1);
            store_relaxed_sys(&a.epochs[BL_MAX_WARPS + 1], 1); /* the other warps and later launches leave too */
        }
        return false;
    }
    return warp_all(!told_to_stop(a, now));
}

/* What was waited for has come: the next wait has its own time. */
BL_DEVICE void wait_over(Wait &wait) {
    wait.since = 0;
}

#endif
