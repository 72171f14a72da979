"""The file of a study of a trained model that decodes with a part of its vocabulary (FVP-08 to 12).

Needs no torch: `simnmt reproduce vocab` reads it. `study_run.py` measures it, part by part.
"""

from __future__ import annotations

from statistics import median
from typing import Annotated, Any, Literal

from pydantic import Field

from simnmt.base.configuration import Configuration
from simnmt.papers.kit import study
from simnmt.papers.kit.claim import end_to_end
from simnmt.papers.kit.study import AboveZero, Count, Positive, Seconds, Share

Counts = Annotated[tuple[Positive, ...], Field(min_length=1)]
Ratios = Annotated[tuple[AboveZero, ...], Field(min_length=1)]

Role = Literal["train", "targets", "heldout", "references"]
Part = Literal["sweep", "volume", "by_language", "per_cluster", "memory", "chosen", "speeds", "candidates"]
PARTS: tuple[Part, ...] = ("sweep", "volume", "by_language", "per_cluster", "memory", "chosen", "speeds", "candidates")
"""Measured one by one; the last three time real decoding and need a quiet box."""
TIMED_PARTS: tuple[Part, ...] = PARTS[-3:]
Knowledge = Literal["both", "target", "mixed, same size"]
"""See `Cell.knowledge`."""
Selection = Literal["clustered", "ibm1"]
"""What selects the active columns: clusters, or candidate lists by IBM model 1."""


class StudySettings(Configuration):
    """How much of a study is measured; by default the paper's grid (FVP-10, FVP-11)."""

    clusters: Counts = tuple(range(100, 2_001, 100))
    """r of the sweep."""
    tops: Counts = (1, 3, 5)
    """K."""
    fine_clusters: tuple[Positive, ...] = (50, 100, 200, 300, 500, 1_000)
    """r of the sweep beside the grid, where quality is sought: few clusters with many tokens each miss least."""
    fine_tops: tuple[Positive, ...] = (5, 10, 20)
    train_sentences: Positive = 100_000
    """Sentences whose contexts are clustered: about 900,000 contexts of short sentences."""
    clustered_contexts: Positive = 100_000
    """Contexts that k-means sees at most: with all of them a sweep takes hours; active sets are made of all."""
    heldout_sentences: Positive = 2_000
    """Sentences of each half of a held-out text."""
    volumes: Positive = 5
    """Steps of the training text, each twice the one before, up to all of it."""
    volume_clusters: tuple[Positive, ...] = (300, 1_000)
    language_clusters: tuple[Positive, ...] = (100, 200, 300, 400, 500)
    shown_clusters: Positive = 1_300
    """r of figure 4."""
    searches: tuple[tuple[Positive, Positive], ...] = ((1, 1), (2, 20))
    """Beam and batch: the paper's b1 and b2."""
    rounds: Positive = 3
    speed_clusters: tuple[Positive, ...] = (100, 300, 500, 900, 1_300, 2_000)
    speed_sentences: Positive = 300
    candidates: Positive = 20
    """Candidates per source word (SHARP-02)."""
    always: tuple[Count, ...] = (0,)
    """Most frequent target words on top of the lists, each number tried."""
    least_identical: Share = 0.90
    """Share of sentences to keep with each search for r and K to be good enough: the paper's own share (section 3.4)."""
    most_bleu_change: float = 0.2
    """Largest change of BLEU with each search for r and K to be good enough (FVP-08)."""
    most_share: Share = 0.15
    """Largest mean share of V that may be active at batch 1 (FVP-20)."""
    tried_sentences: Positive = 1_000
    """Sentences of the development half on which r and K are chosen."""
    chosen: dict[str, tuple[Positive, Positive]] = Field(default_factory=dict)
    """r and K by direction; those of other directions are chosen by trials."""
    seed: int = 1
    quick: bool = False
    """Marks every part as measured on too little text to judge claims by."""

    @property
    def grid(self) -> dict[int, tuple[int, ...]]:
        """Return every r of the sweep with its values of K, both ascending."""
        tops_of = {clusters: set(self.tops) for clusters in self.clusters}
        for clusters in self.fine_clusters:
            tops_of.setdefault(clusters, set()).update(self.fine_tops)
        return {clusters: tuple(sorted(tops)) for clusters, tops in sorted(tops_of.items()) if tops}

    @property
    def most_top(self) -> int:
        """Return how many of the likeliest tokens are recorded of each context."""
        return max((*self.tops, *(self.fine_tops if self.fine_clusters else ())))

    def measured_by(self, run: PartRun) -> bool:
        """Return True if a run covers all that these settings ask of its part; a quick study replaces nothing."""
        wanted, present = self.model_dump(), run.settings.model_dump()
        return self.quick or (
            not run.settings.quick and all(_covers(present[name], wanted[name]) for name in _SETTINGS_OF[run.part])
        )


