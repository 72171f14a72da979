"""Where the time of real decoding goes: the parts of every step, told apart while sentences are decoded (FNI-17)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from time import perf_counter
from typing import Any
from unittest.mock import patch

from simnmt.nmt import output_layer
from simnmt.nmt.fused_output import FusedOutput
from simnmt.nmt.models import TranslationModel

PARTS = ("body", "project", "softmax", "search", "fused_product", "fused")
"""`project`: the plain product with its bias; `fused`: bias, softmax and search in one pass."""


@contextmanager
def watched(model: TranslationModel) -> Iterator[dict[str, float]]:
    """Seconds of each of `PARTS`, added up while decoding goes on; two readings of the clock a part is what it costs."""
    seconds = dict.fromkeys(PARTS, 0.0)

    def timed(part: str, do: Any) -> Any:
        def run(*given: Any, **named: Any) -> Any:
            before, products_s = perf_counter(), seconds["fused_product"]
            try:
                return do(*given, **named)
            finally:
                seconds[part] += perf_counter() - before - (seconds["fused_product"] - products_s)

        return run

    def products(*given: Any) -> Iterator[tuple[int, Any]]:
        blocks = type(model).products(model, *given)
        while True:
            before = perf_counter()
            made = next(blocks, None)
            seconds["fused_product"] += perf_counter() - before
            if made is None:
                return
            yield made

    with (
        patch.object(model, "body", timed("body", model.body)),
        patch.object(model, "project", timed("project", model.project)),
        patch.object(model, "products", products),
        patch.object(output_layer, "log_softmax_", timed("softmax", output_layer.log_softmax_)),
        patch.object(output_layer, "largest", timed("search", output_layer.largest)),
        patch.object(output_layer, "largest_sums", timed("search", output_layer.largest_sums)),
        patch.object(FusedOutput, "project", timed("fused", FusedOutput.project)),
        patch.object(FusedOutput, "largest_sums", timed("fused", FusedOutput.largest_sums)),
    ):
        yield seconds
