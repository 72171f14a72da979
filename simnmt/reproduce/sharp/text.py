"""The reproduction for a terminal."""

from __future__ import annotations

from typing import Any

from simnmt.reproduce.sharp.reproduction import Reproduction
from simnmt.reproduce.sharp.tables import amdahl, ladder, products, systems
from simnmt.reproduce.told import claim_lines, columns


def as_text(found: Reproduction) -> str:
    """Table 1, Table 2, figure 1, and a line per claim."""
    speeds = found.speeds
    own = amdahl(speeds)
    told = f"Products have {100 * own['share']:.0f} % of the baseline's time: with 16 bits Amdahl's prediction is "
    told += "none, as alone they ran slower than in the decoder" if own["predicted"] is None else f"{own['predicted']:.2f}"
    told += f", measured {own['measured']:.2f}"
    return "\n\n".join(
        [
            _ladder(ladder(speeds, found.agreements)),
            told,
            _systems(systems(speeds)),
            _products(products(speeds)),
            claim_lines(found.claims),
        ]
    )


def _ladder(rows: list[dict[str, Any]]) -> str:
    lines = [
        (
            f"{row['name']}{'' if row['activations'] == 'library' else ', ' + row['activations']}",
            f"{row['published_words_per_s']}",
            f"{row['published_factor']:.3f}",
            f"{row['words_per_s']:.1f}",
            f"{row['factor']:.3f}",
            "" if row["step"] is None else f"{row['step']:.3f}",
            f"{row['decoder_factor']:.3f}",
            f"{row['source_ms']:.2f}",
            f"{row['predicted_factor']:.2f}",
            "" if row["agreement"] is None else f"{100 * row['agreement']:.2f} %",
            row["translations"],
        )
        for row in rows
    ]
    head = (
        "Table 1",
        "published words/s",
        "published factor",
        "words/s",
        "factor",
        "step",
        "decoder alone, factor",
        "source ms",
        "predicted factor",
        "same words so far",
        "translations",
    )
    return "Words a second, source side included, one thread\n" + columns(head, lines)


def _systems(rows: list[dict[str, Any]]) -> str:
    lines = [
        (
            f"{row['key']} {row['name']}",
            f"{row['bleu']}",
            f"{row['published_words_per_s']}",
            f"{row['published_factor']:.2f}",
            *(
                _shown(row[name], form)
                for name, form in (("words_per_s", ".1f"), ("factor", ".2f"), ("predicted_factor", ".2f"))
            ),
        )
        for row in rows
    ]
    head = ("Table 2", "BLEU", "published words/s", "published over S1", "words/s", "over S1", "over S1 by multiply-adds")
    return "Systems of the paper; BLEU as published\n" + columns(head, lines)


def _products(rows: list[dict[str, Any]]) -> str:
    lines = [
        (
            f"batch {row['batch']}, weights {'from memory' if row['cold'] else 'in the cache'}",
            *(f"{row[name + '_us']:,.0f}" for name in ("int16", "float32", "torch", "numpy")),
            f"{row['over_library']:.2f}",
            f"{row['over_packed']:.2f}",
        )
        for row in rows
    ]
    head = ("Figure 1", "int16", "float32", "torch", "numpy", "over library", "over packed")
    return "Products with 1024 x 1024 weights, microseconds\n" + columns(head, lines)


def _shown(value: float | None, form: str) -> str:
    return "" if value is None else format(value, form)
