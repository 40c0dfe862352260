/* options.h - the command line of the programs in test/ranks.
 *
 *   -m groups|threads|processes   who drives the ranks (groups)
 *   -n N                          ranks (2); processes take WORLD_SIZE
 *   -C all_gather,...|all         collectives (all_reduce)
 *   -t half,float,...|all         datatypes (float)
 *   -o sum,...|all                operations (sum)
 *   -c 0-17,59-61,...             counts, in elements (17)
 *   -x 0,1,3,...                  offsets of the buffers, in bytes; "odd": of any alignment, "elements": multiples of the
 *                                 element
 *   -s N                          seed (1)
 *   -a NAME                       route that every call must take
 *   -g N                          also captured and replayed N times
 *   -e                            floats are whole numbers, whose sums do not depend on the order
 *   -b N                          calls issued before the results are looked at (4)
 *   -w N                          seconds that a wait may last (30)
 *   -k N                          at most N calls, drawn at random from all combinations
 */
#ifndef BEELINE_TEST_OPTIONS_H
#define BEELINE_TEST_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "box.h"

enum { MOST_COUNTS = 4096, MOST_OFFSETS = 64 };

struct options {
    struct box box;
    const char *name; /* first argument that is no option, or NULL */
    bool collectives[BL_COLLECTIVES], datatypes[12], redops[5];
    size_t count[MOST_COUNTS];
    int counts;
    unsigned offset[MOST_OFFSETS];
    int offsets;
    bool offsets_in_elements;
    const char *route;
    int replays, batch;
    long wait;
    long calls;
};

/* Ends the program with 2 and a message if the line makes no sense. */
void options_read(struct options *options, int argc, char **argv);

#endif
