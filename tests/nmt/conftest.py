"""One thread for models this small: more only wait for each other, on a busy machine for long."""

from __future__ import annotations

import torch

torch.set_num_threads(1)
