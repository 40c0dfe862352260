/* identity.h - what each rank tells the others of itself before anything else, and what follows from it.
 *
 * Once exchanged the facts are equal on all ranks: bl_identity_judge and bl_identity_layout are pure functions of the
 * array, so every rank comes to the same answer.
 */
#ifndef BEELINE_IDENTITY_H
#define BEELINE_IDENTITY_H

#include <stdbool.h>
#include <stdint.h>

#include "cuda/driver.h"
#include "kernels.h"
#include "verdict.h"

/* Plain bytes: goes from process to process.  Texts are zero-terminated. */
struct bl_identity {
    int32_t pid;
    int32_t capable, alarming; /* not capable: `reason` says why; alarming: worth a warning */
    int32_t arch;              /* 90 for sm_90 */
    uint32_t sms, max_threads, block_memory;
    uint16_t nvlinks, nvswitch;                    /* active ones, 0: not known; they lead to switches */
    uint16_t nccl_nvls, zero_ctas;                 /* NCCL may use multicast here; the zero-CTA policy */
    uint16_t copy_engines, copy_possible;          /* whether they are asked for here; not possible: copy_reason */
    uint16_t multicast_wanted, multicast_possible; /* not possible: multicast_reason */
    uint32_t max_blocks;                           /* of a launch, as asked for; 0: nothing is */
    uint16_t has_switch, nonblocking;              /* switch.h; the communicator, on this rank */
    uint16_t pieces;                               /* of rank 0: whether there may be routes of them */
    uint64_t staging, timeout_s, tune;             /* BEELINE_STAGING, BEELINE_TIMEOUT, BEELINE_TUNE */
    uint64_t offered;                              /* of staging, by what the process's budget has left */
    uint64_t pids;                                 /* the namespace that `pid` is of */
    unsigned char nonce[16];
    unsigned char uuid[16]; /* of the GPU */
    char pci[16], gpu[64];
    char reason[160];
    char multicast_reason[80], copy_reason[80];
    char settings[2048];
};

/* Fills in all but the nonce, max_blocks, `offered` and what is said of policies, copy engines and blocking.  Never fails: what cannot be
 * learnt makes the rank not capable. */
void bl_identity_fill(struct bl_identity *identity, CUdevice device);

/* Whether Beeline can serve these ranks; if not, bl_why(). */
enum bl_outcome bl_identity_judge(const struct bl_identity *all, int nranks);

/* Lays the staging out from what all ranks can do; 0, or -1 if BEELINE_STAGING of rank 0 is too small, or a budget. */
int bl_identity_layout(const struct bl_identity *all, int nranks, struct bl_staging_layout *layout);

/* Whether budgets leave less than half of what would be of use. */
bool bl_identity_short(const struct bl_identity *all, int nranks);

/* 0 if all ranks can have multicast, as far as that is clear by now; else -1 and bl_why(): "rank 2: NCCL_NVLS_ENABLE=0". */
int bl_identity_multicast(const struct bl_identity *all, int nranks);

/* The same for every rank: the fewest multiprocessors, threads and bytes of a block, blocks (UINT_MAX: any) and NVLinks, the lowest architecture, and
 * whether NCCL may use multicast, and is to do without blocks what it can, on any. */
struct bl_identity_least {
    unsigned sms, max_threads, block_memory, max_blocks, nvlinks;
    int arch;
    bool nccl_nvls, zero_ctas;
};
struct bl_identity_least bl_identity_least(const struct bl_identity *all, int nranks);

#endif
