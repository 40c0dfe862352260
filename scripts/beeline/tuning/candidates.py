"""The candidates for thresholds, each algorithm with each block size where it may win, and the fewest tuning files that force them all.
Pieces have blocks of one size, and as many as fill the links of H200.

A candidate has a range of bytes, as tuning files have them; those whose ranges do not meet share a file.  Sizes that a file gives to NCCL
are not measured with it (beeline-perf --served).
"""
from ..words import size_text
from .thresholds import NCCL, is_pieces, words_of

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
MOST = 64 * MIB  # of lines
FEW = 4  # ranks, which links alone bound: only pieces of so many are known to be worth much more
THREADS = {64: 4 * KIB, 128: 2 * MIB, 256: MOST}  # and up to which size
WARP_RANKS = 2  # of a warp; kernels.c, bl_kernel_threads


def ranges(ranks):
    """{route: (least bytes, most)}, wide of the crossings of 2 and 4 ranks; others are tried everywhere."""
    # What is sent to every peer grows with the peers, and two shots take two trips.
    one_shot = 1 << (32 * MIB // ranks**2).bit_length() - 1
    return {"oneshot_ll": (1, 64 * KIB), "oneshot_ll128": (256, one_shot), "twoshot_ll128": (16 * KIB, MOST),
            "oneshot_ll128:warps": (1, 128 * KIB), "twoshot_ll128:warps": (8 * KIB, 2 * MIB), "reducescatter_ll128:warps": (1, 512 * KIB)}


def longest(all_reduce, ranks):
    """Up to which size an all-reduce, or each of the others, is tried: above MOST in pieces alone."""
    if all_reduce:
        return GIB if ranks <= FEW else 256 * MIB
    return 256 * MIB if ranks <= FEW else 16 * MIB


def pieces_of(route, ranks):
    """From a size on at which they lose, so that it is known where they begin to win.  Of 3 and more ranks those that add need more blocks than those that pass on; between 2 they end sooner with a product by a few less."""
    return 4 * MIB, GIB, words_of(route, f"blocks={32 if route != 'twoshot_bulk' else 28 if ranks == 2 else 48}")


def candidates_of(routes, ranks):
    """[(least bytes, most, candidate)]"""
    found, known = [], ranges(ranks)
    for route in routes:
        if is_pieces(route):
            found.append(pieces_of(route, ranks))
            continue
        fewest = 32 * -(-ranks // WARP_RANKS) if route.endswith(":warps") else 32
        least, most = known.get(route, (1, MOST))
        found += [(least, min(most, limit), words_of(route, f"threads={t}")) for t, limit in THREADS.items() if t >= fewest and least <= limit]
    return found


def rows_for(candidates):
    """Lists of rows [(most bytes, candidate)] that hold each candidate once, as few as can be; the rest is NCCL's."""
    lists = []
    for least, most, name in sorted(candidates):
        rows = next((rows for rows in lists if rows[-1][0] < least), None)
        if rows is None:
            rows = []
            lists.append(rows)
        before = rows[-1][0] if rows else 0
        rows += [*([(least - 1, NCCL)] if before < least - 1 else []), (most, name)]
    return lists


def files_of(names, ranks):
    """names: {collective: its routes}; of each file {collective: rows}."""
    lists = {collective: rows_for(candidates_of(of, ranks)) for collective, of in names.items()}
    return [{collective: rows[i] if i < len(rows) else [] for collective, rows in lists.items()} for i in range(max(map(len, lists.values())))]


def forced_on(rows, size):
    """The candidate of a size; None where NCCL serves."""
    name = next((name for most, name in rows if size <= most), NCCL)
    return None if name == NCCL else name


def rows_text(collective, ranks, rows):
    """As lines of a tuning file."""
    return "".join(f"{collective} {ranks} {size} {name}\n" for size, name in [*((size_text(most), name) for most, name in rows), ("max", NCCL)])
