/* exec.c - what instantiating makes of graphs, its updates and its launches. */
#include "emu.h"

#include <stdlib.h>
#include <string.h>

static void plan_free(struct emu_plan *plan) {
    for (int i = 0; plan->ops && i < plan->count; i++) emu_op_free(&plan->ops[i]);
    for (int i = 0; plan->next && i < plan->count; i++) free(plan->next[i]);
    free(plan->ops);
    free(plan->next);
    free(plan->nnext);
    free(plan->indegree);
    free(plan);
}

void emu_plan_done(struct emu_plan *plan) {
    if (--plan->uses == 0) plan_free(plan);
}

static bool add_edge(struct emu_plan *plan, int from, int to) {
    int *more = realloc(plan->next[from], (size_t)(plan->nnext[from] + 1) * sizeof *more);
    if (!more) return false;
    plan->next[from] = more;
    more[plan->nnext[from]++] = to;
    return true;
}

static struct emu_plan *plan_new(const struct emu_graph *graph) {
    struct emu_plan *plan = calloc(1, sizeof *plan);
    if (!plan) return NULL;
    const size_t count = (size_t)graph->count;
    plan->uses = 1;
    plan->ops = calloc(count + 1, sizeof *plan->ops);
    plan->next = calloc(count + 1, sizeof *plan->next);
    plan->nnext = calloc(count + 1, sizeof *plan->nnext);
    plan->indegree = calloc(count + 1, sizeof *plan->indegree);
    bool good = plan->ops && plan->next && plan->nnext && plan->indegree;
    for (int i = 0; good && i < graph->count; i++) {
        const struct emu_node *node = graph->nodes[i];
        plan->ops[i] = emu_op_copy(&node->op);
        plan->count = i + 1;
        plan->indegree[i] = node->ndeps;
        for (int j = 0; good && j < node->ndeps; j++) good = add_edge(plan, node->deps[j]->index, i);
    }
    if (good) return plan;
    plan_free(plan);
    return NULL;
}

/* Kernels, copies and fills alone, as seen on hardware; also of bodies of conditional nodes, which the box does not have. */
static bool is_for_devices(const struct emu_graph *graph) {
    bool is = true;
    for (int i = 0; i < graph->count; i++) {
        const CUgraphNodeType type = emu_node_type(&graph->nodes[i]->op);
        is = is && (type == CU_GRAPH_NODE_TYPE_KERNEL || type == CU_GRAPH_NODE_TYPE_MEMCPY ||
                    type == CU_GRAPH_NODE_TYPE_MEMSET);
    }
    return is;
}

EMU_LOCKED(cuGraphInstantiateWithFlags, 11040, (CUgraphExec * out, CUgraph handle, unsigned long long flags),
           (out, handle, flags)) {
    struct emu_context *context;
    struct emu_graph *graph = emu_object_get(handle, EMU_GRAPH);
    if (!out || !graph) return CUDA_ERROR_INVALID_VALUE;
    EMU_TRY(emu_context_need(&context));
    EMU_TRY(emu_capture_unsafe()); /* seen on hardware: not while this thread captures */
    if (flags & CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH && !is_for_devices(graph)) return CUDA_ERROR_INVALID_VALUE;
    struct emu_plan *plan = plan_new(graph);
    struct emu_exec *exec = plan ? emu_object_new(EMU_EXEC, sizeof *exec) : NULL;
    if (!exec) return CUDA_ERROR_OUT_OF_MEMORY;
    exec->plan = plan;
    *out = (CUgraphExec)exec;
    return CUDA_SUCCESS;
}

EMU_ROW(cuGraphInstantiate, 12000, cuGraphInstantiateWithFlags)

/* Whether the node has the same place among the others as op `index` of the plan. */
static bool is_alike(const struct emu_plan *plan, int index, const struct emu_node *node) {
    bool alike = plan->indegree[index] == node->ndeps;
    for (int j = 0; alike && j < node->ndeps; j++) {
        const int from = node->deps[j]->index;
        bool found = false;
        for (int k = 0; k < plan->nnext[from]; k++) found = found || plan->next[from][k] == index;
        alike = found;
    }
    return alike;
}

static int device_at(const void *address) {
    const struct emu_range *range = emu_range_of((uintptr_t)address);
    return range ? range->device : -1;
}

/* What may not change of a node whose kind has not. */
static CUgraphExecUpdateResult change(const struct emu_op *now, const struct emu_op *then) {
    bool alike = now->context == then->context;
    switch (now->kind) {
    case EMU_OP_KERNEL:
        if (now->kernel.early != then->kernel.early) return CU_GRAPH_EXEC_UPDATE_ERROR_ATTRIBUTES_CHANGED;
        return alike ? CU_GRAPH_EXEC_UPDATE_SUCCESS : CU_GRAPH_EXEC_UPDATE_ERROR_UNSUPPORTED_FUNCTION_CHANGE;
    case EMU_OP_COPY:
        alike = alike && device_at(now->copy.dst) == device_at(then->copy.dst) &&
                device_at(now->copy.src) == device_at(then->copy.src);
        break;
    case EMU_OP_SET: alike = alike && device_at(now->set.dst) == device_at(then->set.dst); break;
    default: return CU_GRAPH_EXEC_UPDATE_SUCCESS;
    }
    return alike ? CU_GRAPH_EXEC_UPDATE_SUCCESS : CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED;
}