def _covers(present: Any, wanted: Any) -> bool:
    return set(present) >= set(wanted) if isinstance(wanted, tuple) else bool(present >= wanted)


QUICK = StudySettings(
    quick=True,
    clusters=(50, 100, 200),
    fine_clusters=(),
    train_sentences=2_000,
    clustered_contexts=20_000,
    heldout_sentences=100,
    volumes=3,
    volume_clusters=(100,),
    language_clusters=(50, 100),
    shown_clusters=100,
    speed_clusters=(50, 200),
    speed_sentences=50,
    rounds=2,
)
"""Minutes instead of an hour: few sentences, clusters and rounds."""

_TEXTS = ("train_sentences", "heldout_sentences")
_CLUSTERED = (*_TEXTS, "clustered_contexts")
_DECODED = ("searches", "rounds")
_SETTINGS_OF: dict[Part, tuple[str, ...]] = {
    "sweep": (*_CLUSTERED, "clusters", "tops", "fine_clusters", "fine_tops"),
    "volume": (*_CLUSTERED, "tops", "volumes", "volume_clusters"),
    "by_language": (*_CLUSTERED, "tops", "language_clusters"),
    "per_cluster": (*_CLUSTERED, "tops", "shown_clusters"),
    "memory": (*_CLUSTERED, "tops", "shown_clusters"),
    "chosen": (*_CLUSTERED, *_DECODED),
    "speeds": (*_CLUSTERED, *_DECODED, "tops", "speed_clusters", "speed_sentences"),
    "candidates": (*_TEXTS, *_DECODED, "candidates", "always"),
}
"""The settings that determine how much of each part is measured."""


class Spread(Configuration):
    """A share of the vocabulary, over clusters or over steps."""

    mean: Share
    least: Share
    p10: Share
    median: Share
    p90: Share
    most: Share


class StudiedModel(Configuration):
    """The model whose output layer is cut."""

    name: str
    """Name of its folder."""
    kind: str
    """Kind of its architecture."""
    sha256: str
    """Sum of the file of its weights."""
    vocab: Positive
    """Columns of the output layer."""
    width: Positive
    """Rows of the output layer."""
    parameters: Positive
    parameter_bytes: Positive


class StudiedText(Configuration):
    """A text, one sentence a line."""

    label: str
    """Direction."""
    role: Role
    """`train`: sources for clusters; `targets`: their translations, for word alignments; `references`: those of `heldout`."""
    name: str
    """Name of the file."""
    sha256: str
    lines: Positive


class PartRun(study.PartRun):
    """How and when one part was measured."""

    part: Part
    labels: tuple[str, ...]
    method: str | None
    """Method of k-means; None where nothing is clustered."""
    settings: StudySettings


class Clusters(Configuration):
    """r clusters of a direction with the K likeliest tokens of each context."""

    label: str
    """Direction."""
    clusters: Positive
    """r."""
    top: Positive
    """K."""


