"""The file of a study of a trained model that decodes with a part of its vocabulary (FVP-08, 10, 11).

Needs no torch: `simnmt reproduce vocab` reads it. `measure.py` measures it, direction by direction and part by part.
"""

from __future__ import annotations

from statistics import median
from typing import Annotated, Literal

from pydantic import Field

from simnmt.base.configuration import Configuration
from simnmt.papers.kit import study
from simnmt.papers.kit.claims import end_to_end
from simnmt.papers.kit.study import AboveZero, Positive, Share

Ratios = Annotated[tuple[AboveZero, ...], Field(min_length=1)]
"""One a round."""
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
    """A text, one sentence a line.

    Role `train`: sources that clusters are made of; `heldout`: other sources; `references`: their translations.
    """

    label: str
    """Direction."""
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


class Decoded(Clusters):
    """Decoding of held-out text with one search: plain, with the fused output layer, and with clusters (FVP-08, 16, 20)."""

    beam: Positive
    batch: Positive
    sentences: Positive
    identical: Share
    """Share of sentences that are those of dense decoding; `token_agreement`: of tokens."""
    token_agreement: Share
    conclusive: bool
    """Enough stretches of the rounds were undisturbed; else no verdict rests on times."""
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
    gains: Ratios
    """Tokens per second over those of plain decoding, not a ratio of seconds: both may write different numbers of tokens."""
    gains_over_fused: Ratios
    layer_ratios: Ratios
    """Speed-up of the output layer of a step, the choice of columns included."""
    layer_ratios_over_fused: Ratios

    @property
    def measured(self) -> float:
        """Speed-up end to end in tokens per second: the median of the rounds."""
        return median(self.gains)

    @property
    def measured_over_fused(self) -> float:
        """The same over the fused output layer: the gain of leaving columns out alone."""
        return median(self.gains_over_fused)

    @property
    def layer_ratio(self) -> float:
        """Speed-up of the output layer of a step: the median of the rounds."""
        return median(self.layer_ratios)

    @property
    def layer_ratio_over_fused(self) -> float:
        """The same over the fused output layer."""
        return median(self.layer_ratios_over_fused)

    @property
    def predicted(self) -> float:
        """Speed-up end to end that Amdahl's law predicts from `layer_share` and `layer_ratio` (FVP-20)."""
        return end_to_end(self.layer_share, self.layer_ratio)

    @property
    def bleu_change(self) -> float | None:
        """Change of BLEU in points; None without references."""
        return None if self.bleu is None or self.bleu_part is None else self.bleu_part - self.bleu

    @property
    def method(self) -> str:
        """The clusters."""
        return format_clusters(self.clusters, self.top)


class Speed(Clusters):
    """Speed-up of real decoding by r and K over plain decoding, in tokens per second (figure 3, FVP-11)."""

    beam: Positive
    batch: Positive
    sentences: Positive
    identical: Share
    """Share of sentences that are those of dense decoding."""
    conclusive: bool
    """Enough stretches of the rounds were undisturbed; else no verdict rests on times."""
    ratios: Ratios

    @property
    def gain(self) -> float:
        """The median of `ratios`, less 1: 0.25 is 25 % more."""
        return median(self.ratios) - 1.0


def format_clusters(clusters: int, top: int) -> str:
    """Format the number of clusters and K."""
    return f"{clusters:,} clusters, K = {top}"


class Study(Configuration):
    """One model, its texts, and the parts that have been measured; a part that was not is empty."""

    schema_version: Literal[2] = 2
    kind: Literal["measured"] = "measured"
    tool: str
    """Name and version of the program that wrote the file."""
    quick: bool = False
    """Measured on too little text to judge claims by."""
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
        """Name of the model."""
        return self.model.name
