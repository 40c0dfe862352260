#include "set.h"

void set_issue(struct part *part, struct call *call, const ncclComm_t *comms, int stream) {
    for (int i = 0; i < part->count; i++)
        NCCL_OK(call_issue_rank(part, call, i, comms[i], part->rank[i].stream[stream]));
}

void set_check(struct part *part, struct set *set) {
    part_synchronize(part);
    for (int k = 0; k < set->count; k++) {
        call_check(part, &set->call[k]);
        call_refill(part, &set->call[k]);
    }
}

void set_free(struct part *part, struct set *set) {
    for (int k = 0; k < set->count; k++) call_free(part, &set->call[k]);
    set->count = 0;
}

int set_kernels(const struct graphs *graphs) {
    CUgraphNode nodes[4 * SET_MOST];
    size_t count = 4 * SET_MOST;
    int kernels = 0;
    CU_OK(cuGraphGetNodes(graphs->graph[0], nodes, &count));
    for (size_t i = 0; i < count; i++) {
        CUgraphNodeType type;
        CU_OK(cuGraphNodeGetType(nodes[i], &type));
        kernels += type == CU_GRAPH_NODE_TYPE_KERNEL;
    }
    return kernels;
}

void set_capture(struct part *part, struct set *set, const ncclComm_t *comms, struct graphs *graphs) {
    graphs_begin(part, 0);
    NCCL_OK(ncclGroupStart());
    for (int k = 0; k < set->count; k++) set_issue(part, &set->call[k], comms, 0);
    NCCL_OK(ncclGroupEnd());
    graphs_end(part, 0, graphs);
}

void set_prepare_rooted(struct part *part, struct call *call, int root) {
    while (call_root(part, call) != root) call->seed++;
    call_prepare(part, call);
}

void set_add_heavy(struct part *part, struct set *set) {
    for (int i = 0; i < SET_HEAVY; i++) {
        struct call *const call = &set->call[set->count++];
        *call = (struct call){.collective = BL_BROADCAST,
                              .seed = part->box->seed + (uint64_t)(7 + i) * 1000,
                              .datatype = ref_datatype("float"),
                              .redop = ref_redop("sum"),
                              .count = 1500};
        set_prepare_rooted(part, call, 1);
    }
}