class Cell(Clusters):
    """Cluster sets of one direction, at one r and K, compared with held-out text (FVP-08, FVP-11).

    Steps are the contexts of dense greedy decoding of the held-out text. Up to its first miss a sentence is decoded alike with
    and without clusters, so `identical` is, without decoding again, the share of single sentences that clustered greedy
    decoding leaves the same, ties and rounding aside.
    """

    knowledge: Knowledge
    """Clusters are of this direction's text alone, of all directions into this target with all of their text (FVP-10), or of
    such a mix with no more contexts than this direction has, so that more text does not make the difference."""
    training_sentences: Positive
    training_contexts: Positive
    """Contexts of the active sets."""
    clustered_contexts: Positive
    """Contexts that k-means saw; the others joined their nearest centroid afterwards."""
    heldout_sentences: Positive
    heldout_tokens: Positive
    """Steps: tokens that dense decoding wrote, end tokens included."""
    sets: Spread
    """Active share of V over clusters (figures 2 and 4)."""
    share: Spread
    """Active share of V over held-out steps at batch 1."""
    union: Spread
    """Active share of V over steps of `union_rows` rows, as the held-out sentences would share them."""
    union_rows: Positive
    emitted: Positive
    """Distinct tokens that dense decoding of this direction's training text and development half writes."""
    share_of_emitted: Annotated[float, Field(ge=0.0)]
    """Mean active columns at batch 1 over `emitted`; above 1 where sets hold more."""
    union_of_emitted: Annotated[float, Field(ge=0.0)]
    miss_rate: Share
    """Share of held-out steps whose dense token is not active."""
    identical: Share
    """Share of held-out sentences without a miss."""
    set_bytes: Positive
    """Bytes of the active sets alone."""
    bundle_bytes: Positive
    """Bytes of centroids, norms, sets and flags (FVP-12)."""


class ClusterSizes(Clusters):
    """The size of each cluster's active set (figure 4)."""

    columns: tuple[Positive, ...]
    """Columns of each cluster, the largest number first."""
    first: Positive
    """Columns of the cluster that k-means numbers 0, which means nothing; the paper reads its figure there."""


class RoundsKept(Configuration):
    """Number of timed stretches of rounds that were undisturbed (see `simnmt.calibrate.harness`), which alone count."""

    wanted: Positive
    measured: Positive
    rejected: Count
    """Stretches that other processes or the machine disturbed."""
    conclusive: bool
    """True if enough stretches were undisturbed; else the last measurement of each counts, and no verdict rests on times."""
    worst_others_cpus: float | None
    """Greatest use of the CPUs by other processes in any stretch; None if the box keeps no account of it."""
    worst_reference_spread: Annotated[float, Field(ge=0.0)]
    """Greatest relative change of the reference work within any stretch."""


class DecodingResult(Configuration):
    """Quality and timing of decoding a text with one method."""

    bleu: float | None
    tokens_per_s: AboveZero
    """Written tokens, end tokens included, per second of the median round."""
    rounds_s: tuple[Seconds, ...]
    """Seconds of the sentences that count in each round, which are the same for all methods."""
    steps: Positive
    layer_s: Seconds
    """Projection, softmax and search over all steps, timed while decoding, with assignment, union and gathering. Of a part of
    the vocabulary without the choice among the few best of a beam's rows. The median round's step, times `steps`."""
    body_s: Seconds
    """The rest of all steps, as `layer_s`."""
    layer_rounds_s: tuple[Seconds, ...]
    body_rounds_s: tuple[Seconds, ...]


class Compared(Configuration):
    """A text decoded with one search and a part of the vocabulary, beside dense decoding with the same search."""

    label: str
    """Direction."""
    beam: Positive
    batch: Positive
    sentences: Positive
    identical: Share
    """Share of sentences with the tokens of dense decoding."""
    token_agreement: Share
    """Share of tokens that are the same at the same place, of the longer of both sentences."""


