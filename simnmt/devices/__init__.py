"""Execution kinds: how the boxes of a target execute requests, in the reference and for the compiled engine.

Start with `device` (the protocol of a kind, the clock, balancers), then `fifo`, `batch`, `slots` and `stream`, one kind each;
`models` holds the loads of models that do not all fit into the memory of a box. A new kind is one file, an import and an entry
in `KINDS`. Imports nothing from the world.
"""

from simnmt.devices.batch import Batched
from simnmt.devices.device import Kind
from simnmt.devices.fifo import Fifo
from simnmt.devices.slots import Slots
from simnmt.devices.stream import Streamed

KINDS: dict[str, type[Kind]] = {kind.name: kind for kind in (Fifo, Batched, Slots, Streamed)}
"""The execution kinds by name."""

__all__ = ["KINDS", "Batched", "Fifo", "Kind", "Slots", "Streamed"]
