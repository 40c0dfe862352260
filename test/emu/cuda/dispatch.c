/* dispatch.c - which blocks are resident: a device's launches get its multiprocessors strictly in the order in which they became
 * ready, and what finds no room keeps all that is behind it waiting, as in a queue of the hardware.
 *
 * A multiprocessor holds EMU_SM_BLOCKS blocks, over all kernels, as far as their memory goes; a block goes to one that has fewest.  How much memory
 * there is for blocks is set when the first one comes, and stays so until the last has left: all, or hardly any for a kernel that has none and did not
 * ask for all (H200: a block with 48 KB found no room in 132 multiprocessors with a block of such a kernel each).  Kernels that are somebody
 * else's (the reference NCCL's) run on the host, but hold multiprocessors all the same, each alone, from their start to their end:
 * as a kernel does that needs all registers of one; and where they can be, four at a time of one GPC, as blocks of a cluster are.  So grids whose blocks
 * wait for what is not resident hang here as they would there, be it their own blocks, or a kernel on which a peer of theirs depends.
 */
#include "simt.h"

#include <stdlib.h>

enum { MAX_SMS = 1024, GPC_SMS = 18, CLUSTER = 4 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t submitted = PTHREAD_COND_INITIALIZER, begun = PTHREAD_COND_INITIALIZER;
static struct kernel *incoming, **incoming_tail = &incoming;
static struct kernel *leaving; /* that held multiprocessors, and are done */
static bool engine_runs;
static _Atomic bool news;

/* The engine's own. */
static struct kernel *waiting, **waiting_tail = &waiting; /* kernels with blocks that have not started */
static struct multiprocessor {
    unsigned char blocks;
    unsigned memory, most;       /* of these; and what it is set to, while there are any */
    const struct kernel *holder; /* NULL: whoever comes */
} devices[EMU_MAX_DEVICES][MAX_SMS];

static CUdevice device_of(const struct kernel *kernel) {
    return kernel->launch.context->device;
}

static struct multiprocessor *sm_of(const struct kernel *kernel, unsigned sm) {
    return &devices[device_of(kernel)][sm];
}

static unsigned memory_of(const struct kernel *kernel) {
    return kernel->launch.memory + EMU_OWN_MEMORY;
}

/* What a multiprocessor is set to for it. */
static unsigned setting_of(const struct kernel *kernel) {
    const bool all = kernel->launch.memory || kernel->launch.function->carveout == 100;
    return all ? EMU_SM_MEMORY : EMU_SM_BLOCKS * EMU_OWN_MEMORY;
}

void dispatch_drop(const struct kernel *kernel) {
    for (struct kernel **p = &waiting; *p;) {
        if (*p == kernel)
            *p = (*p)->next;
        else
            p = &(*p)->next;
    }
    waiting_tail = &waiting;
    while (*waiting_tail) waiting_tail = &(*waiting_tail)->next;
}

void dispatch_leave(const struct kernel *kernel, unsigned sm) {
    sm_of(kernel, sm)->blocks--;
    sm_of(kernel, sm)->memory -= memory_of(kernel);
    news = true;
}

/* One of the multiprocessors with fewest blocks; -1 if all are full. */
static int find_room(const struct kernel *kernel) {
    const struct emu_sms *sms = &kernel->launch.sms;
    int found = -1;
    unsigned fewest = EMU_SM_BLOCKS, ties = 0;
    for (unsigned i = sms->first; i < sms->first + sms->count; i++) {
        const struct multiprocessor *sm = sm_of(kernel, i);
        if (sm->holder || sm->blocks >= EMU_SM_BLOCKS || sm->blocks > fewest) continue;
        if (sm->memory + memory_of(kernel) > (sm->blocks ? sm->most : EMU_SM_MEMORY)) continue;
        if (sm->blocks < fewest) ties = 0;
        fewest = sm->blocks;
        if (emu_random(&simt_random) % ++ties == 0) found = (int)i;
    }
    return found;
}

static bool start_blocks(struct kernel *kernel) {
    while (kernel->started < kernel->blocks) {
        const int number = find_room(kernel);
        if (number < 0 || !simt_block_start(kernel, (unsigned)number)) return false;
        struct multiprocessor *sm = sm_of(kernel, (unsigned)number);
        if (!sm->blocks++) sm->most = setting_of(kernel);
        sm->memory += memory_of(kernel);
    }
    return true;
}

static bool is_free(const struct kernel *kernel, unsigned sm) {
    return !sm_of(kernel, sm)->holder && !sm_of(kernel, sm)->blocks;
}

/* How many of the GPC's that begins with `first` clusters can have, or single blocks. */
static unsigned free_for(const struct kernel *kernel, unsigned first, unsigned cluster) {
    const struct emu_sms *sms = &kernel->launch.sms;
    unsigned room = 0;
    for (unsigned i = first; i < first + GPC_SMS; i++)
        room += i >= sms->first && i < sms->first + sms->count && is_free(kernel, i);
    return room / cluster * cluster;
}

/* All at once: to hold some and wait for the rest would keep out the same. */
static bool start_holder(struct kernel *kernel) {
    const struct emu_sms *sms = &kernel->launch.sms;
    const unsigned cluster = emu_config.arch >= 90 && kernel->holds % CLUSTER == 0 ? CLUSTER : 1,
                   end = sms->first + sms->count;
    unsigned room = 0, wanted = kernel->holds;
    for (unsigned gpc = 0; gpc < end; gpc += GPC_SMS) room += free_for(kernel, gpc, cluster);
    if (room < wanted) return false;
    for (unsigned gpc = 0; wanted; gpc += GPC_SMS) {
        unsigned here = free_for(kernel, gpc, cluster);
        if (here > wanted) here = wanted;
        wanted -= here;
        for (unsigned i = gpc < sms->first ? sms->first : gpc; here; i++) {
            if (!is_free(kernel, i)) continue;
            sm_of(kernel, i)->holder = kernel;
            here--;
        }
    }
    return true;
}

/* Does an earlier launch wait for room where this one would go? */
static bool is_behind(const struct kernel *kernel) {
    const struct emu_sms *mine = &kernel->launch.sms;
    for (const struct kernel *k = waiting; k != kernel; k = k->next) {
        const struct emu_sms *theirs = &k->launch.sms;
        if (device_of(k) == device_of(kernel) && theirs->first < mine->first + mine->count &&
            mine->first < theirs->first + theirs->count)
            return true;
    }
    return false;
}

/* From here on it is its own thread's. */
static void tell_holder(struct kernel *kernel) {
    pthread_mutex_lock(&lock);
    kernel->started = kernel->blocks;
    pthread_cond_broadcast(&begun);
    pthread_mutex_unlock(&lock);
}

static void end_holder(struct kernel *kernel) {
    for (unsigned i = 0; i < MAX_SMS; i++)
        if (sm_of(kernel, i)->holder == kernel) sm_of(kernel, i)->holder = NULL;
    free(kernel);
}

void dispatch_start(void) {
    if (!news) return;
    news = false;
    pthread_mutex_lock(&lock);
    struct kernel *left = leaving, *next;
    leaving = NULL;
    if (incoming) {
        *waiting_tail = incoming;
        waiting_tail = incoming_tail;
        incoming = NULL;
        incoming_tail = &incoming;
    }
    pthread_mutex_unlock(&lock);
    for (; left; left = next) {
        next = left->next;
        end_holder(left);
    }
    for (struct kernel *k = waiting; k; k = next) {
        next = k->next;
        if (is_behind(k)) continue;
        const bool all = k->holds ? start_holder(k) : start_blocks(k);
        if (!all) continue;
        dispatch_drop(k);
        if (k->holds) tell_holder(k);
    }
}

void dispatch_wait(const struct timespec *until) {
    pthread_mutex_lock(&lock);
    if (until && !incoming && !leaving) pthread_cond_timedwait(&submitted, &lock, until);
    while (!until && !incoming && !leaving) pthread_cond_wait(&submitted, &lock);
    pthread_mutex_unlock(&lock);
}

/* With the lock held. */
static void tell_engine(void) {
    if (!engine_runs) {
        /* Ranks of one job see the same environment: their schedules differ all the same. */
        simt_random = emu_config.seed * 0x9e3779b9u + (uint64_t)(emu_config.local_rank + 1) * 0x85ebca6bu;
        engine_runs = emu_thread(simt_engine, NULL);
    }
    news = true;
    pthread_cond_signal(&submitted);
}

static void submit(struct kernel *kernel) {
    kernel->next = NULL;
    *incoming_tail = kernel;
    incoming_tail = &kernel->next;
    tell_engine();
}

void emu_simt_submit(const struct emu_launch *launch) {
    struct kernel *kernel = calloc(1, sizeof *kernel);
    if (!kernel || !delivery_open(kernel)) {
        free(kernel);
        launch->done(launch->argument, CUDA_ERROR_OUT_OF_MEMORY);
        return;
    }
    kernel->launch = *launch;
    kernel->blocks = (uint64_t)launch->grid[0] * launch->grid[1] * launch->grid[2];
    kernel->threads = launch->block[0] * launch->block[1] * launch->block[2];
    pthread_mutex_lock(&lock);
    submit(kernel);
    pthread_mutex_unlock(&lock);
}

struct kernel *emu_simt_hold(struct emu_context *context, struct emu_sms sms, unsigned multiprocessors) {
    struct kernel *kernel = calloc(1, sizeof *kernel);
    if (!kernel) return NULL;
    kernel->launch = (struct emu_launch){.context = context, .sms = sms};
    kernel->blocks = kernel->holds = multiprocessors < sms.count ? multiprocessors : sms.count;
    pthread_mutex_lock(&lock);
    submit(kernel);
    while (!kernel->started) pthread_cond_wait(&begun, &lock);
    pthread_mutex_unlock(&lock);
    return kernel;
}

void emu_simt_release(struct kernel *kernel) {
    if (!kernel) return;
    pthread_mutex_lock(&lock);
    kernel->next = leaving;
    leaving = kernel;
    tell_engine();
    pthread_mutex_unlock(&lock);
}
