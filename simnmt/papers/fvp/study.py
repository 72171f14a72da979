"""The file of a study of a trained model that decodes with a part of its vocabulary (FVP-08, 10, 11).

Needs no torch: `simnmt reproduce vocab` reads it. `measure.py` measures it, direction by direction and part by part.
"""

from __future__ import annotations

from statistics import median
from types import SimpleNamespace
from typing import Annotated, Any, Literal

from pydantic import Field

from simnmt.base.configuration import Configuration
from simnmt.papers.kit import study
from simnmt.papers.kit.claims import end_to_end
from simnmt.papers.kit.study import AboveZero, Positive, Share

Row = SimpleNamespace
"""A row, with an attribute for each column."""
Ratios = Annotated[tuple[AboveZero, ...], Field(min_length=1)]
Part = Literal["sweep", "volume", "by_language", "chosen", "speeds"]
Knowledge = Literal["both", "target"]


class StudiedModel(Configuration):
    """The model whose output layer is cut; `name`: of its folder, `sha256`: of its weights."""

    name: str
    kind: str
    sha256: str
    vocab: Positive
    width: Positive
    parameters: Positive


class StudiedText(Configuration):
    """A text of a direction: sources that clusters are made of, other sources, or translations of those."""

    label: str
    role: Literal["train", "heldout", "references"]
    name: str
    sha256: str
    lines: Positive


class PartRun(study.PartRun):
    """How and when one part was measured."""

    part: Part
    labels: tuple[str, ...]


class Clusters(Configuration):
    """r clusters of a direction with the K likeliest tokens of each context."""

    label: str
    clusters: Positive
    top: Positive

    @property
    def method(self) -> str:
        return f"{self.clusters:,} clusters, K = {self.top}"


class Cell(Clusters):
    """Cluster sets of one direction, at one r and K, compared with held-out text (FVP-08, FVP-11).

    Steps are those of dense greedy decoding of the held-out text. Up to its first miss a sentence is decoded alike with and
    without clusters, so `identical` is, without decoding again, the share of single sentences that clustered greedy decoding
    leaves the same, ties and rounding aside.
    """

    knowledge: Knowledge
    """Clusters are of this direction's text alone, or of all directions into this target (FVP-10)."""
    training_sentences: Positive
    heldout_tokens: Positive
    """Steps: tokens that dense decoding wrote, end tokens included."""
    share_mean: Share
    """Active share of V over held-out steps at batch 1."""
    share_most: Share
    set_most: Share
    """Largest active share of V of any cluster (figure 2)."""
    emitted: Positive
    """Distinct tokens that dense decoding of the training text and the development half writes."""
    miss_rate: Share
    """Share of held-out steps whose dense token is not active."""
    identical: Share


class Speed(Clusters):
    """Real decoding with one search, by r and K, in turn with plain decoding (figure 3, FVP-11)."""

    beam: Positive
    batch: Positive
    sentences: Positive
    identical: Share
    """Share of sentences that are those of dense decoding."""
    conclusive: bool
    """Enough stretches of the rounds were undisturbed; else no verdict rests on times."""
    gains: Ratios
    """Tokens per second over those of plain decoding, not a ratio of seconds: both may write different numbers of tokens."""


class Decoded(Speed):
    """Decoding of held-out text: plain, with the fused output layer, and with the chosen clusters (FVP-08, 16, 20)."""

    token_agreement: Share
    """Share of tokens that are those of dense decoding."""
    bleu: float | None
    bleu_part: float | None
    tokens_per_s: AboveZero
    """Written tokens, end tokens included, per second of the median round, of plain decoding."""
    tokens_per_s_fused: AboveZero
    tokens_per_s_part: AboveZero
    layer_share: Share
    """Share of plain decoding's time in projection, softmax and search."""
    layer_us: AboveZero
    """The output layer of a step with a part of the vocabulary, the choice of columns included."""
    body_ratio: AboveZero
    """Speed-up of a step below the output layer; Amdahl's law assumes 1, but weights may stay in a cache."""
    near_ties: int
    """Different sentences where the two scores were closer than rounding."""
    miss_rate: Share
    """Share of rows and steps on the path of this decoding whose dense token is not active."""
    share_mean: Share
    """Share of V that a step multiplies for all of its rows together."""
    share_most: Share
    emitted: Positive
    gains_over_fused: Ratios
    """`gains` over the fused output layer: the gain of leaving columns out alone."""
    layer_ratios: Ratios
    """Speed-up of the output layer of a step, the choice of columns included."""
    layer_ratios_over_fused: Ratios


class Study(Configuration):
    """One model, its texts, and the parts that have been measured; a part that was not is empty."""

    schema_version: Literal[2] = 2
    kind: Literal["measured"] = "measured"
    tool: str
    model: StudiedModel
    texts: tuple[StudiedText, ...]
    runs: tuple[PartRun, ...] = ()
    sweep: tuple[Cell, ...] = ()
    volume: tuple[Cell, ...] = ()
    """Cells of growing training text, each a beginning of the next."""
    by_language: tuple[Cell, ...] = ()
    chosen: tuple[Decoded, ...] = ()
    """Decodings with the chosen r and K."""
    speeds: tuple[Speed, ...] = ()

    @property
    def name(self) -> str:
        return self.model.name

    def rows(self, part: Part) -> list[Row]:
        """Return the rows of a part with what follows from each: names, medians of the rounds, and Amdahl's prediction.

        `measured`: speed-up end to end in tokens per second; `predicted`: what Amdahl's law predicts for it from `layer_share`
        and `layer_ratio` (FVP-20); `bleu_change`: in points, None without references.
        """
        return [Row(**self._row(entry)) for entry in getattr(self, part)]

    def _row(self, entry: Clusters) -> dict[str, Any]:
        row = entry.model_dump() | {"model": self.name, "vocab": self.model.vocab, "method": entry.method, "kind": "measured"}
        row["name"] = f"{self.name}, {entry.label}"
        row["agreement"] = f"not exact: {100 * row['identical']:.1f} % of the sentences the same"  # XP-03
        if isinstance(entry, Speed):
            gains = {"gain": median(entry.gains), "low": min(entry.gains), "high": max(entry.gains)}
            row |= {"measured": gains["gain"], "least": gains["low"], "greatest": gains["high"]}
            row |= {f"{name}_percent": 100 * (ratio - 1.0) for name, ratio in gains.items()}
        if isinstance(entry, Cell | Decoded):
            row["share_of_emitted"] = entry.share_mean * self.model.vocab / entry.emitted
        if isinstance(entry, Cell):
            row["known"] = "both languages" if entry.knowledge == "both" else "the target alone"
        if isinstance(entry, Decoded):
            layer_ratio = median(entry.layer_ratios)
            predicted = end_to_end(entry.layer_share, layer_ratio)
            row |= {
                "name": f"{self.name}, {entry.label}, {entry.method}",
                "agreement": f"{row['agreement']}, {100 * entry.token_agreement:.2f} % of the tokens",
                "rows": entry.beam * entry.batch,
                "measured_over_fused": median(entry.gains_over_fused),
                "layer_ratio": layer_ratio,
                "layer_ratio_over_fused": median(entry.layer_ratios_over_fused),
                "predicted": predicted,
                "predicted_percent": 100 * (predicted - 1.0),
                "ties": f" and {entry.near_ties} near ties" if entry.near_ties else "",
                "off": predicted / row["measured"] - 1.0,
                "bleu_change": None if entry.bleu is None or entry.bleu_part is None else entry.bleu_part - entry.bleu,
                "operation_limit": 1.0 / (entry.share_mean + entry.clusters / self.model.vocab),
            }
        return row
