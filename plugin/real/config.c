/* config.c - see config.h. */
#include "config.h"

#include <errno.h>
#include <limits.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/log.h"
#include "base/params.h"
#include "real.h"

enum { UNSET = INT_MIN, POLICY_ZERO = 2, GRAPHS_MIXED = 2, NAMES = 22700 /* no older config has names, policies */ };
static const unsigned magic = 0xcafebeef;

/* The beginning of ncclConfig_t. */
struct comm_config {
    size_t size;
    unsigned magic, version;
    int blocking, cga_cluster_size, min_ctas, max_ctas;
    const char *net_name;
    int split_share, traffic_class;
    const char *comm_name;
    int collnet_enable, cta_policy, shrink_share, nvls_ctas, net_channels, nvlink_schedule, graph_usage, rma_contexts,
        p2p_peers, graph_stream_order, launch_order;
};

/* The beginning of ncclCollConfig_t. */
struct call_config {
    size_t size;
    unsigned magic, version;
    const void *ext;
    int min_ctas, max_ctas, nvls_ctas, cga_cluster_size;
    const char *selection;
    int force_selection, cta_policy;
    uint64_t profiler_tag;
    void *launch_completion_event;
};

/* A member that ends behind the structure's size is not there. */
#define HAS(config, member) ((config)->size >= offsetof(__typeof__(*(config)), member) + sizeof((config)->member))

static void read_config(struct bl_wishes *wishes, const struct comm_config *config) {
    if (HAS(config, max_ctas) && config->max_ctas > 0) wishes->max_blocks = config->max_ctas;
    if (HAS(config, cta_policy) && config->version >= NAMES && config->cta_policy != UNSET)
        wishes->zero_ctas = (config->cta_policy & POLICY_ZERO) != 0;
    if (HAS(config, graph_usage) && config->graph_usage != UNSET) wishes->unmixed = config->graph_usage != GRAPHS_MIXED;
    if (HAS(config, launch_order) && config->launch_order != UNSET) wishes->in_order = config->launch_order != 0;
    if (HAS(config, comm_name) && config->version >= NAMES && config->comm_name)
        snprintf(wishes->name, sizeof(wishes->name), "%s", config->comm_name);
}

/* A number, as NCCL reads it (of what is none, 0); UNSET if the variable is not set. */
static long long number(const char *text) {
    if (!text) return UNSET;
    errno = 0;
    const long long value = strtoll(text, NULL, 0);
    return errno ? UNSET : value;
}

/* Whether NCCL_CTA_POLICY has ZERO; UNSET if it says nothing that NCCL knows.  NCCL 2.29 and later read one digit, or names; before, a
 * number. */
static int has_zero(const char *policy) {
    if (!policy) return UNSET;
    if (*policy >= '0' && *policy <= '9') return *policy > '2' ? UNSET : *policy == '2';
    if (bl_param_is_one_of("ZERO", policy)) return true;
    return bl_param_is_one_of("DEFAULT", policy) || bl_param_is_one_of("EFFICIENCY", policy) ? false : UNSET;
}

static void read_environment(struct bl_wishes *wishes, const struct bl_params *params) {
    const int zero = has_zero(params->cta_policy), channels = params->batch_invariant ? 0 : (int)params->max_channels;
    const long long mixing = number(params->graph_mixing), order = number(params->launch_order),
                    checked = number(params->check_pointers);
    if (params->max_ctas) wishes->max_blocks = (int)params->max_ctas;
    if (channels && (!wishes->max_blocks || channels < wishes->max_blocks)) wishes->max_blocks = channels;
    if (zero != UNSET) wishes->zero_ctas = zero;
    if (mixing == 0 || mixing == 1) wishes->unmixed = !mixing;
    if (order != UNSET) wishes->in_order = order != 0;
    wishes->checked = checked != UNSET && checked != 0;
}

struct bl_wishes bl_config_wishes(const ncclConfig_t *given) {
    const struct comm_config *config = (const struct comm_config *)given;
    struct bl_wishes wishes = {0};
    if (config && config->magic == magic) read_config(&wishes, config);
    read_environment(&wishes, bl_params_of_nccl());
    return wishes;
}

/* NULL: nothing. */
static const char *asks_of_nccl(const ncclCollConfig_t *given) {
    const struct call_config *config = (const struct call_config *)given;
    if (!config) return NULL;
    if (config->magic != magic || !HAS(config, cta_policy)) return "what is not valid";
    if (config->min_ctas != UNSET || config->max_ctas != UNSET || config->nvls_ctas != UNSET) return "a number of CTAs";
    if (config->cga_cluster_size != UNSET) return "cgaClusterSize";
    if (config->selection && *config->selection) return "algSelection";
    if (config->cta_policy != UNSET) return "CTAPolicy";
    if (HAS(config, launch_completion_event) && config->launch_completion_event) return "launchCompletionEvent";
    return NULL;
}

enum bl_reason bl_config_for_nccl(const ncclCollConfig_t *config, const char *function) {
    static atomic_bool logged;
    const char *asks = bl_real_depth == 0 ? asks_of_nccl(config) : NULL;
    if (asks && !atomic_exchange(&logged, true))
        bl_info("%s: the call's configuration asks for %s: calls with such ones go to NCCL", function, asks);
    return asks ? BL_REASON_CONFIG : BL_REASONS;
}
