/* graph.c - see graph.h. */
#include "graph.h"

void graphs_begin(struct part *part, int stream) {
    for (int i = 0; i < part->count; i++) {
        struct rank *rank = part_enter(part, i);
        CU_OK(cuStreamBeginCapture(rank->stream[stream], CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    }
}

void graphs_end_capture(struct part *part, int stream, struct graphs *graphs) {
    for (int i = 0; i < part->count; i++) {
        struct rank *rank = part_enter(part, i);
        CU_OK(cuStreamEndCapture(rank->stream[stream], &graphs->graph[i]));
    }
}

void graphs_instantiate(struct part *part, struct graphs *graphs) {
    each_rank (part, i) CU_OK(cuGraphInstantiateWithFlags(&graphs->exec[i], graphs->graph[i], 0));
}

void graphs_end(struct part *part, int stream, struct graphs *graphs) {
    graphs_end_capture(part, stream, graphs);
    graphs_instantiate(part, graphs);
}

void graphs_launch(struct part *part, struct graphs *graphs, int stream) {
    for (int i = 0; i < part->count; i++) {
        struct rank *rank = part_enter(part, i);
        CU_OK(cuGraphLaunch(graphs->exec[i], rank->stream[stream]));
    }
}

void graphs_free(struct part *part, struct graphs *graphs) {
    each_rank (part, i) {
        CU_OK(cuGraphExecDestroy(graphs->exec[i]));
        CU_OK(cuGraphDestroy(graphs->graph[i]));
    }
}
