"""Physical floors: microseconds that no collective in a graph can beat, by what was measured on H200."""

LINK_GBS = 360.0  # kernel stores or loads over NVLink 4, one GPU to the others
LAUNCH_US, ONE_WAY_US = 0.73, 1.32  # an empty kernel in a graph; a signal from GPU to GPU


def floor_us(size, ranks):
    """Of an all-reduce: one launch, and the better of one phase and two."""
    bytes_per_us = LINK_GBS * 1e3
    one = ONE_WAY_US + (ranks - 1) * size / bytes_per_us
    two = 2 * ONE_WAY_US + 2 * (ranks - 1) / ranks * size / bytes_per_us
    return LAUNCH_US + min(one, two)


def part_floor_us(part, ranks):
    """Of an all-gather or reduce-scatter of so many bytes a rank: one launch, one trip, and what goes from one GPU to the others."""
    return LAUNCH_US + ONE_WAY_US + (ranks - 1) * part / (LINK_GBS * 1e3)
