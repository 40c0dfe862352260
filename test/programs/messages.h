/* messages.h - messages from rank to rank, of any size and at any address: every byte that is received is checked, the ground round
 * it, and that nobody wrote to what is sent.
 *
 * A list is the same on all ranks and holds messages in the order in which those of a pair match; a rank posts the ends that it has.
 * Whoever posts ends one by one in the order of a list, or several that follow each other as a group, ends, whatever the others do so:
 * the first message that is not through has both its ends under way. */
#ifndef BEELINE_TEST_MESSAGES_H
#define BEELINE_TEST_MESSAGES_H

#include "programs.h"

struct message {
    int from, to;
    size_t bytes;
    size_t send_at, recv_at; /* of this rank's arenas */
};

struct messages {
    int count, most;
    struct message *message;
    uint64_t seed;
    size_t room; /* of each arena */
    CUdeviceptr send, recv;
};

enum ends { SENT = 1, RECEIVED = 2, BOTH_ENDS = SENT | RECEIVED };

/* A list begins as {0}; then come its messages, then its arenas. */
void messages_add(struct messages *list, int from, int to, size_t bytes);
void messages_open(struct part *part, struct messages *list);
void messages_close(struct messages *list);
/* Data that follow from `seed`, and poison; nothing that uses them may be under way. */
void messages_fill(struct part *part, struct messages *list, uint64_t seed);

/* This rank's ends, of those kinds, of the messages first to last - 1; returns how many.  In no group of its own: but for a message
 * to itself, whose ends must share one. */
int messages_post(struct part *part, const struct messages *list, enum ends ends, int first, int last, ncclComm_t comm,
                  CUstream stream);
/* The same, of which some may be refused; no more are posted then. */
ncclResult_t messages_try(struct part *part, const struct messages *list, enum ends ends, int first, int last,
                          ncclComm_t comm, CUstream stream);
/* The same as a group. */
void messages_group(struct part *part, const struct messages *list, enum ends ends, int first, int last,
                    ncclComm_t comm, CUstream stream);
/* After synchronizing. */
void messages_check(struct part *part, const struct messages *list);
/* The same where nothing is to have arrived. */
void messages_check_untouched(struct part *part, const struct messages *list);

/* The k-th of sizes round those that are edges of something; the larger ones are rare. */
size_t message_size(const struct settings *settings, uint64_t k);

/* NCCL connects two ranks at their first message, for which both must come: of each of the first `ranks` ranks to each. */
void messages_connect(struct part *part, const struct settings *s, int ranks, ncclComm_t comm, CUstream stream);

#endif
