"""Execution kinds: how the boxes of a target execute requests, in the reference and for the compiled engine.

Start with `device` (the protocol of a kind, the clock, balancers), then `fifo`, `models` (first in, first out, with models that
do not all fit into memory), `batch` and `stream`, one kind each. A new kind is one file, an import and an entry in `KINDS`.
Imports nothing from the world.
"""

from simnmt.devices.batch import Batched
from simnmt.devices.device import Kind
from simnmt.devices.fifo import Fifo
from simnmt.devices.models import ModelFifo
from simnmt.devices.stream import Streamed

KINDS: dict[str, type[Kind]] = {kind.name: kind for kind in (Fifo, ModelFifo, Batched, Streamed)}
"""The execution kinds by name."""

__all__ = ["KINDS", "Batched", "Fifo", "Kind", "ModelFifo", "Streamed"]
