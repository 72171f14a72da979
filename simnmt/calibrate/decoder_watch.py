"""Where the time of real decoding goes: the parts of every step, told apart while sentences are decoded (FNI-17)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import perf_counter
from typing import Any
from unittest.mock import patch

import torch

from simnmt.nmt import output_layer
from simnmt.nmt.batched import BatchedRun
from simnmt.nmt.fused_output import FusedOutput
from simnmt.nmt.models import TranslationModel

PARTS = ("body", "project", "softmax", "search", "fused_product", "fused")
"""`project`: the plain product with its bias; `fused`: bias, softmax and search in one pass."""
LAYER = ("project", "softmax", "search")
"""The plain output layer."""


def clock_of(model: TranslationModel) -> Callable[[], float]:
    """Seconds once the model's device has done what it was given: a GPU's launches return long before."""
    device = model.device
    if device.type != "cuda":
        return perf_counter

    def waited_s() -> float:
        torch.cuda.synchronize(device)
        return perf_counter()

    return waited_s


@contextmanager
def watched(model: TranslationModel, clock: Callable[[], float] = perf_counter) -> Iterator[dict[str, float]]:
    """Seconds of each of `PARTS`, added up while decoding goes on; two readings of the clock a part is what it costs.

    `clock`: on a GPU one that waits for it, see `clock_of`; watching then slows what is watched.
    """
    seconds = dict.fromkeys(PARTS, 0.0)
    plain: Any = output_layer
    own_products: Any = model.products

    def timed(part: str, do: Any) -> Any:
        def run(*given: Any, **named: Any) -> Any:
            before, products_s = clock(), seconds["fused_product"]
            try:
                return do(*given, **named)
            finally:
                seconds[part] += clock() - before - (seconds["fused_product"] - products_s)

        return run

    def products(*given: Any) -> Iterator[tuple[int, Any]]:
        blocks = own_products(*given)
        while True:
            before = clock()
            made = next(blocks, None)
            seconds["fused_product"] += clock() - before
            if made is None:
                return
            yield made

    with (
        patch.object(model, "body", timed("body", model.body)),
        patch.object(model, "project", timed("project", model.project)),
        patch.object(model, "products", products),
        patch.object(plain, "log_softmax_", timed("softmax", plain.log_softmax_)),
        patch.object(plain, "largest", timed("search", plain.largest)),
        patch.object(plain, "largest_sums", timed("search", plain.largest_sums)),
        patch.object(FusedOutput, "project", timed("fused", FusedOutput.project)),
        patch.object(FusedOutput, "largest_sums", timed("fused", FusedOutput.largest_sums)),
    ):
        yield seconds


def parts_of(run: BatchedRun, seconds: dict[str, float]) -> dict[str, float]:
    """Seconds of all parts of a decoding that was watched, encoder and bookkeeping included: they sum to the whole."""
    known_s = run.encode_s + run.refill_s + sum(seconds.values())
    return {"encode": run.encode_s, "refill": run.refill_s, **seconds, "rest": run.total_s - known_s}
