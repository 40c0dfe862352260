/* graph.c - graphs: nodes and edges. */
#include "emu.h"

#include <stdlib.h>
#include <string.h>

struct emu_graph *emu_graph_new(void) {
    return emu_object_new(EMU_GRAPH, sizeof(struct emu_graph));
}

struct emu_node *emu_graph_add(struct emu_graph *graph, struct emu_op *op, struct emu_node *const *deps, int ndeps) {
    struct emu_node *node = emu_object_new(EMU_NODE, sizeof *node);
    if (graph->count == graph->space) {
        int space = graph->space ? graph->space * 2 : 16;
        struct emu_node **more = realloc(graph->nodes, (size_t)space * sizeof *more);
        if (!more) return NULL;
        graph->nodes = more;
        graph->space = space;
    }
    if (!node) return NULL;
    node->graph = graph;
    node->op = *op;
    node->index = graph->count;
    graph->nodes[graph->count++] = node;
    emu_set_deps(&node->deps, &node->ndeps, deps, ndeps);
    return node;
}

void emu_graph_end(struct emu_graph *graph) {
    for (int i = 0; i < graph->count; i++) {
        emu_op_free(&graph->nodes[i]->op);
        free(graph->nodes[i]->deps);
        emu_object_end(graph->nodes[i]);
    }
    free(graph->nodes);
    graph->nodes = NULL;
    graph->count = graph->space = 0;
    emu_object_end(graph);
}

EMU_CALL(cuGraphCreate, 10000, (CUgraph * out, unsigned flags), (out, flags)) {
    if (!out || flags) return CUDA_ERROR_INVALID_VALUE;
    *out = (CUgraph)emu_graph_new();
    return *out ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

EMU_LOCKED(cuGraphDestroy, 10000, (CUgraph handle), (handle)) {
    struct emu_graph *graph = emu_object_get(handle, EMU_GRAPH);
    if (!graph) return CUDA_ERROR_INVALID_VALUE;
    emu_graph_end(graph);
    return CUDA_SUCCESS;
}

/* Fills an array of handles as the query functions do: *count is its room, then what there is. */
static void fill(CUgraphNode *out, size_t *count, struct emu_node *const *nodes, int n) {
    if (out) {
        for (size_t i = 0; i < *count; i++) out[i] = i < (size_t)n ? (CUgraphNode)nodes[i] : NULL;
        if (*count > (size_t)n) *count = (size_t)n;
    } else {
        *count = (size_t)n;
    }
}

EMU_LOCKED(cuGraphGetNodes, 10000, (CUgraph handle, CUgraphNode *nodes, size_t *count), (handle, nodes, count)) {
    struct emu_graph *graph = emu_object_get(handle, EMU_GRAPH);
    if (!graph || !count) return CUDA_ERROR_INVALID_VALUE;
    fill(nodes, count, graph->nodes, graph->count);
    return CUDA_SUCCESS;
}

EMU_LOCKED(cuGraphNodeGetDependencies_v2, 12030,
           (CUgraphNode handle, CUgraphNode *deps, CUgraphEdgeData *edges, size_t *count),
           (handle, deps, edges, count)) {
    struct emu_node *node = emu_object_get(handle, EMU_NODE);
    if (!node || !count) return CUDA_ERROR_INVALID_VALUE;
    fill(deps, count, node->deps, node->ndeps);
    if (edges) memset(edges, 0, *count * sizeof *edges);
    return CUDA_SUCCESS;
}

#undef cuGraphNodeGetDependencies
EMU_LOCKED(cuGraphNodeGetDependencies, 10000, (CUgraphNode handle, CUgraphNode *deps, size_t *count),
           (handle, deps, count)) {
    return cuGraphNodeGetDependencies_v2_body(handle, deps, NULL, count);
}

CUresult emu_graph_check(const struct emu_graph *graph, const CUgraphNode *nodes, size_t count) {
    for (size_t i = 0; i < count; i++) {
        struct emu_node *node = emu_object_get(nodes[i], EMU_NODE);
        if (!node || node->graph != graph) return CUDA_ERROR_INVALID_VALUE;
    }
    return CUDA_SUCCESS;
}

static CUresult change_edge(struct emu_node *from, struct emu_node *to, bool wanted) {
    int at = 0;
    while (at < to->ndeps && to->deps[at] != from) at++;
    if (from == to || (at < to->ndeps) == wanted) return CUDA_ERROR_INVALID_VALUE; /* it is there already, or is not */
    if (!wanted) {
        to->deps[at] = to->deps[--to->ndeps];
        return CUDA_SUCCESS;
    }
    struct emu_node **more = realloc(to->deps, ((size_t)to->ndeps + 1) * sizeof *more);
    if (!more) return CUDA_ERROR_OUT_OF_MEMORY;
    (to->deps = more)[to->ndeps++] = from;
    return CUDA_SUCCESS;
}

/* Edges one by one: to[i] depends on from[i], or does no more. */
static CUresult change_edges(CUgraph handle, const CUgraphNode *from, const CUgraphNode *to, size_t count,
                             bool wanted) {
    struct emu_graph *graph = emu_object_get(handle, EMU_GRAPH);
    if (!graph || (count && (!from || !to))) return CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; i < count; i++) {
        EMU_TRY(emu_graph_check(graph, &from[i], 1));
        EMU_TRY(emu_graph_check(graph, &to[i], 1));
        EMU_TRY(change_edge((struct emu_node *)from[i], (struct emu_node *)to[i], wanted));
    }
    return CUDA_SUCCESS;
}

