"""What the paper prints (`data/topup.toml`, `data/fused.toml`), and the figures that follow from it (FNI-02, 15 to 17)."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

from simnmt.papers.kit.claims import end_to_end, share_needed
from simnmt.papers.kit.paper import read_paper
from simnmt.papers.kit.rendering import Derived

Row = SimpleNamespace
"""A printed or measured row, with an attribute for each column."""
TOPUP, FUSED = read_paper("topup"), read_paper("fused")
BATCH, COLLECTED, BEAM, VOCAB = (TOPUP[name] for name in ("batch", "collected", "beam", "vocab"))
SETS = {row["set"]: Row(**row) for row in TOPUP.table("table-1").rows}
"""Table 1 by set: name, sentences, subwords, and their mean and standard deviation a sentence."""
GAINS = FUSED.table("gains")
OUTPUT_SHARE: float = FUSED["output_share"]


def case_name(beam: int, test_set: str) -> str:
    """Return the name of a case, such as `Europarl, beam 5`."""
    return f"{SETS[test_set].name}, beam {beam}"


def with_ratios(layer: Mapping[str, Any]) -> Row:
    """Return seconds of the output layer of a set and a beam with changes and speed-ups (FNI-15).

    `product_s` and `product_fused_s`: the product, and the product beside the fused kernel; `three_s`: bias, softmax and
    search, one after the other; `fused_s`: the same in one kernel. Adds `product_percent`, `fused_percent`, `ratio` of the
    three steps, and `layer_ratio` of the whole output layer.
    """
    product_s, product_fused_s, three_s, fused_s = (
        layer[part] for part in ("product_s", "product_fused_s", "three_s", "fused_s")
    )
    return Row(
        **layer,
        product_percent=100.0 * (product_fused_s / product_s - 1.0),
        fused_percent=100.0 * (fused_s / three_s - 1.0),
        ratio=three_s / fused_s,
        layer_ratio=(product_s + three_s) / (product_fused_s + fused_s),
    )


OUTPUT_LAYER = [
    with_ratios(
        {"source": "published", "kind": "published", "exact": True, **row}
        | {"three_s": row["bias_s"] + row["softmax_s"] + row["search_s"]}
    )
    for row in FUSED.table("table-2-3").rows
]
"""Tables 2 and 3."""


def memory_traffic(vocab: int, *, fused: bool) -> int:
    """Return the elements that bias, softmax and 1-best move for one hypothesis (FNI-02).

    Unfused, the products are read five times and written twice, and the bias is read once; fused, both are read once.
    """
    return 2 * vocab if fused else 8 * vocab


def derived() -> dict[str, Derived]:
    """Return figures that follow from memory traffic, Tables 2 and 3 and the shares (FNI-02, FNI-15 to 17)."""
    limit = memory_traffic(VOCAB, fused=False) / memory_traffic(VOCAB, fused=True)
    beyond = [row for row in OUTPUT_LAYER if row.ratio > limit]
    traffic = f"8V over 2V elements, the most that bandwidth allows; {' and '.join(f'{row.ratio:.2f}' for row in beyond)} of "
    beams = " and ".join(dict.fromkeys(f"beam {row.beam}" for row in beyond))
    traffic += f"{beams} exceed it, as they skip the probabilities too"
    figures = [Derived("memory traffic of the three steps over the fused one's", limit, "times", traffic)]
    for what, column, more in (
        ("three steps over fused", "ratio", ""),
        ("whole output layer", "layer_ratio", ", product included"),
    ):
        for row in OUTPUT_LAYER:
            table = "Table 2" if row.set == "europarl" else "Table 3"
            figures.append(Derived(f"{row.set}, beam {row.beam}: {what}", getattr(row, column), "times", f"{table}{more}"))
    beam_5_first = sorted(OUTPUT_LAYER, key=lambda row: (row.set, -row.beam))
    for row in beam_5_first:
        if row.set == "europarl":
            gain = 100 * (end_to_end(OUTPUT_SHARE, row.layer_ratio) - 1.0)
            what = f"{row.set}, beam {row.beam}: gain if the output layer has 70 %"
            figures.append(Derived(what, gain, "%", "claimed: at most 23 %"))
    for row in beam_5_first:
        claimed = GAINS["fused", row.set]
        meaning = "nearly 70 % in the text" if row.set == "europarl" else "more than Europarl's in the text"
        what = f"{row.set}, beam {row.beam}: share that a gain of {100 * claimed:.0f} % needs"
        figures.append(Derived(what, 100 * share_needed(1.0 + claimed, row.layer_ratio), "%", meaning))
    both = 100 * ((1.0 + GAINS["fused", "opensubtitles"]) * (1.0 + GAINS["topped up", "opensubtitles"]) - 1.0)
    alone = 100 * ((1.0 + GAINS["both", "europarl"]) / (1.0 + GAINS["fused", "europarl"]) - 1.0)
    figures.append(Derived("opensubtitles: fused times topped up", both, "%", "claimed together: up to 57 %"))
    figures.append(Derived("europarl: both over fused, so topped up alone", alone, "%", "not printed"))
    return {figure.what: figure for figure in figures}
