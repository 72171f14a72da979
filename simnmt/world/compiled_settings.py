"""Settings of the compiled world, made from those of the world in SimPy: costs of batches, estimates, views, accounts.

`kept` collects the arrays and structures that an address belongs to, which must live as long as the C reads them.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import numpy as np

from simnmt.base.errors import InputError
from simnmt.batching import Batching
from simnmt.policies.estimates import QuantileEstimate, TransferEstimate
from simnmt.policies.views import BacklogView, BatchView
from simnmt.profile.batch_cost import DecodingCost, LengthForm
from simnmt.results.device_accounts import BatchAccount
from simnmt.results.requests import Engine
from simnmt.world import compiled_library as c
from simnmt.world.batch_pool import BatchPool, BatchServerSpec
from simnmt.world.streaming_server import StreamingPool


class UncompiledError(Exception):
    """A run that the compiled world does not cover; the message names the cause."""

    remedy = "choose the engine simpy, or none"


class NoLibraryError(UncompiledError):
    """There is no compiled world."""

    remedy = "run `python -m simnmt.base.compile`, or choose the engine simpy"

    def __init__(self) -> None:
        super().__init__("the compiled world is not compiled")


_MOST_COSTS = 16
_batch_costs: dict[tuple[int, int, int], tuple[DecodingCost, list[Any]]] = {}
"""The last tables of costs by identity of the cost and the sizes of its tables, and what these consist of, the structure last.
Making them takes 15 ms, for every policy of every unit and twice for its saturated servers."""


def batch_cost(batched: BatchServerSpec, kept: list[Any]) -> int:
    """Return the address of the costs of batches."""
    cost, batching = batched.cost, batched.batching
    if type(cost) is not DecodingCost:
        raise UncompiledError("batches of other costs")
    together = max(batching.encoded_together or batching.size, batching.size)
    key = (id(cost), batching.size, together)
    _, tables = _batch_costs.get(key, (cost, None))
    if tables is None:
        tables = _batch_tables(cost, batching.size, together)
        if len(_batch_costs) >= _MOST_COSTS:
            _batch_costs.clear()
        # The cost is kept too, so that no other one has its identity.
        _batch_costs[key] = cost, tables
    kept.append(tables)
    return ctypes.addressof(tables[-1])


def _batch_tables(cost: DecodingCost, size: int, together: int) -> list[Any]:
    """Return the tables of costs of batches up to `size`, and of encoding up to `together` sentences; their structure last."""
    kept = list[Any]()
    steps, encoders = (
        array_of(c.LengthCost, [_length_cost(part.at_batch(batch), kept) for batch in range(1, most + 1)], kept)
        for part, most in ((cost.step, size), (cost.encoder, together))
    )
    made = c.BatchCost(steps, encoders, c.address(np.array([cost.gap_s(n) for n in range(1, size + 1)]), kept))
    made.encoder_count, made.packs, made.src_len = together, cost.packs, cost.src_len or 0
    made.weighs_sources = any(cost.source_s(1, longest) for longest in (1, 2))
    for name in ("mean_over_usual", "padding_share", "refill_s_fixed", "refill_s_per_sentence", "leave_s"):
        setattr(made, name, getattr(cost, name))
    made.s_per_row_src_token = cost.s_per_row_src_token
    return [*kept, made]


def _length_cost(form: LengthForm, kept: list[Any]) -> c.LengthCost:
    tables = (c.address(np.array(table), kept) for table in (form.start, form.value, form.slopes, form.before))
    return c.LengthCost(len(form.start), form.level, form.slope, *tables)


def array_of(kind: Any, items: Sequence[Any], kept: list[Any]) -> int:
    made = (kind * len(items))(*items)
    kept.append(made)
    return ctypes.addressof(made)


def estimate_settings(estimate: TransferEstimate) -> c.EstimateSettings:
    kind = c.ESTIMATES.get(type(estimate))
    if kind is None:
        raise UncompiledError(f"an estimate of kind {type(estimate).__name__}")
    settings = c.EstimateSettings(estimate.value_s, estimate.weight, kind=kind)
    if isinstance(estimate, QuantileEstimate):
        settings.quantile, settings.window = estimate.quantile, estimate.window
    return settings


def parallel_workers(view: Any) -> int:
    """Return the workers that a view of the backlog mirrors; 0 without a view."""
    if view is None or type(view) is BatchView:
        return 0
    if type(view) is not BacklogView:
        raise UncompiledError(f"a view of the kind {type(view).__name__}")
    return view.parallel


def batching_settings(batching: Batching) -> c.Batching:
    if type(batching) is not Batching:
        raise UncompiledError("a batcher in Python")
    return c.Batching(
        batching.size,
        batching.threshold,
        batching.collected or 0,
        batching.padded_tokens or 0,
        batching.encoded_together or batching.size,
        batching.longest_wait_s,
    )


def take_back(cdll: ctypes.CDLL, world: int, target: int, pool: StreamingPool) -> None:
    """Bring the boxes of a target into the states that they have in the compiled world."""
    for number, box in enumerate(pool.boxes):
        copied = c.StreamingBox()
        cdll.simnmt_world_stream(world, target, number, ctypes.byref(copied))
        counts = np.ctypeslib.as_array(copied.counts, (len(pool.streamed.phases()), len(pool.streamed.states))).tolist()
        deferred = (copied.deferred_since_s, bool(copied.deferred_warm)) if copied.is_deferred else None
        numbers = {name: getattr(copied, name) for name in (*c.STREAMED_SECONDS[:-1], *c.STREAMED_COUNTS)}
        box.resume(copied.phase, copied.state, counts, deferred, numbers)


def account_of(cdll: ctypes.CDLL, world: int, target: int, pool: BatchPool) -> BatchAccount:
    """Return the account of all boxes of a target."""
    size, accounts = pool.batched.batching.size, list[BatchAccount]()
    for box in range(len(pool.boxes)):
        copied = c.AccountCopy()
        cdll.simnmt_world_account(world, target, box, ctypes.byref(copied))
        timeline = np.empty((0, 2), np.int64)
        if copied.changes:
            timeline = np.ctypeslib.as_array(copied.timeline, (copied.changes, 2)).copy()
        steps, step_s = (np.ctypeslib.as_array(column, (size + 1,)).copy() for column in (copied.steps, copied.step_s))
        accounts.append(BatchAccount(size, steps, step_s, timeline=timeline, **counts_of(copied)))
    return accounts[0].merged(accounts[1:])


def counts_of(copied: c.AccountCopy) -> dict[str, Any]:
    names = ("encode_s", "refill_s", "encodings", "refills", "src_tokens", "padded_tokens", "sentences")
    return {name: getattr(copied, name) for name in names}


def refuse_if_chosen(engine: Engine | None, error: UncompiledError) -> None:
    """Raise `InputError` for what the compiled engine does not cover, if it was chosen."""
    if engine == "compiled":
        message = str(error) if isinstance(error, NoLibraryError) else f"the compiled world does not cover {error}"
        raise InputError(message, remedy=error.remedy) from None
