"""The reproduction for a terminal."""

from __future__ import annotations

from typing import Any

from simnmt.reproduce.fused.reproduction import Reproduction
from simnmt.reproduce.fused.tables import amdahl, output_times, speeds
from simnmt.reproduce.told import claim_lines, columns
from simnmt.reproduce.topup.published import SETS


def as_text(found: Reproduction) -> str:
    """Tables 2 and 3, speeds, Amdahl's prediction, and a line per claim."""
    pieces = [
        _output_times(found),
        *(_speeds(found, key) for key in SETS if found.speeds),
        _amdahl(found) if found.stages or found.real else "",
        *found.left_out,
        claim_lines(found.claims),
    ]
    return "\n\n".join(filter(None, pieces))


def _output_times(found: Reproduction) -> str:
    rows = [
        (
            f"{SETS[row['set']].name}, beam {row['beam']}, {row['source']}",
            f"{row['product_s']:.2f}",
            f"{row['product_fused_s']:.2f}",
            f"{row['three_s']:.2f}",
            f"{row['fused_s']:.2f}",
            f"{row['ratio']:.2f}",
            f"{row['layer_ratio']:.3f}",
        )
        for row in sorted(output_times(found), key=lambda row: (list(SETS).index(row["set"]), row["beam"]))
    ]
    heading = "Tables 2 and 3: seconds over a whole set; fused is exact, its translations are the same"
    head = ("set, source", "product", "fused layer's", "three steps", "fused", "ratio", "whole layer")
    return f"{heading}\n{columns(head, rows)}"


def _speeds(found: Reproduction, test_set: str) -> str:
    known: dict[tuple[str, int], dict[tuple[str, bool], Any]] = {}
    for row in speeds(found):
        if row["set"] == test_set:
            known.setdefault((row["device"], row["beam"]), {})[row["strategy"], row["fused"]] = row
    rows = [
        (
            f"{device}, beam {beam}, batches of {own['mini', False]['batch']}",
            f"{own['mini', False]['sentences_per_s']:,.1f}",
            *(f"{own[key]['relative']:.3f}" for key in _SHOWN),
        )
        for (device, beam), own in known.items()
    ]
    heading = f"{SETS[test_set].name}: sentences a second with mini-batching, and speeds over it; with maxi-batching over that"
    return f"{heading}\n" + columns(("device", "mini/s", *_HEADS), rows)


_SHOWN = (
    ("mini", True),
    ("half-empty", False),
    ("half-empty", True),
    ("maxi", True),
    ("maxi half-empty", False),
    ("maxi half-empty", True),
)
_HEADS = ("fused", "topped up", "both", "maxi: fused", "topped up", "both")


def _amdahl(found: Reproduction) -> str:
    rows = [
        (
            f"{SETS[row['set']].name}, beam {row['beam']}, {row['source']}",
            f"{100 * row['output_share']:.1f} %",
            f"{row['layer_ratio']:.3f}",
            f"{row['predicted']:.3f}",
            f"{row['predicted_product_left_alone']:.3f}",
            f"{row['end_to_end']:.3f}",
            row["kind"],
        )
        for row in amdahl(found)
    ]
    return "Amdahl's prediction beside the speed-up end to end\n" + columns(
        ("set, source", "layer's share", "its speed-up", "predicted", "product left alone", "end to end", ""), rows
    )
