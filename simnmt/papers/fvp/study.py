"""The file of a study: what a trained model does with a part of its vocabulary, clusters or candidate lists (FVP-08 to 12).

Needs no torch: `simnmt reproduce vocab` reads it. `study_run.py` measures it, part by part.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field, JsonValue

from simnmt.base.configuration import NO_TRUTH_VALUE, Configuration

if TYPE_CHECKING:
    from simnmt.calibrate.study import GuardedRounds

Share = Annotated[float, Field(ge=0.0, le=1.0)]
Count = Annotated[int, Field(ge=0)]
Positive = Annotated[int, Field(ge=1)]
Seconds = Annotated[float, Field(ge=0.0)]
Ratio = Annotated[float, Field(gt=0.0)]

Role = Literal["train", "targets", "heldout", "references"]
Part = Literal["sweep", "volume", "by_language", "per_cluster", "memory", "chosen", "speeds", "candidates"]
PARTS: tuple[Part, ...] = ("sweep", "volume", "by_language", "per_cluster", "memory", "chosen", "speeds", "candidates")
"""Each is measured by itself; the last three time real decoding and want a quiet box."""
TIMED_PARTS: tuple[Part, ...] = PARTS[-3:]


Knowledge = Literal["both", "target", "mixed, same size"]
"""See `Cell.knowledge`."""


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
    """The folder's own name."""
    kind: str
    """Of its architecture."""
    sha256: str
    """Of the file of its weights."""
    vocab: Positive
    """Columns of the output layer."""
    width: Positive
    """What it projects from."""
    parameters: Positive
    parameter_bytes: Positive
    """As they are held."""


class StudiedText(Configuration):
    """A text, one sentence a line."""

    label: str
    """Of the direction."""
    role: Role
    """`train`: sources that clusters are made of; `targets`: its translations, for word alignments alone; `references`: of
    `heldout`."""
    name: str
    """The file's own name."""
    sha256: str
    lines: Positive


class PartRun(Configuration):
    """How and when one part was measured."""

    part: Part
    labels: tuple[str, ...]
    date: str
    """ISO 8601, of its end."""
    seconds: Seconds
    threads: Positive
    machine: str
    """Processor and what else says how fast it is."""
    others_cpus: float | None
    """CPUs' worth of time that others used when the part began; None if the box keeps no account of it."""
    versions: dict[str, str]
    """Of the libraries."""
    method: str | None
    """Of k-means; None where nothing is clustered."""
    seed: int
    quick: bool = False
    """With few sentences, clusters and rounds."""
    settings: dict[str, JsonValue] | None = None
    """How much was measured, see `StudySettings`; None in files older than this field."""
    notes: tuple[str, ...] = ()
    """What was left out, or sampled: one sentence each."""


class Cell(Configuration):
    """Cluster sets of one direction, at one r and K, held against held-out text (FVP-08, FVP-11).

    Steps are the contexts of dense greedy decoding of the held-out text. A sentence is decoded alike with and without
    clusters up to its first miss, so `identical` is, without decoding again, the share of single sentences that clustered
    greedy decoding leaves the same, ties and rounding aside.
    """

    label: str
    """Of the held-out direction."""
    knowledge: Knowledge
    """Clustered from this direction's text alone; from all directions into this target, each with all of its text (FVP-10); or
    from such a mix that has no more contexts than this direction alone, so that more text is not what makes the difference."""
    clusters: Positive
    top: Positive
    """K."""
    training_sentences: Positive
    training_contexts: Positive
    """That active sets are made of."""
    clustered_contexts: Positive
    """Of these, what k-means saw; the rest joined their nearest centroid afterwards."""
    heldout_sentences: Positive
    heldout_tokens: Positive
    """Steps: tokens that dense decoding wrote, end tokens included."""
    sets: Spread
    """Of V, over clusters (figures 2 and 4)."""
    share: Spread
    """Of V, over held-out steps: active columns at batch 1."""
    union: Spread
    """Of V: active columns of steps of `union_rows` rows, as the held-out sentences would share them."""
    union_rows: Positive
    emitted: Positive
    """Distinct tokens that dense decoding of this direction's training text and development half writes, without the test
    half's."""
    share_of_emitted: Annotated[float, Field(ge=0.0)]
    """Mean active columns at batch 1 over `emitted`; above 1 where sets hold more."""
    union_of_emitted: Annotated[float, Field(ge=0.0)]
    miss_rate: Share
    """Of the held-out steps, those whose dense token is not active."""
    identical: Share
    """Of the held-out sentences, those without a miss."""
    set_bytes: Positive
    """What the active sets alone hold."""
    bundle_bytes: Positive
    """Centroids, norms, sets and flags (FVP-12)."""


