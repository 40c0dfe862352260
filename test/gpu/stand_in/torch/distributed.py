"""torch.distributed: names alone; ranks meet by other means."""
import enum


class ReduceOp(enum.Enum):
    SUM, AVG, PRODUCT, MIN, MAX = range(5)


class ProcessGroup:
    pass
