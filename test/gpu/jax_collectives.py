#!/usr/bin/env python3
"""JAX's collectives, which are NCCL calls of XLA's own runtime: a thread for each GPU of a process, groups, several communicators, and
command buffers, which are CUDA graphs.

  test/gpu/jax_collectives.py [--gpus N] [--processes] [--command-buffers] [--parts collectives,loop,groups,training,times]

  --gpus N           ranks, a GPU each (2)
  --processes        a process for each, which this one starts; else all are threads of this one
  --command-buffers  XLA is to put collectives into graphs, too (XLA_FLAGS)

Parts: every collective, by datatypes and sizes; the same call over and over within one program; subgroups, and many arrays at once;
training steps beside the same on one GPU; times of a call in a loop.  All but the times' calls are checked, to the bit but for training,
whose sums are rounded.  What serves a call is the environment's choice (LD_PRELOAD); BEELINE_STATS=1 says it.
Exit status: 0, or not where something differed; the last line, of each process, says how many checks passed and failed.
"""
import argparse
import os
import socket
import statistics
import subprocess
import sys
import time

PARTS = "collectives,loop,groups,training,times"
COUNTS = (1, 17, 1000, 4099, 70000, 1 << 20)
DATATYPES = ("float32", "bfloat16", "int32", "uint8", "float64")
LOOPS = 200


def options():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("--gpus", type=int, default=2)
    p.add_argument("--processes", action="store_true")
    p.add_argument("--command-buffers", action="store_true")
    p.add_argument("--parts", default=PARTS)
    p.add_argument("--rank", type=int, help=argparse.SUPPRESS)
    p.add_argument("--coordinator", help=argparse.SUPPRESS)
    o = p.parse_args()
    for part in o.parts.split(","):
        if part not in PARTS.split(","):
            p.error(f"--parts {part}: some of {PARTS}")
    return o


def start_processes(o):
    """A process for each rank.  Where one fails, the others, which would wait for it, are ended, and the exit status is its."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    argv = [sys.executable, *sys.argv, "--coordinator", f"127.0.0.1:{port}"]
    ranks = [subprocess.Popen([*argv, "--rank", str(rank)]) for rank in range(o.gpus)]
    while any(rank.poll() is None for rank in ranks) and not any(rank.poll() for rank in ranks):
        time.sleep(0.1)
    failed = [rank.returncode for rank in ranks if rank.returncode]
    for rank in ranks:
        rank.kill()
        rank.wait()
    return abs(failed[0]) if failed else 0


class Run:
    """The ranks, as a mesh, and what was found."""

    def __init__(self, o):
        if o.coordinator:
            jax.distributed.initialize(o.coordinator, o.gpus, o.rank, local_device_ids=[o.rank])
        self.size = o.gpus
        self.mesh = jax.sharding.Mesh(np.array(jax.devices()[:o.gpus]), ("rank",))
        self.passed, self.failures = 0, []

    def spread(self, rows):
        """An array of which each rank has a row."""
        return jax.make_array_from_callback(rows.shape, NamedSharding(self.mesh, P("rank")), lambda index: rows[index])

    def program(self, body):
        """What each rank does with its rows, one of each array."""
        def of_rank(*arrays):
            return jax.tree.map(lambda row: row[None], body(*(rows[0] for rows in arrays)))
        return jax.jit(jax.shard_map(of_rank, mesh=self.mesh, in_specs=P("rank"), out_specs=P("rank"), check_vma=False))

    def check(self, good, what):
        if good:
            self.passed += 1
        else:
            self.failures.append(what)
            print(f"WRONG {what}", flush=True)

    def check_rows(self, got, want, what):
        for shard in got.addressable_shards:
            mine, right = np.asarray(shard.data), want[shard.index].astype(got.dtype)
            bad = np.flatnonzero(mine.view(np.uint8) != right.view(np.uint8))
            self.check(bad.size == 0, f"{what}, rank {shard.index[0].start}: {bad.size} bytes of {mine.nbytes}, first at {bad[:1]}")


def values(shape, datatype, seed):
    """Whole numbers, small enough for sums that are exact in every type."""
    n = np.arange(np.prod(shape), dtype=np.int64)
    return ((n * 7 + n // 1000 + seed) % 5).reshape(shape).astype(datatype)


def ring(n):
    return [(r, (r + 1) % n) for r in range(n)]


def calls(n):
    """Of each collective: its name, blocks of a rank's row, what a rank does, and what comes of all rows."""
    return (
        ("psum", None, lambda x: lax.psum(x, "rank"), lambda a: np.broadcast_to(a.sum(0), a.shape)),
        ("pmax", None, lambda x: lax.pmax(x, "rank"), lambda a: np.broadcast_to(a.max(0), a.shape)),
        ("pmin", None, lambda x: lax.pmin(x, "rank"), lambda a: np.broadcast_to(a.min(0), a.shape)),
        ("all_gather", None, lambda x: lax.all_gather(x, "rank"), lambda a: np.broadcast_to(a, (n, *a.shape))),
        ("psum_scatter", n, lambda x: lax.psum_scatter(x, "rank"), lambda a: a.sum(0)),
        ("all_to_all", n, lambda x: lax.all_to_all(x, "rank", 0, 0), lambda a: a.swapaxes(0, 1)),
        ("ppermute", None, lambda x: lax.ppermute(x, "rank", ring(n)), lambda a: np.roll(a, 1, 0)),
        ("ppermute of one", None, lambda x: lax.ppermute(x, "rank", [(0, n - 1)]), lambda a: np.concatenate([0 * a[1:], a[:1]])),
    )