EMU_LOCKED(cuGraphAddDependencies_v2, 12030,
           (CUgraph graph, const CUgraphNode *from, const CUgraphNode *to, const CUgraphEdgeData *edges, size_t count),
           (graph, from, to, edges, count)) {
    return change_edges(graph, from, to, count, true);
}

EMU_LOCKED(cuGraphRemoveDependencies_v2, 12030,
           (CUgraph graph, const CUgraphNode *from, const CUgraphNode *to, const CUgraphEdgeData *edges, size_t count),
           (graph, from, to, edges, count)) {
    return change_edges(graph, from, to, count, false);
}

CUgraphNodeType emu_node_type(const struct emu_op *op) {
    static const CUgraphNodeType types[] = {
        [EMU_OP_EMPTY] = CU_GRAPH_NODE_TYPE_EMPTY,     [EMU_OP_KERNEL] = CU_GRAPH_NODE_TYPE_KERNEL,
        [EMU_OP_COPY] = CU_GRAPH_NODE_TYPE_MEMCPY,     [EMU_OP_SET] = CU_GRAPH_NODE_TYPE_MEMSET,
        [EMU_OP_HOST] = CU_GRAPH_NODE_TYPE_HOST,       [EMU_OP_RECORD] = CU_GRAPH_NODE_TYPE_EVENT_RECORD,
        [EMU_OP_WAIT] = CU_GRAPH_NODE_TYPE_WAIT_EVENT, [EMU_OP_MEMOP] = CU_GRAPH_NODE_TYPE_BATCH_MEM_OP,
        [EMU_OP_GRAPH] = CU_GRAPH_NODE_TYPE_GRAPH,
    };
    return op->kind == EMU_OP_HOST && op->host.holds ? CU_GRAPH_NODE_TYPE_KERNEL : types[op->kind];
}

EMU_CALL(cuGraphNodeGetType, 10000, (CUgraphNode handle, CUgraphNodeType *type), (handle, type)) {
    const struct emu_node *node = emu_object_get(handle, EMU_NODE);
    if (!node || !type) return CUDA_ERROR_INVALID_VALUE;
    *type = emu_node_type(&node->op);
    return CUDA_SUCCESS;
}

/* The grid and the block; arguments are the driver's own. */
EMU_CALL(cuGraphKernelNodeGetParams_v2, 12000, (CUgraphNode handle, CUDA_KERNEL_NODE_PARAMS_v2 *params),
         (handle, params)) {
    struct emu_node *node = emu_object_get(handle, EMU_NODE);
    if (!node || !params || emu_node_type(&node->op) != CU_GRAPH_NODE_TYPE_KERNEL) return CUDA_ERROR_INVALID_VALUE;
    *params = (CUDA_KERNEL_NODE_PARAMS_v2){.gridDimX = node->op.kind == EMU_OP_HOST ? node->op.host.holds : 0};
    if (node->op.kind == EMU_OP_HOST) return CUDA_SUCCESS;
    const unsigned *grid = node->op.kernel.grid, *block = node->op.kernel.block;
    params->func = (CUfunction)node->op.kernel.function;
    params->gridDimX = grid[0], params->gridDimY = grid[1], params->gridDimZ = grid[2];
    params->blockDimX = block[0], params->blockDimY = block[1], params->blockDimZ = block[2];
    return CUDA_SUCCESS;
}

