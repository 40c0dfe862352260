/* soak.h - random collectives that follow from one seed, the same on every rank; see soak.c. */
#ifndef BEELINE_TEST_SOAK_H
#define BEELINE_TEST_SOAK_H

#include "box.h"

enum { SOAK_COMMS = 3, SOAK_STREAMS = 3, SOAK_CALLS = 512 };

/* The collectives as box.h numbers them, and an all-to-all whose messages are of any size. */
enum { SEND_RECV = BL_SENDRECV, UNEVEN = BL_COLLECTIVES, SOAK_KINDS };

/* Who a communicator's ranks are, as one of them sees it. */
struct team {
    int rank, nranks;
};

/* What happens to calls beside each other that have the same number: they are one group, or one graph. */
enum run { ALONE, GROUP, GRAPH };

struct soak_call {
    /* equal on all ranks of the communicator: */
    int kind, comm, datatype, redop, root;
    size_t count; /* elements; of one block where a buffer holds a block for each rank */
    bool in_place;
    uint64_t seed;
    enum run run;
    unsigned number, launches; /* of the run; of its graph */
    int stream;
    bool renew; /* the stream is destroyed ahead of it, with what is on it, and another one made */
    /* this rank's: */
    struct team team;
    unsigned host_us, device_us; /* it is late by so much */
    size_t slot, send_at,
        recv_at; /* bytes into the arenas; in place, what is sent lies in the arena of what is received */
};

/* Calls that are issued together and checked together, and the arenas that hold all their buffers. */
struct batch {
    int count;
    struct soak_call call[SOAK_CALLS];
    size_t used;                        /* bytes of each arena */
    unsigned char *send, *recv, *image; /* what is there before; what is in place of recv afterwards */
};

/* Of the communicators of this rank. room: bytes of an arena; most: of a call's buffer; graphs: some are replayed. */
struct plan {
    uint64_t seed;
    int rank;
    struct team team[SOAK_COMMS];
    size_t room, most;
    bool graphs;
};

/* The batch number `which`, with its arenas; at most `calls` of its calls. */
void batch_draw(struct batch *batch, const struct plan *plan, uint64_t which, uint64_t calls);
/* Elements of the message from one rank to another, at most call->count; none of every third. */
size_t uneven_count(const struct soak_call *call, int from, int to);
void call_text(const struct soak_call *call, char *text, size_t size);
/* The call whose result, or the ground round it, is not as in batch->image, in words; -1 if there is none. */
int batch_differs(const struct batch *batch, const unsigned char *received, char *text, size_t size);

/* Runs the program again as its own child, with --child; after a failure, for so many seconds, shorter ones. The exit status. */
int soak_parent(int argc, char **argv, uint64_t seed, long seconds);

#endif
