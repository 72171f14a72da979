"""What batches are to the compiled engine: their settings, the tables of their costs, and the accounts of their boxes."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simnmt.batching import Batching
from simnmt.profile.cost import DecodingCost, LengthCost
from simnmt.results.device_accounts import BatchAccount
from simnmt.world.structures import PinnedMemory, UncompiledError, c


def batching_settings(batching: Batching, ends_together: bool, memory: PinnedMemory) -> Any:
    """Return the settings of a batcher. `ends_together`: see `Batched`."""
    if type(batching) is not Batching:
        raise UncompiledError("a batcher in Python is in the reference alone")
    return c.Batching(
        batching.size,
        batching.threshold,
        batching.collected or 0,
        batching.padded_tokens or 0,
        batching.encoded_together or batching.size,
        ends_together,
        batching.longest_wait_s,
        classes_of(batching.max_wait_s, memory),
    )


def classes_of(max_wait_s: tuple[float, ...], memory: PinnedMemory) -> Any:
    """Return the classes of a queue."""
    return c.Classes(len(max_wait_s), memory.address(np.array(max_wait_s)))


_MOST_COSTS = 16
_batch_costs: dict[tuple[int, int, int], tuple[DecodingCost, PinnedMemory]] = {}
"""The last tables of costs by identity of the cost and the sizes of its tables, and what these consist of, the structure last.
Making them takes 15 ms, for every policy of every unit and twice for its saturated boxes."""


def batch_cost(batching: Batching, cost: DecodingCost, memory: PinnedMemory) -> int:
    """Return the address of the costs of batches."""
    together = max(batching.encoded_together or batching.size, batching.size)
    key = (id(cost), batching.size, together)
    if key not in _batch_costs:
        if len(_batch_costs) >= _MOST_COSTS:
            _batch_costs.clear()
        # The cost is held too, so that no other one has its identity.
        _batch_costs[key] = cost, _batch_tables(cost, batching.size, together)
    _, tables = _batch_costs[key]
    memory.append(tables)
    return ctypes.addressof(tables[-1])


def _batch_tables(cost: DecodingCost, size: int, together: int) -> PinnedMemory:
    """Return the tables of costs of batches up to `size`, and of encoding up to `together` sentences; their structure last."""
    memory = PinnedMemory()
    steps, encoders = (
        memory.array(c.LengthCost, [_length_cost(part.at_batch(batch), memory) for batch in range(1, most + 1)])
        for part, most in ((cost.step, size), (cost.encoder, together))
    )
    tables = c.BatchCost(steps, encoders, memory.address(np.array([cost.gap_s(n) for n in range(1, size + 1)])))
    tables.encoder_count, tables.packs, tables.src_len = together, cost.packs, cost.src_len or 0
    tables.weighs_sources = any(cost.source_s(1, longest) for longest in (1, 2))
    for name in ("mean_over_usual", "padding_share", "refill_s_fixed", "refill_s_per_sentence", "leave_s"):
        setattr(tables, name, getattr(cost, name))
    tables.s_per_row_src_token = cost.s_per_row_src_token
    memory.append(tables)
    return memory


def _length_cost(cost: LengthCost, memory: PinnedMemory) -> Any:
    return c.LengthCost(len(cost.start), *(memory.address(np.array(table)) for table in cost))


def account_of(copied: Any, size: int) -> BatchAccount:
    """Return the account of a box that batches up to `size` sentences."""

    def column(address: int, kind: Any, shape: tuple[int, ...]) -> NDArray[Any]:
        return np.ctypeslib.as_array(ctypes.cast(address, ctypes.POINTER(kind)), shape).copy()

    names = ("encode_s", "refill_s", "encodings", "refills", "src_tokens", "padded_tokens", "sentences")
    return BatchAccount(
        size,
        column(copied.steps, ctypes.c_int64, (size + 1,)),
        column(copied.step_s, ctypes.c_double, (size + 1,)),
        **{name: getattr(copied, name) for name in names},
    )
