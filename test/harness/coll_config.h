/* coll_config.h - ncclCollConfig_t as NCCL 2.32 has it, whatever nccl.h is at hand. */
#ifndef BEELINE_TEST_COLL_CONFIG_H
#define BEELINE_TEST_COLL_CONFIG_H

#include <nccl.h>
#include <stddef.h>
#include <stdint.h>

struct coll_config {
    size_t size;
    unsigned magic, version;
    void *ext;
    int min_ctas, max_ctas, nvls_ctas, cga_cluster_size;
    const char *selection;
    int force_selection, cta_policy;
    uint64_t tag;
    void *event;
};

/* Which says nothing. */
static const struct coll_config coll_config_unset = {.size = sizeof(struct coll_config),
                                                     .magic = 0xcafebeef,
                                                     .version = 23203,
                                                     .min_ctas = NCCL_CONFIG_UNDEF_INT,
                                                     .max_ctas = NCCL_CONFIG_UNDEF_INT,
                                                     .nvls_ctas = NCCL_CONFIG_UNDEF_INT,
                                                     .cga_cluster_size = NCCL_CONFIG_UNDEF_INT,
                                                     .force_selection = 1,
                                                     .cta_policy = NCCL_CONFIG_UNDEF_INT};

#endif
