"""One thread for models this small: more only wait for each other, on a busy machine for long."""

from __future__ import annotations

from importlib.util import find_spec

if find_spec("torch") is not None:
    import torch

    torch.set_num_threads(1)
