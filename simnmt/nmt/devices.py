"""Names of devices: cpu, cuda, cuda:1."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from simnmt.nmt.errors import NmtError

if TYPE_CHECKING:
    import torch


def device_named(name: str) -> str:
    """The device's full name, cuda being cuda:0; raises `NmtError` for what is none."""
    if re.fullmatch(r"cpu|cuda(:\d+)?", name) is None:
        raise NmtError(f"no device {name}", remedy="cpu or cuda:0")
    return "cuda:0" if name == "cuda" else name


def torch_device(name: str) -> torch.device:
    """torch's device of that name; raises `NmtError` where there is none."""
    import torch  # here, so that judging a name needs no torch

    device = torch.device(device_named(name))
    if device.type == "cuda":
        if not torch.cuda.is_available():
            raise NmtError(f"torch sees no {device} here", remedy="use cpu, or install a torch with CUDA")
        if (device.index or 0) >= torch.cuda.device_count():
            raise NmtError(f"torch sees {torch.cuda.device_count()} GPU here, and no {device}", remedy="use cuda:0")
    return device
