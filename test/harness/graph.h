/* graph.h - one captured graph a rank. */
#ifndef BEELINE_TEST_GRAPH_H
#define BEELINE_TEST_GRAPH_H

#include "box.h"

struct graphs {
    CUgraph graph[BOX_RANKS];
    CUgraphExec exec[BOX_RANKS];
};

/* Between the two, what is issued on stream `stream` of each rank of the part is captured. */
void graphs_begin(struct part *part, int stream);
void graphs_end(struct part *part, int stream, struct graphs *graphs);
/* The two halves of graphs_end, for who has more captures open: the driver instantiates nothing while the thread captures. */
void graphs_end_capture(struct part *part, int stream, struct graphs *graphs);
void graphs_instantiate(struct part *part, struct graphs *graphs);
/* Launches each rank's graph. */
void graphs_launch(struct part *part, struct graphs *graphs, int stream);
void graphs_free(struct part *part, struct graphs *graphs);

#endif
