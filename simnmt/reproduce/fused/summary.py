"""What the page opens with: what fusing gains, how much of it is fusing's own, and how many claims hold."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from simnmt.reproduce.fused.devices import FusedDecoder
from simnmt.reproduce.verdicts import counted

Rows = Sequence[Mapping[str, Any]]

_NO_DEVICE = "No device at hand tells of fusing: the paper's figures stand alone."


def summary(decoders: Sequence[FusedDecoder], amdahl: Rows, claims: Rows) -> str:
    """A sentence per device and one on the claims. `amdahl`: the rows of that table."""
    boxes = {each.device: f"{each.device} ({each.plain.box}, {each.plain.model})" for each in decoders}
    told = [
        _gains(boxes.get(source, source), [row for row in amdahl if row["source"] == source])
        for source in dict.fromkeys(row["source"] for row in amdahl)
    ]
    return " ".join([*(told or [_NO_DEVICE]), f"{counted(claims)}."])


def _gains(name: str, rows: Rows) -> str:
    how = "simulated with maxi-batching" if rows[0]["kind"] == "simulated" else rows[0]["kind"]
    end_to_end, foretold, alone = (
        _range([row[key] for row in rows]) for key in ("end_to_end", "predicted", "predicted_product_left_alone")
    )
    return (
        f"On {name}, the fused output layer changes the speed of translating by {end_to_end} ({how}; foretold: {foretold}); "
        f"with the product left alone, as in the paper, {alone} would be left of it."
    )


def _range(ratios: Sequence[float]) -> str:
    """`+20.1 to +22.5 %`."""
    return f"{' to '.join(dict.fromkeys(f'{100 * (ratio - 1.0):+.1f}' for ratio in (min(ratios), max(ratios))))} %"
