/* crossings.c - see crossings.h.  scripts/beeline/tuning/thresholds.py does likewise with more candidates and more sizes, and draws between them on
 * logarithmic axes, for which the library would need libm; and between two ranks asks of long lines no more than of shorter ones, as was measured on H200. */
#include "crossings.h"

#include <float.h>

/* What is measured in passing is noisier than what `beeline tune` takes its time for, which has 3 %. */
static const double NOISE = 0.05, BESIDE_COMPUTE = 0.2;
static const uint64_t LONG = 8 << 20;

/* What a way's time is worth: NCCL's less, and more of ways that take from compute. */
static double weighed(const struct bl_times *times, enum bl_collective collective, int size, int way) {
    const bool beside = collective == BL_ALLGATHER || collective == BL_REDUCESCATTER;
    const double us = times->us[size][way];
    if (way == 0) return us * (1 - NOISE);
    return beside && !times->few[way] && times->bytes[size] >= LONG ? us * (1 - NOISE) / (1 - BESIDE_COMPUTE) : us;
}

/* As what a way counts at a size; 0: it does not. */
static double counts(const struct bl_times *times, enum bl_collective collective, int size, int way) {
    const double nccl = weighed(times, collective, size, 0), us = weighed(times, collective, size, way);
    return way == 0 || (us > 0 && us < nccl) ? us : 0;
}

/* The way of each size: of the series that cost least, the one that ends best. */
static void choose(const struct bl_times *times, enum bl_collective collective, int way_of[BL_TIMES_SIZES]) {
    double cost[BL_TIMES_SIZES][BL_TIMES_WAYS];
    int before[BL_TIMES_SIZES][BL_TIMES_WAYS];
    for (int size = 0; size < times->sizes; size++) {
        double least = DBL_MAX;
        for (int way = 0; way < times->ways; way++) {
            const double us = counts(times, collective, size, way);
            if (us > 0 && us < least) least = us;
        }
        for (int way = 0; way < times->ways; way++) {
            const double us = counts(times, collective, size, way);
            double best = size ? DBL_MAX : 0;
            before[size][way] = way;
            for (int last = 0; size && last < times->ways; last++) {
                const double sum = cost[size - 1][last] + (last != way ? NOISE : 0);
                if (cost[size - 1][last] == DBL_MAX || sum >= best) continue;
                best = sum;
                before[size][way] = last;
            }
            cost[size][way] = us > 0 ? best + us / least - 1 : DBL_MAX;
        }
    }
    int end = 0;
    for (int way = 1; way < times->ways; way++)
        if (cost[times->sizes - 1][way] < cost[times->sizes - 1][end]) end = way;
    for (int size = times->sizes; size-- > 0; end = before[size][end]) way_of[size] = end;
}

/* To 2^k or 3 * 2^(k-1): what a reader can remember. */
static uint64_t round_down(double size) {
    uint64_t power = 1;
    while ((double)power * 2 <= size) power *= 2;
    return power > 1 && (double)power * 1.5 <= size ? power / 2 * 3 : power;
}

/* The size at which `other` becomes faster than `one`, between size and the next; size itself where that cannot be said. */
static uint64_t crossing(const struct bl_times *times, enum bl_collective collective, int size, int one, int other) {
    const uint64_t below = times->bytes[size], above = times->bytes[size + 1];
    double behind[2]; /* of `other`, in microseconds */
    for (int i = 0; i < 2; i++) {
        const double us = weighed(times, collective, size + i, one);
        const double them = weighed(times, collective, size + i, other);
        if (us <= 0 || them <= 0) return below;
        behind[i] = them - us;
    }
    if (behind[0] <= 0 || behind[1] >= 0) return below;
    const uint64_t found = round_down((double)below + (double)(above - below) * behind[0] / (behind[0] - behind[1]));
    return found > below ? found : below;
}

int bl_crossings(const struct bl_times *times, enum bl_collective collective, struct bl_crossing rows[BL_TIMES_SIZES]) {
    int way_of[BL_TIMES_SIZES], count = 0;
    if (!times->sizes) return 0;
    choose(times, collective, way_of);
    for (int size = 0; size < times->sizes; size++) {
        const bool last = size + 1 == times->sizes;
        if (!last && way_of[size] == way_of[size + 1]) continue;
        const uint64_t max_bytes =
            last ? times->bytes[size] : crossing(times, collective, size, way_of[size], way_of[size + 1]);
        rows[count++] = (struct bl_crossing){max_bytes, way_of[size]};
    }
    return count;
}
