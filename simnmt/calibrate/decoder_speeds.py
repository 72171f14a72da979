"""Time a decoder by parts while it decodes, with the plain output layer or the fused one (FNI-17)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from time import perf_counter
from typing import Any
from unittest.mock import patch

from simnmt.nmt import output_layer
from simnmt.nmt.models import TranslationModel
from simnmt.nmt.output_layer import FusedOutput

PARTS = ("body", "project", "softmax", "search", "fused_product", "fused")
"""`project`: the plain product with its bias; `fused`: bias, softmax and search in one pass."""


@contextmanager
def watched(model: TranslationModel) -> Iterator[dict[str, float]]:
    """Yield the seconds of each of `PARTS`, summed over all decoding in the block; a part costs two readings of the clock."""
    seconds = dict.fromkeys(PARTS, 0.0)
    plain: Any = output_layer
    model_products: Any = model.products

    def timed(part: str, do: Any) -> Any:
        def run(*given: Any, **named: Any) -> Any:
            start_s, products_s = perf_counter(), seconds["fused_product"]
            try:
                return do(*given, **named)
            finally:
                seconds[part] += perf_counter() - start_s - (seconds["fused_product"] - products_s)

        return run

    def products(*given: Any) -> Iterator[tuple[int, Any]]:
        blocks = model_products(*given)
        while True:
            start_s = perf_counter()
            block = next(blocks, None)
            seconds["fused_product"] += perf_counter() - start_s
            if block is None:
                return
            yield block

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
