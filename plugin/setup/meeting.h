/* meeting.h - how the ranks of a new communicator find each other, with no call on that communicator.
 *
 * Each rank listens on a Unix socket in the abstract namespace *before* it calls the real init.  The socket's name follows
 * from the communicator's key, which only those can compute who hold its unique id (or, of a split and the like, the
 * parent's key).  No rank's real init returns before all ranks have entered it.  So afterwards all ranks that have Beeline
 * and are on this host can be reached, and one that cannot be reached is not there: every rank knows that at once.
 *
 * Each rank then connects to all others, and says who it is in one record, which no version of Beeline will change; a pair
 * of ranks goes on with one of its two connections (bootstrap.h).
 *
 * Threads: one at a time for one struct bl_meeting.
 */
#ifndef BEELINE_MEETING_H
#define BEELINE_MEETING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "bootstrap.h"
#include "base/sha256.h"
#include "verdict.h"

/* Plain values: may be copied, as long as one copy is closed. */
struct bl_meeting {
    unsigned char key[BL_SHA256_BYTES]; /* the communicator's, for as long as it lives */
    bool keyed, by_rank;                /* places are the communicator's own ranks */
    int place, places;                  /* this rank's, and how many there are: ranks, or the parent's ranks */
    int listener;                       /* -1: none, and why */
    char why[120];
};

/* One that nobody can come to: its communicator is NCCL's, and so are its children. */
void bl_meeting_none(struct bl_meeting *meeting, const char *why);

/* Before the real init: listens where the other holders of these ids look.  With more ranks than Beeline serves, or one,
 * there is a key, for the sake of children, and nobody listens. */
void bl_meeting_of_ids(struct bl_meeting *meeting, const void *ids, size_t bytes, int rank, int nranks);

/* The same for a child: `call` is what makes it, `facts` what tells it from other children, on all its ranks alike. */
void bl_meeting_of_parent(struct bl_meeting *meeting, const struct bl_meeting *parent, int parent_rank,
                          int parent_nranks, const char *call, const void *facts, size_t bytes);

/* A number that all ranks have, for the log. */
uint64_t bl_meeting_id(const struct bl_meeting *meeting);

/* Between the two halves of a greeting. */
enum { BL_STRANGERS = 64 };
struct bl_greetings {
    struct bl_contact {
        int place, fd;
    } contact[BL_MAX_RANKS]; /* whom we could reach */
    struct bl_greeter {
        int place, rank, fd;
    } greeter[BL_MAX_RANKS]; /* who has greeted us, and goes on */
    struct bl_stranger {
        int fd;
        uint64_t since;
    } stranger[BL_STRANGERS]; /* who has said nothing yet */
    int contact_count, greeter_count, stranger_count;
};

/* After the real init: connects to all others and greets them with `mine`, our verdict, to which it adds who cannot be
 * reached. */
void bl_meeting_greet(const struct bl_meeting *meeting, struct bl_mesh *mesh, struct bl_greetings *greetings,
                      struct bl_verdict *mine, uint64_t deadline);

/* Hears the others' greetings, and takes over what one of them says is wrong.  The mesh is then open to all who were heard:
 * all ranks, if all is well.  To be called behind every bl_meeting_greet. */
void bl_meeting_hear(const struct bl_meeting *meeting, struct bl_mesh *mesh, struct bl_greetings *greetings,
                     struct bl_verdict *mine, uint64_t deadline);

/* Children have other keys then; of all ranks alike. */
void bl_meeting_rekey(struct bl_meeting *meeting, const void *nonce, size_t bytes);

/* Nobody can come any more.  The key stays. */
void bl_meeting_close(struct bl_meeting *meeting);

#endif
