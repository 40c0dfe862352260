"""The calls of vLLM's NCCL wrapper, each with its buffers and what must be in them afterwards.

Inputs are small whole numbers that differ from element to element, from rank to rank and from one seed to the next, so results are
exact.  They repeat every 127 elements: few are computed, and sizes are no multiples of that.
"""
import torch

PERIOD = 127
POISON = -77


def numbers(rank, seed):
    return [(i * 37 + rank * 13 + seed * 5) % PERIOD % 11 - 5 for i in range(PERIOD)]


class Call:
    """What one rank does.  Subclasses make their buffers in `make`; `issue` calls the wrapper, and `wants` says for a seed what the output
    consists of: pairs of numbers, which repeat, and a count.

    served: of each collective the calls that this is on this rank; an end of a message is one of sendrecv.
    """
    served = {}

    def __init__(self, job, dtype, count):
        self.job, self.comm, self.rank, self.size, self.dtype, self.count = job, job.comm, job.rank, job.size, dtype, count
        self.input = self.output = None
        self.make()

    def make(self):
        self.input, self.output = self.room(self.count), self.room(self.count)

    def room(self, count):
        return torch.empty(count, dtype=self.dtype, device=self.job.device)

    def tiled(self, values, count):
        return torch.tensor(values, dtype=self.dtype, device=self.job.device).repeat(count // len(values) + 1)[:count]

    def load(self, seed):
        """On the current stream, as all that follows."""
        self.output.copy_(self.tiled([POISON], self.output.numel()))
        self.input.copy_(self.tiled(numbers(self.rank, seed), self.input.numel()))

    def total(self, seed, begin=0):
        """The sum of all ranks' inputs from one of their elements on."""
        sums = [sum(column) for column in zip(*(numbers(rank, seed) for rank in range(self.size)))]
        return sums[begin % PERIOD:] + sums[:begin % PERIOD]

    def verify(self, seed, where):
        begin, wants = 0, self.wants(seed)
        for part, (values, count) in enumerate(wants):
            good = torch.equal(self.output[begin:begin + count], self.tiled(values, count))
            self.job.check(good, f"{where}: {type(self).__name__} of {self.count} {self.dtype}: part {part + 1} of {len(wants)} is wrong")
            begin += count
        self.job.check(begin == self.output.numel(), f"{type(self).__name__}: not all of the output was checked")


class AllReduce(Call):
    served = dict(all_reduce=1)

    def issue(self):
        self.comm.all_reduce(self.input, self.output)

    def wants(self, seed):
        return [(self.total(seed), self.count)]


class AllReduceInPlace(AllReduce):
    def make(self):
        self.input = self.output = self.room(self.count)


class AllGather(Call):
    served = dict(all_gather=1)

    def make(self):
        self.input, self.output = self.room(self.count), self.room(self.count * self.size)

    def issue(self):
        self.comm.all_gather(self.output, self.input)

    def wants(self, seed):
        return [(numbers(rank, seed), self.count) for rank in range(self.size)]


class Uneven(Call):
    """Another size for each rank."""
    each = None  # the collective of which there is a call for each rank

    def sizes(self):
        return [self.count + 3 * rank for rank in range(self.size)]

    @property
    def served(self):
        """Without data it is NCCL's."""
        return {self.each: sum(size > 0 for size in self.sizes()), "nccl": self.sizes().count(0)} if self.each else {}


class AllGatherV(Uneven):
    each = "broadcast"

    def make(self):
        self.input, self.output = self.room(self.sizes()[self.rank]), self.room(sum(self.sizes()))

    def issue(self):
        self.comm.all_gatherv(self.output, self.input, self.sizes())

    def wants(self, seed):
        return [(numbers(rank, seed), size) for rank, size in enumerate(self.sizes())]


class WithNone:
    """A rank in the midst has nothing."""

    def sizes(self):
        sizes = super().sizes()
        sizes[self.size // 2] = 0
        return sizes


class AllGatherVWithNone(WithNone, AllGatherV):
    pass


class ReduceScatter(Call):
    served = dict(reduce_scatter=1)

    def make(self):
        self.input, self.output = self.room(self.count * self.size), self.room(self.count)

    def issue(self):
        self.comm.reduce_scatter(self.output, self.input)

    def wants(self, seed):
        return [(self.total(seed, self.count * self.rank), self.count)]


class ReduceScatterV(Uneven):
    each = "reduce"

    def make(self):
        self.input, self.output = self.room(sum(self.sizes())), self.room(self.sizes()[self.rank])

    def issue(self):
        self.comm.reduce_scatterv(self.output, self.input, self.sizes())

    def wants(self, seed):
        return [(self.total(seed, sum(self.sizes()[:self.rank])), self.sizes()[self.rank])]


class ReduceScatterVWithNone(WithNone, ReduceScatterV):
    pass


class Broadcast(Call):
    """In place, from the last rank; the others lend no input."""
    served = dict(broadcast=1)

    def make(self):
        self.input = self.output = self.room(self.count)

    def issue(self):
        self.comm.broadcast(self.output, self.size - 1)

    def wants(self, seed):
        return [(numbers(self.size - 1, seed), self.count)]


class Reduce(Call):
    """To the last rank; the others' outputs stay."""
    served = dict(reduce=1)

    def issue(self):
        self.comm.reduce(self.output, self.input, self.size - 1)

    def wants(self, seed):
        return [(self.total(seed) if self.rank == self.size - 1 else [POISON], self.count)]


class SendRecv(Call):
    """From the first rank to the last, in no group."""

    @property
    def served(self):
        return dict(sendrecv=(self.rank == 0) + (self.rank == self.size - 1))

    def issue(self):
        if self.rank == 0:
            self.comm.send(self.input, self.size - 1)
        if self.rank == self.size - 1:
            self.comm.recv(self.output, 0)

    def wants(self, seed):
        return [(numbers(0, seed) if self.rank == self.size - 1 else [POISON], self.count)]


class Ring(Call):
    """To the next rank and from the one before, in a group."""
    served = dict(sendrecv=2)

    def issue(self):
        self.comm.group_start()
        self.comm.send(self.input, (self.rank + 1) % self.size)
        self.comm.recv(self.output, (self.rank - 1) % self.size)
        self.comm.group_end()

    def wants(self, seed):
        return [(numbers((self.rank - 1) % self.size, seed), self.count)]


class Scatter(Uneven):
    """From the last rank, which copies its own part on the stream, inside the group."""

    @property
    def served(self):
        return dict(sendrecv=self.size - 1 if self.rank == self.size - 1 else 1)

    def make(self):
        self.input, self.output = self.room(sum(self.sizes())), self.room(self.sizes()[self.rank])

    def issue(self):
        self.comm.scatter(self.output, self.input, self.sizes(), self.size - 1)

    def wants(self, seed):
        begin = sum(self.sizes()[:self.rank]) % PERIOD
        values = numbers(self.size - 1, seed)
        return [(values[begin:] + values[:begin], self.sizes()[self.rank])]


class Grouped(Call):
    """Several in one group, the same kind more than once."""
    kinds = (AllReduce, AllGather, AllReduce, Ring, ReduceScatter, Broadcast, AllReduce)
    served = dict(all_reduce=3, all_gather=1, reduce_scatter=1, broadcast=1, sendrecv=2)

    def make(self):
        self.parts = [kind(self.job, self.dtype, self.count + i) for i, kind in enumerate(self.kinds)]

    def load(self, seed):
        for i, part in enumerate(self.parts):
            part.load(seed + i)

    def issue(self):
        self.comm.group_start()
        for part in self.parts:
            part.issue()
        self.comm.group_end()

    def verify(self, seed, where):
        for i, part in enumerate(self.parts):
            part.verify(seed + i, f"{where}, group")


KINDS = (AllReduce, AllReduceInPlace, AllGather, AllGatherV, AllGatherVWithNone, ReduceScatter, ReduceScatterV, ReduceScatterVWithNone,
         Broadcast, Reduce, SendRecv, Ring, Scatter, Grouped)