class Decoded(Compared):
    """Real decoding of held-out text, alternately with all of the vocabulary and with a part of it (FVP-08, FVP-16, FVP-20)."""

    selection: Selection
    clusters: Positive | None = None
    top: Positive | None = None
    candidates: Positive | None = None
    """Candidates per source word (SHARP-02)."""
    always: Count | None = None
    """Most frequent target words on top of the lists."""
    dense: DecodingResult
    """Plain: projection, softmax and search one after the other."""
    fused: DecodingResult
    """All of the vocabulary with the fused output layer, which the active columns go through too."""
    part: DecodingResult
    near_ties: Count
    """Number of different sentences where the two scores were closer than rounding."""
    miss_rate: Share
    """Share of rows and steps on the path of `part` whose dense token is not active."""
    share: Spread
    """Share of V that a step multiplies for all of its rows together."""
    share_of_emitted: Annotated[float, Field(ge=0.0)]
    emitted: Positive
    """See `Cell`."""
    layer_share: Share
    """Share of plain decoding's time in projection, softmax and search."""
    step_ratio: AboveZero
    """Speed-up of a whole step: body and output layer."""
    gains: Ratios
    """Tokens per second over those of `dense` by round: not the ratio of seconds, as the two may write different numbers of
    tokens."""
    gains_over_fused: Ratios
    layer_ratios: Ratios
    """Speed-up of the output layer of a step by round, the choice of columns included."""
    layer_ratios_over_fused: Ratios
    active_mass: Share | None = None
    """The model's probability on active columns at batch 1: mean over contexts of dense greedy decoding of the development
    half. Scores are of this part alone, as if it were all. None for candidate lists."""
    rounds: RoundsKept

    @property
    def measured(self) -> float:
        """Speed-up end to end in tokens per second: the median of the rounds."""
        return median(self.gains)

    @property
    def measured_over_fused(self) -> float:
        """The same over `fused`: the gain of leaving columns out alone."""
        return median(self.gains_over_fused)

    @property
    def layer_ratio(self) -> float:
        """Speed-up of the output layer of a step: the median of the rounds."""
        return median(self.layer_ratios)

    @property
    def layer_ratio_over_fused(self) -> float:
        """The same over `fused`."""
        return median(self.layer_ratios_over_fused)

    @property
    def predicted(self) -> float:
        """Speed-up end to end that Amdahl's law predicts from `layer_share` and `layer_ratio` (FVP-20)."""
        return end_to_end(self.layer_share, self.layer_ratio)

    @property
    def body_ratio(self) -> float:
        """Speed-up of a step below the output layer; Amdahl's law assumes 1, but weights may stay in a cache."""
        dense_s, part_s = (result.body_s / result.steps for result in (self.dense, self.part))
        return dense_s / part_s if part_s > 0.0 else 1.0

    @property
    def bleu_change(self) -> float | None:
        """Change of BLEU in points; None without references."""
        return None if self.dense.bleu is None or self.part.bleu is None else self.part.bleu - self.dense.bleu

    @property
    def method_label(self) -> str:
        """Describe the clusters, or the source of the candidate lists."""
        if self.selection == "clustered":
            return format_clusters(self.clusters or 0, self.top or 0)
        always = f", {self.always:,} always" if self.always else ""
        return f"lists of {self.candidates} by IBM model 1{always}"


def format_clusters(clusters: int, top: int) -> str:
    """Format the number of clusters and K."""
    return f"{clusters:,} clusters, K = {top}"


class Speed(Clusters, Compared):
    """Speed-up of real decoding by r and K (figure 3)."""

    ratios: Ratios
    """Tokens per second over those of plain dense decoding by round."""
    rounds: RoundsKept

    @property
    def gain(self) -> float:
        """The median of `ratios`, less 1: 0.25 is 25 % more."""
        return median(self.ratios) - 1.0


class TriedCell(Clusters, Compared):
    """A cell of the sweep, decoded with one search on the development half, to choose r and K by (see `choose`)."""

    columns: AboveZero
    """r and the mean of active columns of a row at batch 1: the order of the cells (FVP-09)."""
    bleu_dense: float | None
    bleu: float | None
    good: bool
    """True if enough of the sentences are identical, and BLEU is near enough."""


class Memory(Clusters):
    """Bytes of clusters beside the model, as allocated (FVP-12)."""

    centroid_bytes: Positive
    norm_bytes: Count
    set_bytes: Positive
    start_bytes: Count
    """Bytes of the positions where sets begin."""
    flag_bytes: Count
    total_bytes: Positive


class Study(Configuration):
    """One model, its texts, and the parts that have been measured; a part that was not is empty."""

    schema_version: Literal[1] = 1
    kind: Literal["measured"] = "measured"
    tool: str
    """Name and version of the program that wrote the file."""
    model: StudiedModel
    texts: tuple[StudiedText, ...]
    runs: tuple[PartRun, ...] = ()
    """Runs in the order of their measurement."""
    sweep: tuple[Cell, ...] = ()
    volume: tuple[Cell, ...] = ()
    """Cells of growing training text, each a beginning of the next."""
    by_language: tuple[Cell, ...] = ()
    per_cluster: tuple[ClusterSizes, ...] = ()
    memory: tuple[Memory, ...] = ()
    tried: tuple[TriedCell, ...] = ()
    """Trials that chose r and K; none for a direction whose r and K were named."""
    chosen: tuple[Decoded, ...] = ()
    """Decodings of the test half."""
    speeds: tuple[Speed, ...] = ()
    candidates: tuple[Decoded, ...] = ()

    @property
    def name(self) -> str:
        """Name of the model."""
        return self.model.name
