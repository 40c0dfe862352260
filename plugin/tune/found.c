#define _GNU_SOURCE
#include "found.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/why.h"
#include "real/real.h"

enum { NARROWEST = 14 };

static const char *way_name(const struct bl_found *found, enum bl_collective collective, int way) {
    return way ? bl_kernel_name(bl_range_kernel(found->range[collective][way])) : "nccl";
}

/* With two digits, and a point in every locale. */
static void write_us(FILE *file, int width, double us) {
    const unsigned long hundredths = (unsigned long)(us * 100 + 0.5);
    fprintf(file, " %*lu.%02lu", width - 3, hundredths / 100, hundredths % 100);
}

/* All times, as comments. */
static void write_times(FILE *file, const struct bl_found *found, enum bl_collective collective) {
    const struct bl_times *times = &found->times[collective];
    int width[BL_TIMES_WAYS];
    char bytes[32];
    for (int way = 0; way < times->ways; way++) {
        const int length = (int)strlen(way_name(found, collective, way));
        width[way] = length < NARROWEST ? NARROWEST : length;
        fprintf(file, " %*s", width[way], way_name(found, collective, way));
    }
    for (int size = 0; size < times->sizes; size++) {
        bl_size_format(times->bytes[size], bytes, sizeof(bytes));
        fprintf(file, "\n# %13s:", bytes);
        for (int way = 0; way < times->ways; way++)
            if (times->us[size][way] > 0)
                write_us(file, width[way], times->us[size][way]);
            else
                fprintf(file, " %*s", width[way], "-");
    }
    fprintf(file, "\n");
}

/* Those of NCCL and of what is chosen, as `beeline tune` writes them for `beeline run --report`. */
static void write_chosen(FILE *file, const struct bl_times *times, const struct bl_crossing *row, const char *name,
                         int nranks) {
    char bytes[32];
    for (int size = 0; size < times->sizes; size++) {
        while (times->bytes[size] > row->max_bytes) row++;
        bl_size_format(times->bytes[size], bytes, sizeof(bytes));
        fprintf(file, "# time %s %d %5s", name, nranks, bytes);
        write_us(file, 9, times->us[size][0]);
        write_us(file, 9, times->us[size][row->way]);
        fprintf(file, "\n");
    }
}

static void write_collective(FILE *file, const struct bl_found *found, enum bl_collective collective, int nranks) {
    const char *name = bl_collective_name(collective);
    struct bl_crossing rows[BL_TIMES_SIZES];
    const int count = bl_crossings(&found->times[collective], collective, rows);
    char bytes[32];
    fprintf(file, "\n# %s, %d ranks, us:", name, nranks);
    write_times(file, found, collective);
    write_chosen(file, &found->times[collective], rows, name, nranks);
    for (int i = 0; i < count; i++) {
        const struct bl_range *range = found->range[collective][rows[i].way];
        bl_size_format(rows[i].max_bytes, bytes, sizeof(bytes));
        fprintf(file, "%s %d %5s %s%s\n", name, nranks, !range && i == count - 1 ? "max" : bytes,
                range ? bl_algorithms[range->algorithm].name : "nccl",
                range && range->spread == BL_BY_WARPS ? " spread=warps" : "");
    }
}

char *bl_found_section(const struct bl_found *found, const char *gpu_line, int nranks, double seconds) {
    const int version = bl_real_version();
    const time_t now = time(NULL);
    char *text = NULL, date[32] = "";
    size_t size = 0;
    struct tm utc;
    FILE *file = open_memstream(&text, &size);
    if (!file) return bl_fail("out of host memory"), NULL;
    if (gmtime_r(&now, &utc)) strftime(date, sizeof(date), "%Y-%m-%d", &utc);
    fprintf(file, "# %s, %d ranks, NCCL %d.%d.%d, bf16 sums, measured in %d ms\n%s\n", date, nranks, version / 10000,
            version / 100 % 100, version % 100, (int)(seconds * 1000), gpu_line);
    for (int c = 0; c < BL_COLLECTIVES; c++)
        if (found->times[c].sizes) write_collective(file, found, (enum bl_collective)c, nranks);
    if (!fclose(file)) return text;
    free(text);
    return bl_fail("out of host memory"), NULL;
}
