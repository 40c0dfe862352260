/* multicast.h - a multicast object over memory of every rank of a part, for tests of the kernels alone.
 *
 * On the emulated box only, in topology nvls: elsewhere nothing is created, whatever the machine can do, because a multicast
 * object that goes wrong can put a shared machine out of service.  One part holds all ranks (MODE_GROUPS).
 */
#ifndef BEELINE_TEST_MULTICAST_H
#define BEELINE_TEST_MULTICAST_H

#include "box.h"

struct multicast {
    size_t bytes; /* rounded up */
    CUmemGenericAllocationHandle object, handle[BOX_RANKS];
    CUdeviceptr replica[BOX_RANKS]; /* each rank's own memory, zeroed */
    CUdeviceptr all[BOX_RANKS];     /* the object, as that rank has it mapped */
    CUdeviceptr words[BOX_RANKS];   /* bl_kernel_args.multicast_words */
};

/* False, and nothing is done, where there is no emulated multicast. */
bool multicast_open(struct part *part, struct multicast *multicast, size_t bytes);
/* No kernel may be running. */
void multicast_close(struct part *part, struct multicast *multicast);

#endif
