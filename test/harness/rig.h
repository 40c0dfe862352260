/* rig.h - all that the kernels alone need, without NCCL and the library: staging that all ranks map, epochs, control words,
 * modules, and the launch of a kernel with its arguments.
 *
 * One part holds all ranks (MODE_GROUPS); several may be on one GPU.  Errors as box.h has them.
 */
#ifndef BEELINE_TEST_RIG_H
#define BEELINE_TEST_RIG_H

#include "box.h"
#include "kernels.h"
#include "multicast.h"

enum { MOST_FATBINS = 32 };

struct rig {
    struct part *part;
    struct bl_staging_layout layout;
    CUmodule module[BOX_RANKS][MOST_FATBINS]; /* equal for the ranks of a GPU */
    CUmemGenericAllocationHandle handle[BOX_RANKS];
    CUdeviceptr staging[BOX_RANKS], epochs[BOX_RANKS];
    size_t bytes;
    struct bl_control *control[BOX_RANKS];
    CUdeviceptr control_there[BOX_RANKS];
    CUfunction function[BOX_RANKS][BL_KERNELS][BL_DATATYPES]; /* those that were launched */
    uint64_t timeout_ns;
    bool torn;                         /* a launch was told to leave: what it had not received is still there */
    const struct multicast *multicast; /* NULL, or what the kernels that need it are launched with; the caller's */
};

/* Whether it can be asked to: copy engines do the one's work, and the others are picked by what there is to carry. */
static inline bool rig_launches(int kernel) {
    return kernel != BL_KERNEL_ALLGATHER_CE && !bl_kernel_short(kernel);
}

struct shape {
    int kernel;
    unsigned threads, most_blocks;
    int messages;        /* more than one only for kernels that take several */
    unsigned odd_blocks; /* not 0: most_blocks on odd ranks */
    bool twoshot;        /* of several collectives: all-reduces are divided among the ranks, however short */
    bool general;        /* messages between two ranks go by the kernel for any, though a short one would do */
};

/* What the lines of rank i hold until something comes: bl_kernel_args.blank. */
void rig_blank(int i, uint64_t blank[2]);

/* As if rank i's device had been told to stop, before any launch. */
void rig_stop(struct rig *rig, int i);
/* Fills the lines of rank i with these 16 bytes, over and over; checks that they are full of them. */
void rig_fill_lines(struct rig *rig, int i, const uint64_t words[2]);
void rig_check_lines(const struct rig *rig, int i, const uint64_t words[2]);

/* multicast: the staging has a plan for a multicast object, which this does not make. */
void rig_open(struct rig *rig, struct part *part, uint64_t staging_bytes, bool multicast, uint64_t timeout_ns);
/* Does rig_drain, too; and checks that all lines are blank, and that nothing was written behind the staging. */
void rig_close(struct rig *rig);

/* Until what was copied from the host is there for all streams: a copy from pageable memory returns before, and the ranks'
 * streams do not wait for the null stream. */
void rig_settle(const struct rig *rig);

/* As if so much had gone before, of launches, of lines of one-way ones and of pieces.  No kernel may be running. */
void rig_set_epochs(struct rig *rig, uint64_t epoch, uint64_t cursor);

/* Threads of a block and blocks with which `bytes` of user data are launched. */
unsigned rig_threads(const struct rig *rig, const struct shape *shape);
unsigned rig_blocks(const struct rig *rig, const struct shape *shape, uint64_t bytes);

/* Launches shape->messages calls on rank i, on its first stream, as the library does. */
void rig_launch(struct rig *rig, struct call *calls, const struct shape *shape, int i);

/* Waits for all streams.  Once a kernel has waited for too long, all ranks are told to leave: they would wait on. */
void rig_drain(struct rig *rig);

/* A rank one of whose kernels has waited for too long, or -1. */
int rig_failed(const struct rig *rig);
void rig_expect_no_error(const struct rig *rig);

#endif
