"""The file of a study: what a trained classifier keeps of its accuracy when it is streamed under deadlines (STI-22 to 27).

Needs no torch: `simnmt reproduce sti` reads it. `study_run.py` measures it, part by part. Accuracy is measured on the task's
examples; times and bytes follow from a device's costs, whose kind stands beside them.
"""

from __future__ import annotations

import base64
import binascii
from typing import Annotated, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, JsonValue, field_validator, model_validator

from simnmt.base.configuration import NO_TRUTH_VALUE, Configuration

Share = Annotated[float, Field(ge=0.0, le=1.0)]
Count = Annotated[int, Field(ge=0)]
Positive = Annotated[int, Field(ge=1)]
Seconds = Annotated[float, Field(ge=0.0)]
Duration = Annotated[float, Field(gt=0.0)]

Part = Literal["uniform", "grid", "sizes", "upgrades", "greedy"]
PARTS: tuple[Part, ...] = ("uniform", "grid", "sizes", "upgrades", "greedy")
"""`uniform`: submodels with all shards at one bitwidth; `grid`: each way under each deadline; `sizes`: of the preload buffer;
`upgrades`: shards raised by importance or at random; `greedy`: the planner beside the exact one, small cases."""
Method = Literal["STI", "STI, waiting", "Load&Exec", "StdPL-2", "StdPL-6", "StdPL-32", "PreloadModel-6", "PreloadModel-32"]
METHODS: tuple[Method, ...] = (
    "STI",
    "STI, waiting",
    "Load&Exec",
    "StdPL-2",
    "StdPL-6",
    "StdPL-32",
    "PreloadModel-6",
    "PreloadModel-32",
)
"""STI-19's names; 32 bits are what the paper calls full. Waiting: beyond the paper, a plan may stall until its deadline."""
Kind = Literal["measured", "inferred", "synthetic"]


class StudiedClassifier(Configuration):
    """The model that is streamed."""

    name: str
    """The folder's own name."""
    kind: str
    """Of its architecture."""
    sha256: str
    """Fingerprint of its weights."""
    layers: Positive
    heads: Positive
    """Slices of a layer."""
    width: Positive
    ffn: Positive

    @property
    def shards(self) -> int:
        """Of the whole model."""
        return self.layers * self.heads

    @property
    def weights_per_shard(self) -> int:
        """STI-01."""
        return (4 * self.width * self.width + 2 * self.width * self.ffn) // self.heads

    @property
    def layers_bytes(self) -> int:
        """Of all shards in float32."""
        return 4 * self.shards * self.weights_per_shard


class StudiedTask(Configuration):
    """Examples with labels that accuracy is measured on."""

    name: str
    """The file's own name."""
    sha256: str
    examples: Positive
    classes: Positive
    largest_class: Share
    """Of the examples: what guessing would reach."""


class StudiedStore(Configuration):
    """The records that are read, as they lie on disk."""

    name: str
    shard_bytes: dict[int, Positive]
    """Mean record by bits, outliers and dictionary included."""
    outlier_share: Share
    """Of the weights."""


class StudiedDevice(Configuration):
    """The costs that plans are made by."""

    name: str
    kind: Kind
    said: str
    """Where the costs are from."""
    io_s: dict[int, Duration]
    """Of one shard by bits, cold."""
    comp_s: tuple[Duration, ...]
    """Of one layer by slices, 1 to all."""
    embed_s: Seconds = 0.0
    """Computed before the first layer, while the disk reads; 0 if no profile records it."""
    head_s: Seconds = 0.0
    """Computed after the last layer."""
    slowed: tuple[Annotated[float, Field(ge=1.0)], ...] = ()
    """Times as long that computing with 1, 2, ... slices takes while the disk reads; empty: no longer."""
    preload_share: Share
    """|S| that stands for the device: of the bytes of all shards in float32."""

    @property
    def skew(self) -> float:
        """Loading a whole layer in 32 bits over computing it."""
        return len(self.comp_s) * self.io_s[32] / self.comp_s[-1]

    def whole_s(self, layers: int) -> float:
        """What the whole model of so many layers computes in all."""
        return self.embed_s + layers * self.comp_s[-1] + self.head_s


class ImportanceOrder(Configuration):
    """Which shards matter most, best first (STI-09)."""

    order: tuple[tuple[int, int], ...]
    """Layer and slice, from 0."""
    evaluations: Count
    """What it took: one a shard and the base."""
    task_sha256: str
    """Of the file of the examples that it was found on."""
    task: str = ""
    """That file's name."""
    examples: Count | None = None
    """How many of them; None if the study does not record it."""
    shared: Count | None = None
    """Those whose text is also one of the judged task's; None: not known, since a profile or a study records no texts."""


class PartRun(Configuration):
    """How and when one part was measured."""

    part: Part
    date: str
    """ISO 8601, of its end."""
    seconds: Seconds
    threads: Positive
    machine: str
    others_cpus: float | None
    """CPUs' worth of time that others used when it began; None if the system does not report it."""
    versions: dict[str, str]
    evaluations: Count
    """Runs over all examples that it took; what was known already counts nothing."""
    seed: int
    quick: bool = False
    settings: dict[str, JsonValue] = Field(default_factory=dict)
    """How much was measured."""
    notes: tuple[str, ...] = ()
    """What was left out, or sampled: one sentence each."""


class Outcome(Configuration):
    """What a submodel says of the task's examples."""

    accuracy: Share
    log_likelihood: float
    """Natural, of the true class, mean over examples."""
    agreement: Share | None = None
    """Of the examples, those that the whole model in 32 bits answers alike (XP-03)."""
    correct: str
    """Whether each example is right: bits, the first in the highest place of a byte, in base64."""

    @field_validator("correct")
    @classmethod
    def _is_base64(cls, text: str) -> str:
        try:
            base64.b64decode(text, validate=True)
        except binascii.Error:
            raise ValueError("no base64") from None
        return text

    def right(self, examples: int) -> NDArray[np.bool_]:
        """One truth value an example."""
        return np.unpackbits(np.frombuffer(base64.b64decode(self.correct), np.uint8), count=examples).astype(bool)


