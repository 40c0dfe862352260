/* config.h - what callers ask for in NCCL's configurations, of communicators and of calls.
 *
 * NCCL's structures grow at the end, and tell their size and the version that they come from: they are read as those of NCCL
 * 2.32.3, whatever nccl.h is at hand, and of what is not there nothing is asked.  What is not valid is for NCCL to refuse.
 */
#ifndef BEELINE_CONFIG_H
#define BEELINE_CONFIG_H

#include <stdbool.h>

#include "dispatch.h"
#include "nccl.h"
#include "nccl_later.h"

/* What matters to Beeline of a communicator's configuration; all zero: nothing is asked for. */
struct bl_wishes {
    bool zero_ctas; /* the zero-CTA policy */
    bool unmixed;   /* graphUsageMode 0 or 1: nothing is to order replays beside other calls */
    bool in_order;  /* launchOrderImplicit: each call is behind all earlier ones of its GPU */
    bool checked;   /* NCCL_CHECK_POINTERS: NCCL refuses addresses that are none of the GPU's */
    int max_blocks; /* of a launch (maxCTAs); 0: as many as it takes */
    char name[64];  /* commName, cut off; "" if there is none */
};

/* NULL: nothing is asked for.  The environment comes before the configuration, as in NCCL: NCCL_MAX_CTAS,
 * NCCL_MAX_NCHANNELS (the lesser), NCCL_CTA_POLICY, NCCL_GRAPH_MIXING_SUPPORT, NCCL_LAUNCH_ORDER_IMPLICIT, NCCL_CHECK_POINTERS. */
struct bl_wishes bl_config_wishes(const ncclConfig_t *config);

/* BL_REASON_CONFIG if a call's configuration asks for what NCCL alone can do: its own number of blocks or algorithm,
 * or an event at the launch's completion; else BL_REASONS.  Equal on all ranks, as NCCL demands.  Never of a call of
 * NCCL's own; the first time a line at INFO says what it asks for. */
enum bl_reason bl_config_for_nccl(const ncclCollConfig_t *config, const char *function);

#endif
