"""torch.accelerator."""
from .driver import current as device_index