def collectives(run):
    for name, blocks, body, expect in calls(run.size):
        program = run.program(body)
        for datatype in DATATYPES:
            for k, count in enumerate(COUNTS):
                shape = (run.size, count) if blocks is None else (run.size, blocks, count)
                rows = values(shape, "int64", k)
                run.check_rows(program(run.spread(rows.astype(jnp.dtype(datatype)))), expect(rows), f"{name} of {count} {datatype}")


def loop(run):
    """Each turn's input is what the turn before gave."""
    for name, blocks, body, expect in calls(run.size):
        if name in ("psum_scatter", "all_gather"):  # these have other shapes behind them
            continue
        program = run.program(lambda x: lax.fori_loop(0, 50, lambda _, y: body(y) % 5, x))
        for count in (3, 5000, 300000):
            rows = values((run.size, count) if blocks is None else (run.size, blocks, count), "int32", 1)
            want = rows
            for _ in range(50):
                want = expect(want) % 5
            for _ in range(3):
                run.check_rows(program(run.spread(rows)), want, f"50 times {name} of {count}")


def groups(run):
    """Many arrays in one call, which XLA makes a group; collectives of several kinds that do not wait for each other; subgroups."""
    counts = (1, 3, 64, 1000, 5000, 40000, 1 << 18)
    rows = [values((run.size, count), "float32", count) for count in counts]
    many = run.program(lambda *x: lax.psum(x, "rank"))
    for got, row in zip(many(*[run.spread(row) for row in rows]), rows):
        run.check_rows(got, np.broadcast_to(row.sum(0), row.shape), f"psum of many, {row.shape[1]}")

    def mixed(x):
        shifted = lax.ppermute(x, "rank", ring(run.size))
        return lax.psum(x, "rank") + 8 * shifted + 64 * lax.all_gather(x, "rank")[0] + 512 * lax.pmax(x, "rank")

    four = run.program(mixed)
    for row in rows:
        want = row.sum(0) + 8 * np.roll(row, 1, 0) + 64 * row[0] + 512 * row.max(0)
        for _ in range(5):
            run.check_rows(four(run.spread(row)), want, f"four kinds at once, {row.shape[1]}")
    pairs = [[r, r + 1] for r in range(0, run.size - 1, 2)]
    if run.size % 2 == 0:
        for row in rows:
            got = run.program(lambda x: lax.psum(x, "rank", axis_index_groups=pairs))(run.spread(row))
            want = np.repeat(row.reshape(run.size // 2, 2, -1).sum(1), 2, 0)
            run.check_rows(got, want, f"psum of pairs, {row.shape[1]}")


def training(run):
    """Steps of a small network, its weights on all ranks and the batch spread; beside the same on one GPU."""
    width, batch, steps = 512, 64 * run.size, 20
    random = np.random.default_rng(7)
    weights = [random.normal(0, width**-0.5, (width, width)).astype("float32") for _ in range(4)]
    x, y = (random.normal(0, 1, (batch, width)).astype("float32") for _ in range(2))

    def loss(weights, x, y):
        for w in weights:
            x = jnp.tanh(jnp.matmul(x, w, precision="highest"))
        return jnp.mean((x - y)**2)

    def step(weights, x, y):
        value, gradients = jax.value_and_grad(loss)(weights, x, y)
        return [w - 0.5 * g for w, g in zip(weights, gradients)], value

    def train(weights, x, y):
        program, losses = jax.jit(step), []
        for _ in range(steps):
            weights, value = program(weights, x, y)
            losses.append(float(value))
        return losses

    everywhere = NamedSharding(run.mesh, P())
    on_all = [jax.make_array_from_callback(w.shape, everywhere, lambda index, w=w: w[index]) for w in weights]
    losses = train(on_all, run.spread(x), run.spread(y))
    alone = train(*jax.device_put((weights, x, y), jax.local_devices()[0]))
    worst = max(abs(a - b) / b for a, b in zip(losses, alone))
    run.check(worst < 1e-5 and losses[-1] < losses[0], f"training: losses differ by {worst:.2e}: {losses} {alone}")


def times(run):
    for name, blocks, body, _ in calls(run.size):
        if name not in ("psum", "ppermute", "all_to_all"):
            continue
        program = run.program(lambda x: lax.fori_loop(0, LOOPS, lambda _, y: body(y), x))
        line = []
        for count in (256, 4096, 65536, 1 << 20):
            rows = run.spread(np.zeros((run.size, count) if blocks is None else (run.size, blocks, count // blocks), "bfloat16"))
            found = []
            for _ in range(8):
                program(rows).block_until_ready()
                begin = time.perf_counter()
                program(rows).block_until_ready()
                found.append((time.perf_counter() - begin) / LOOPS * 1e6)
            line.append(f"{2 * count >> 10 or 0.5:g}K {statistics.median(found):.2f}")
        print(f"# times {name:12} us: " + "  ".join(line), flush=True)


def main():
    o = options()
    if o.processes and o.rank is None:
        return start_processes(o)
    if o.command_buffers:
        os.environ["XLA_FLAGS"] = os.environ.get("XLA_FLAGS", "") + " --xla_gpu_enable_command_buffer=+COLLECTIVES --xla_gpu_graph_min_graph_size=1"
    os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"
    global jax, jnp, lax, np, NamedSharding, P
    import jax
    import jax.numpy as jnp
    import numpy as np
    from jax import lax
    from jax.sharding import NamedSharding, PartitionSpec as P
    jax.config.update("jax_enable_x64", True)
    run = Run(o)
    for part in o.parts.split(","):
        begin = time.time()
        globals()[part](run)
        print(f"# {part}: {time.time() - begin:.1f} s", flush=True)
    print(f"jax {jax.__version__}, {run.size} ranks: {run.passed} passed, {len(run.failures)} failed", flush=True)
    return 1 if run.failures else 0


if __name__ == "__main__":
    sys.exit(main())