static CUresult add(CUgraphNode *out, CUgraph handle, const CUgraphNode *deps, size_t ndeps, struct emu_op *op) {
    struct emu_graph *graph = emu_object_get(handle, EMU_GRAPH);
    if (!graph || !out) return CUDA_ERROR_INVALID_VALUE;
    EMU_TRY(emu_graph_check(graph, deps, ndeps));
    op->context = emu_current();
    struct emu_node *node = emu_graph_add(graph, op, (struct emu_node *const *)deps, (int)ndeps);
    if (!node) return CUDA_ERROR_OUT_OF_MEMORY;
    *out = (CUgraphNode)node;
    return CUDA_SUCCESS;
}

/* The child's nodes become the graph's own, as they are now, between what the child depends on and an empty node that stands for it. */
EMU_LOCKED(cuGraphAddChildGraphNode, 10000,
           (CUgraphNode * out, CUgraph handle, const CUgraphNode *deps, size_t ndeps, CUgraph child_handle),
           (out, handle, deps, ndeps, child_handle)) {
    struct emu_graph *graph = emu_object_get(handle, EMU_GRAPH), *child = emu_object_get(child_handle, EMU_GRAPH);
    if (!out || !graph || !child || graph == child) return CUDA_ERROR_INVALID_VALUE;
    EMU_TRY(emu_graph_check(graph, deps, ndeps));
    const int first = graph->count, count = child->count;
    struct emu_node **ends = calloc((size_t)count + ndeps + 1, sizeof *ends);
    bool *leads = calloc((size_t)count + 1, sizeof *leads);
    bool good = ends && leads;
    int nends = 0;
    for (int i = 0; good && i < count; i++) {
        struct emu_op op = emu_op_copy(&child->nodes[i]->op);
        good = emu_graph_add(graph, &op, (struct emu_node *const *)deps, (int)ndeps);
    }
    for (int i = 0; good && i < count; i++) { /* some depend on nodes that were made later */
        const struct emu_node *from = child->nodes[i];
        struct emu_node *to = graph->nodes[first + i];
        for (int k = 0; k < from->ndeps; k++) {
            ends[k] = graph->nodes[first + from->deps[k]->index];
            leads[from->deps[k]->index] = true;
        }
        if (from->ndeps) emu_set_deps(&to->deps, &to->ndeps, ends, from->ndeps);
    }
    for (int i = 0; good && i < count; i++)
        if (!leads[i]) ends[nends++] = graph->nodes[first + i];
    for (size_t k = 0; good && count == 0 && k < ndeps; k++) ends[nends++] = (struct emu_node *)deps[k];
    struct emu_node *end = good ? emu_graph_add(graph, &(struct emu_op){.kind = EMU_OP_EMPTY}, ends, nends) : NULL;
    free(ends);
    free(leads);
    *out = (CUgraphNode)end;
    return end ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

EMU_LOCKED(cuGraphAddEmptyNode, 10000, (CUgraphNode * out, CUgraph graph, const CUgraphNode *deps, size_t ndeps),
           (out, graph, deps, ndeps)) {
    return add(out, graph, deps, ndeps, &(struct emu_op){.kind = EMU_OP_EMPTY});
}

#define EVENT_NODE(symbol, op_kind)                                                                                    \
    EMU_LOCKED(symbol, 11010,                                                                                          \
               (CUgraphNode * out, CUgraph graph, const CUgraphNode *deps, size_t ndeps, CUevent event),               \
               (out, graph, deps, ndeps, event)) {                                                                     \
        struct emu_event *e = emu_object_get(event, EMU_EVENT);                                                        \
        if (!e) return CUDA_ERROR_INVALID_VALUE;                                                                       \
        return add(out, graph, deps, ndeps, &(struct emu_op){.kind = op_kind, .event = {.event = e}});                 \
    }
EVENT_NODE(cuGraphAddEventRecordNode, EMU_OP_RECORD)
EVENT_NODE(cuGraphAddEventWaitNode, EMU_OP_WAIT)

EMU_LOCKED(cuGraphAddHostNode, 10000,
           (CUgraphNode * out, CUgraph graph, const CUgraphNode *deps, size_t ndeps, const CUDA_HOST_NODE_PARAMS *host),
           (out, graph, deps, ndeps, host)) {
    if (!host || !host->fn) return CUDA_ERROR_INVALID_VALUE;
    struct emu_op op = {.kind = EMU_OP_HOST, .host = {.function = host->fn, .argument = host->userData}};
    return add(out, graph, deps, ndeps, &op);
}