def packed_correct(right: NDArray[np.bool_]) -> str:
    """The other way round."""
    return base64.b64encode(np.packbits(np.asarray(right, bool)).tobytes()).decode("ascii")


class Uniform(Configuration):
    """A submodel of the most important slices with every shard at one bitwidth (STI-27)."""

    layers: Positive
    slices: Positive
    bits: Positive
    outcome: Outcome


class Point(Configuration):
    """One way of running the model under one deadline."""

    device: str
    method: Method
    deadline_share: Duration
    """Of the whole model's computation."""
    deadline_s: Duration
    preload_share: Share | None
    """|S|, of the bytes of all shards in float32; None for ways that have none."""
    preload_bytes: Count
    """|S|."""
    layers: Count
    """n; 0: nothing meets the deadline, and nothing is run."""
    slices: Count
    """m."""
    bits: dict[int, Positive]
    """Shards by bits."""
    held_bytes: Count
    """Parameters that stay in memory between executions."""
    working_bytes: Count
    """Parameters in float32 that an execution makes beside them at most: one layer's; with Load&Exec, which loads them so, all.

    The compressed shards that the other ways read, and hold until the execution ends, are not in it.
    """
    load_s: tuple[Seconds, ...]
    """Each layer's read."""
    comp_s: Seconds
    """Each layer's computation."""
    latency_s: Seconds
    stall_s: Seconds
    """Computation waiting for reads."""
    misses: bool
    """Whether it takes longer than the deadline."""
    flagged: bool
    """Whether the planner said so of a budget that not even 2 bits keep (STI-13)."""
    outcome: Outcome | None
    """None where nothing is run."""

    @property
    def shards(self) -> int:
        """n x m, which stands for operations (STI-24)."""
        return self.layers * self.slices

    @property
    def io_s(self) -> float:
        """All reads."""
        return sum(self.load_s)

    @property
    def busy_s(self) -> float:
        """All computation of layers."""
        return self.layers * self.comp_s

    @model_validator(mode="after")
    def _is_whole(self) -> Point:
        if sum(self.bits.values()) != self.shards or len(self.load_s) != self.layers:
            raise ValueError("bits and loads of other shards than n x m")
        if (self.outcome is None) != (self.layers == 0):
            raise ValueError("an outcome of what was not run, or none of what was")
        return self


class Upgraded(Configuration):
    """Of a submodel with all shards at 2 bits, so many raised: the most important ones, or random ones (STI-24)."""

    layers: Positive
    slices: Positive
    raised: Positive
    """Shards."""
    to_bits: Positive
    base: Outcome
    """Of none raised."""
    best: Outcome
    """Raised by importance."""
    random: tuple[Outcome, ...]
    """Raised at random, one an order."""
    same: Count = 0
    """Of the random orders, those that raise the same shards as importance does."""


class SmallCase(Configuration):
    """The planner beside the exact one (STI-10 to 15)."""

    device: str
    layers: Positive
    slices: Positive
    """Of the small model."""
    deadline_s: Duration
    preload_bytes: Count
    greedy: float
    """The objective that the exact planner maximises, as the planner reaches it."""
    exact: float
    gap: float
    """What the planner lacks, of the exact one's; below 0 where it is better because it waits."""
    greedy_stalls: bool


class Study(Configuration):
    """One model, one task, and the parts that have been measured; a part that was not is empty."""

    document: Literal["sti study"] = "sti study"
    schema_version: Annotated[Literal[1], NO_TRUTH_VALUE] = 1
    tool: str
    """What wrote the file, with its version."""
    model: StudiedClassifier
    task: StudiedTask
    store: StudiedStore
    devices: tuple[StudiedDevice, ...] = ()
    length: Positive
    """Padded tokens that costs are of."""
    importance: ImportanceOrder
    runs: tuple[PartRun, ...] = ()
    """In the order in which they were measured."""
    uniform: tuple[Uniform, ...] = ()
    grid: tuple[Point, ...] = ()
    sizes: tuple[Point, ...] = ()
    upgrades: tuple[Upgraded, ...] = ()
    greedy: tuple[SmallCase, ...] = ()

    @property
    def name(self) -> str:
        """Model and task."""
        return f"{self.model.name} on {self.task.name.removesuffix('.tsv')}"

    def run_of(self, part: str) -> PartRun | None:
        """The last measurement of a part."""
        return next((run for run in reversed(self.runs) if run.part == part), None)

    @model_validator(mode="after")
    def _outcomes_are_of_the_task(self) -> Study:
        size = -(-self.task.examples // 8)
        if any(len(base64.b64decode(outcome.correct)) != size for outcome in self.outcomes):
            raise ValueError(f"outcomes of other than {self.task.examples} examples")
        known = {device.name for device in self.devices}
        if unknown := {*(point.device for point in (*self.grid, *self.sizes)), *(case.device for case in self.greedy)} - known:
            raise ValueError(f"points of {', '.join(sorted(unknown))}, which is none of the devices")
        return self

    @property
    def outcomes(self) -> tuple[Outcome, ...]:
        """Return all measured outcomes."""
        points = tuple(point.outcome for point in (*self.grid, *self.sizes) if point.outcome is not None)
        raised = tuple(out for upgraded in self.upgrades for out in (upgraded.base, upgraded.best, *upgraded.random))
        return (*(submodel.outcome for submodel in self.uniform), *points, *raised)