class ClusterSizes(Configuration):
    """How large each cluster's active set is (figure 4)."""

    label: str
    clusters: Positive
    top: Positive
    columns: tuple[Positive, ...]
    """One number a cluster, the largest first; of V columns."""
    first: Positive
    """Of cluster 0 in k-means' own order, which means nothing; the figure is read there."""


class RoundsKept(Configuration):
    """How many timed stretches of rounds were undisturbed, see `simnmt.calibrate.study`; the disturbed do not count."""

    wanted: Positive
    measured: Positive
    rejected: Count
    """Disturbed by other processes or by the machine."""
    conclusive: bool
    """True if enough stretches were undisturbed; else the last measurement of each counts, and no verdict rests on times."""
    worst_others_cpus: float | None
    """Greatest use of the CPUs by other processes in any stretch; None if the box keeps no account of it."""
    worst_reference_spread: Annotated[float, Field(ge=0.0)]
    """Greatest relative change of the reference work within any stretch."""

    @classmethod
    def of(cls, rounds: GuardedRounds[Any]) -> RoundsKept:
        """Summarise measured rounds."""
        return cls(
            wanted=rounds.wanted,
            measured=len(rounds.rounds),
            rejected=rounds.rejected,
            conclusive=rounds.conclusive,
            worst_others_cpus=rounds.worst_others_cpus,
            worst_reference_spread=rounds.worst_reference_spread,
        )


class DecodingResult(Configuration):
    """Quality and timing of decoding a text with one method."""

    bleu: float | None
    tokens_per_s: Annotated[float, Field(gt=0.0)]
    """Written tokens, end tokens included; the median round's."""
    rounds_s: tuple[Seconds, ...]
    """One a round, of the sentences that count in it, alike for all methods."""
    steps: Positive
    layer_s: Seconds
    """Projection, softmax and search over all steps, watched while decoding: assignment, union and gathering included. Of a
    part of the vocabulary without the choice among the few best of a beam's rows. The median round's step, times `steps`."""
    body_s: Seconds
    """The rest of all steps, as `layer_s`."""
    layer_rounds_s: tuple[Seconds, ...] = ()
    """One a round, as `rounds_s`; empty in files older than this field."""
    body_rounds_s: tuple[Seconds, ...] = ()


class Decoded(Configuration):
    """Real decoding of held-out text with all of the vocabulary and with a part of it, in turn (FVP-08, FVP-16, FVP-20)."""

    label: str
    way: Literal["clustered", "ibm1", "attention"]
    """What says which columns are active: clusters, or candidate lists from what is named."""
    clusters: Positive | None = None
    top: Positive | None = None
    candidates: Positive | None = None
    """Per source word (SHARP-02)."""
    always: Count | None = None
    """Most frequent target words on top of the lists."""
    beam: Positive
    batch: Positive
    sentences: Positive
    dense: DecodingResult
    """Plain: projection, softmax and search one after the other."""
    fused: DecodingResult
    """All of the vocabulary with the fused output layer, which the active columns go through too."""
    part: DecodingResult
    identical: Share
    """Sentences that are those of `dense`, token by token."""
    near_ties: Count
    """Of those that differ, those where the call between the two was closer than rounding."""
    token_agreement: Share
    """Of the longer of both, tokens that are the same at the same place."""
    miss_rate: Share
    """Of the rows and steps on the path of `part`, those whose dense token is not active."""
    share: Spread
    """Of V, over steps: columns multiplied, of all rows together."""
    share_of_emitted: Annotated[float, Field(ge=0.0)]
    emitted: Positive
    """See `Cell`."""
    layer_share: Share
    """Of plain decoding's time: projection, softmax and search."""
    layer_ratio: Annotated[float, Field(gt=0.0)]
    """Times as fast is the output layer of a step, the choice of columns included."""
    step_ratio: Annotated[float, Field(gt=0.0)]
    """Of a whole step: body and output layer."""
    predicted: Annotated[float, Field(gt=0.0)]
    """Whole, times as fast, by Amdahl from `layer_share` and `layer_ratio` (FVP-20)."""
    measured: Annotated[float, Field(gt=0.0)]
    """Whole, times as many tokens a second: the median of `gains`."""
    measured_over_fused: Annotated[float, Field(gt=0.0)]
    """The same over `fused`: what leaving columns out gains by itself."""
    layer_ratio_over_fused: Annotated[float, Field(gt=0.0)]
    gains: tuple[Ratio, ...] = ()
    """Tokens a second over those of `dense`, one a round: not the ratio of seconds, where both write other numbers of tokens.
    This field and those below are empty in files older than they are."""
    gains_over_fused: tuple[Ratio, ...] = ()
    layer_ratios: tuple[Ratio, ...] = ()
    """See `layer_ratio`, one a round."""
    layer_ratios_over_fused: tuple[Ratio, ...] = ()
    active_mass: Share | None = None
    """Of the model's probability, what lies on active columns at batch 1: mean over contexts of dense greedy decoding of the
    development half. Scores are of this part alone, as if it were all. None where it was not measured."""
    rounds: RoundsKept | None = None
    """None if the rounds were not guarded: then no verdict rests on their times."""