/* What keeps the instance from becoming the graph, and at which node, if at one.  Nodes are told by the order in which they were made. */
static CUgraphExecUpdateResult difference(const struct emu_plan *plan, const struct emu_graph *graph, int *at) {
    *at = graph->count;
    if (plan->count != graph->count) return CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED;
    for (*at = 0; *at < graph->count; ++*at) {
        const struct emu_op *now = &plan->ops[*at], *then = &graph->nodes[*at]->op;
        if (!is_alike(plan, *at, graph->nodes[*at])) return CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED;
        if (now->kind != then->kind || emu_node_type(now) != emu_node_type(then))
            return CU_GRAPH_EXEC_UPDATE_ERROR_NODE_TYPE_CHANGED;
        const CUgraphExecUpdateResult result = change(now, then);
        if (result != CU_GRAPH_EXEC_UPDATE_SUCCESS) return result;
    }
    return CU_GRAPH_EXEC_UPDATE_SUCCESS;
}

/* Launches under way stay what they were. */
EMU_LOCKED(cuGraphExecUpdate_v2, 12000, (CUgraphExec handle, CUgraph from, CUgraphExecUpdateResultInfo *info),
           (handle, from, info)) {
    struct emu_exec *exec = emu_object_get(handle, EMU_EXEC);
    const struct emu_graph *graph = emu_object_get(from, EMU_GRAPH);
    int at;
    if (!exec || !graph || !info) return CUDA_ERROR_INVALID_VALUE;
    *info = (CUgraphExecUpdateResultInfo){.result = difference(exec->plan, graph, &at)};
    if (info->result != CU_GRAPH_EXEC_UPDATE_SUCCESS) {
        if (at < graph->count) info->errorNode = (CUgraphNode)graph->nodes[at];
        return CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE;
    }
    struct emu_plan *plan = plan_new(graph);
    if (!plan) return CUDA_ERROR_OUT_OF_MEMORY;
    emu_plan_done(exec->plan);
    exec->plan = plan;
    return CUDA_SUCCESS;
}

EMU_LOCKED(cuGraphExecDestroy, 10000, (CUgraphExec handle), (handle)) {
    struct emu_exec *exec = emu_object_get(handle, EMU_EXEC);
    if (!exec) return CUDA_ERROR_INVALID_VALUE;
    emu_object_end(exec); /* no new launch; those under way finish, and the last frees the plan */
    emu_plan_done(exec->plan);
    return CUDA_SUCCESS;
}

EMU_CALL(cuGraphUpload, 11010, (CUgraphExec handle, CUstream stream), (handle, stream)) {
    return emu_object_get(handle, EMU_EXEC) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* Of the events of nodes that record or wait, when the graph is launched, in stream order with other records.  Waits are for what
 * was recorded before that, none for a record of the same graph: a GPU may be kinder, and no graph may count on it. */
static uint64_t *event_versions(const struct emu_plan *plan) {
    uint64_t *versions = calloc((size_t)plan->count + 1, sizeof *versions);
    for (int i = 0; versions && i < plan->count; i++)
        if (plan->ops[i].kind == EMU_OP_WAIT) versions[i] = plan->ops[i].event.event->recorded;
    for (int i = 0; versions && i < plan->count; i++) {
        struct emu_op *op = &plan->ops[i];
        if (op->kind != EMU_OP_RECORD) continue;
        op->event.event->capture = NULL;
        versions[i] = ++op->event.event->recorded;
    }
    return versions;
}

EMU_LOCKED(cuGraphLaunch, 10000, (CUgraphExec handle, CUstream stream_handle), (handle, stream_handle)) {
    struct emu_stream *stream;
    struct emu_exec *exec = emu_object_get(handle, EMU_EXEC);
    if (!exec) return CUDA_ERROR_INVALID_VALUE;
    EMU_TRY(emu_stream_usable(stream_handle, &stream));
    EMU_TRY(emu_capture_refuse(stream)); /* child graphs are not emulated */
    for (int i = 0; i < exec->plan->count; i++) {
        struct emu_function *function =
            exec->plan->ops[i].kind == EMU_OP_KERNEL ? exec->plan->ops[i].kernel.function : NULL;
        if (function && !function->object.alive) emu_object_gone(function, function); /* its module was unloaded */
    }
    uint64_t *versions = event_versions(exec->plan);
    if (!versions) return CUDA_ERROR_OUT_OF_MEMORY;
    if (exec->last_stream && exec->last_stream != stream && exec->last_stream->completed < exec->last_submitted)
        emu_push_after(stream, exec->last_stream, exec->last_submitted);
    struct emu_op op = {
        .kind = EMU_OP_GRAPH, .context = stream->context, .graph = {.plan = exec->plan, .versions = versions}};
    exec->plan->uses++;
    emu_push(stream, &op);
    exec->last_stream = stream;
    exec->last_submitted = stream->submitted;
    return CUDA_SUCCESS;
}
