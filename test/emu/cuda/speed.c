/* speed.c - made-up speeds.  BEELINE_EMU_SPEEDS names a file of lines
 *
 *     NAME START PER_MIB      # microseconds: of each launch, and of each MiB of its message
 *
 * NAME is the beginning of a kernel's symbol (bl_allreduce_oneshot_ll_), or what beelineEmulatedTime is told (ncclAllReduce); the first
 * line that fits holds, and what none fits takes no time.  Each stream then has a clock that goes on by the times of its work alone, and
 * events tell that clock's time.  So what a program finds out by events is known beforehand, to the nanosecond, however busy the machine
 * is.  Nothing gets slower by it. */
#include "emu.h"

#include <stdio.h>
#include <string.h>

#include "kernels.h"

enum { MAX_LINES = 64 };

static struct speed {
    char name[64];
    double start_us, us_per_mib;
} speeds[MAX_LINES];
static int count;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void read_file(void) {
    char line[256];
    FILE *file = fopen(emu_config.speeds, "r");
    if (!file) emu_say("BEELINE_EMU_SPEEDS=%s cannot be read: nothing takes time", emu_config.speeds);
    while (file && fgets(line, sizeof line, file)) {
        struct speed *next = &speeds[count];
        line[strcspn(line, "#\n")] = 0;
        if (!line[strspn(line, " \t")]) continue;
        if (count < MAX_LINES && sscanf(line, "%63s %lf %lf", next->name, &next->start_us, &next->us_per_mib) == 3)
            count++;
        else
            emu_say("BEELINE_EMU_SPEEDS=%s: not understood, or too many: %s", emu_config.speeds, line);
    }
    if (file) fclose(file);
}

uint64_t emu_speed_of(const char *name, uint64_t bytes) {
    if (!emu_config.speeds) return 0;
    pthread_once(&once, read_file);
    for (const struct speed *speed = speeds; speed < speeds + count; speed++)
        if (!strncmp(name, speed->name, strlen(speed->name)))
            return (uint64_t)(1000 * (speed->start_us + speed->us_per_mib * (double)bytes / (1 << 20)));
    return 0;
}

/* Of the longest stream: the others go on beside it. */
static uint64_t longest(const struct bl_pairs_stream *stream, unsigned streams) {
    uint64_t quads = 0;
    for (unsigned i = 0; i < streams; i++)
        if (stream[i].quads > quads) quads = stream[i].quads;
    return quads * BL_QUAD * BL_FLAGGED_DATA;
}

/* What tells them apart. */
_Static_assert(sizeof(struct bl_batch_few_args) != sizeof(struct bl_kernel_args) &&
                   sizeof(struct bl_batch_few_args) != sizeof(struct bl_pairs_few_args),
               "arguments have sizes of their own");

uint64_t emu_speed_of_kernel(const struct emu_function *function, const void *args) {
    const struct bl_kernel_args *one = args;
    const struct bl_batch_args *batch = args;
    const struct bl_batch_few_args *batch_few = args;
    const struct bl_pairs_args *pairs = args;
    const struct bl_pairs_few_args *pairs_few = args;
    uint64_t bytes = 0;
    if (!emu_config.speeds) return 0;
    if (function->argument_size == sizeof *one) bytes = one->count * one->size;
    if (function->argument_size == sizeof *batch)
        bytes = (uint64_t)batch->lines * BL_FLAGGED_DATA; /* or more, of lines without flags */
    if (function->argument_size == sizeof *batch_few) bytes = (uint64_t)batch_few->lines * BL_FLAGGED_DATA;
    if (function->argument_size == sizeof *pairs) bytes = longest(pairs->stream, pairs->streams);
    if (function->argument_size == sizeof *pairs_few) bytes = longest(pairs_few->stream, pairs_few->streams);
    return emu_speed_of(function->name, bytes);
}

void emu_speed_pass(struct emu_stream *stream, uint64_t nanoseconds) {
    if (!nanoseconds) return;
    emu_lock();
    stream->clock += nanoseconds;
    emu_unlock();
}

EMU_CALL(beelineEmulatedTime, 0, (CUstream stream, const char *name, unsigned long long bytes), (stream, name, bytes)) {
    struct emu_op op = {.kind = EMU_OP_EMPTY, .takes = emu_speed_of(name, bytes)};
    return op.takes ? emu_enqueue(stream, &op) : CUDA_SUCCESS;
}