class Speed(Configuration):
    """How much faster real decoding gets, by r and K (figure 3)."""

    label: str
    clusters: Positive
    top: Positive
    beam: Positive
    batch: Positive
    sentences: Positive
    ratios: tuple[Ratio, ...]
    """Tokens a second over those of plain dense decoding, one a round."""
    gain: float
    """The median of `ratios`, less 1: 0.25 is 25 % more."""
    identical: Share | None = None
    """Of these sentences, with this beam and batch, those that are dense decoding's, token by token; None in files of before it
    was measured, like the next."""
    token_agreement: Share | None = None
    """Of the longer of both, tokens that are the same at the same place."""
    rounds: RoundsKept | None = None
    """See `Decoded.rounds`."""


class TriedCell(Configuration):
    """A cell of the sweep, decoded with one search on the development half, to choose r and K by (see `choice`)."""

    label: str
    clusters: Positive
    top: Positive
    columns: Annotated[float, Field(gt=0.0)]
    """r and active columns of a row at batch 1 on average: by which cells are ordered (FVP-09)."""
    beam: Positive
    batch: Positive
    sentences: Positive
    bleu_dense: float | None
    bleu: float | None
    identical: Share
    token_agreement: Share
    good: bool
    """Enough of the sentences are identical, and BLEU is near enough."""


class Memory(Configuration):
    """What clusters hold beside the model (FVP-12)."""

    label: str
    clusters: Positive
    top: Positive
    centroid_bytes: Positive
    norm_bytes: Count
    set_bytes: Positive
    start_bytes: Count
    """Where each set begins."""
    flag_bytes: Count
    total_bytes: Positive
    """As allocated."""
    share_of_model: Annotated[float, Field(gt=0.0)]
    """Of the bytes of the model's parameters."""


class Study(Configuration):
    """One model, its texts, and the parts that have been measured; a part that was not is empty."""

    schema_version: Annotated[Literal[1], NO_TRUTH_VALUE] = 1
    kind: Literal["measured"] = "measured"
    tool: str
    """What wrote the file, with its version."""
    model: StudiedModel
    texts: tuple[StudiedText, ...]
    runs: tuple[PartRun, ...] = ()
    """In the order in which they were measured."""
    sweep: tuple[Cell, ...] = ()
    volume: tuple[Cell, ...] = ()
    """Of growing training text, each a beginning of the next."""
    by_language: tuple[Cell, ...] = ()
    per_cluster: tuple[ClusterSizes, ...] = ()
    memory: tuple[Memory, ...] = ()
    tried: tuple[TriedCell, ...] = ()
    """How the r and K that are decoded with were chosen; of a direction whose were named: none."""
    chosen: tuple[Decoded, ...] = ()
    """On the test half."""
    speeds: tuple[Speed, ...] = ()
    candidates: tuple[Decoded, ...] = ()

    def run_of(self, part: str) -> PartRun | None:
        """The last measurement of a part."""
        return next((run for run in reversed(self.runs) if run.part == part), None)
