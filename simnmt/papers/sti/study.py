"""The file of a study: accuracy that a trained classifier keeps when it is streamed under deadlines (STI-22 to 27).

Needs no torch: `simnmt reproduce sti` reads it. `study_run.py` measures it, part by part. Accuracy is measured on the task's
examples; times and bytes follow from a device's costs, whose kind is recorded with them.
"""

from __future__ import annotations

import base64
import binascii
from typing import Annotated, Literal, get_args

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, JsonValue, field_validator, model_validator

from simnmt.base.configuration import Configuration
from simnmt.papers.kit import study
from simnmt.papers.kit.study import AboveZero, Count, Positive, Seconds, Share
from simnmt.streaming.plan.timeline import Timeline, Work, load_then_run, timeline

Part = Literal["uniform", "grid", "sizes", "upgrades"]
"""`uniform`: submodels with all shards at one bitwidth; `grid`: every method under every deadline; `sizes`: STI with preload
buffers of many sizes; `upgrades`: shards raised by importance or at random."""
PARTS: tuple[Part, ...] = get_args(Part)
Method = Literal["STI", "STI, waiting", "Load&Exec", "StdPL-2", "StdPL-6", "StdPL-32", "PreloadModel-6", "PreloadModel-32"]
"""STI-19's names; 32 bits are the paper's `full`. Waiting, beyond the paper: a plan may stall until its deadline."""
METHODS: tuple[Method, ...] = get_args(Method)
PLANNED: tuple[Method, ...] = ("STI", "STI, waiting")
"""Methods with a preload buffer."""
Kind = Literal["measured", "inferred", "synthetic"]


class StudiedClassifier(Configuration):
    """The model that is streamed."""

    name: str
    kind: str
    sha256: str
    layers: Positive
    heads: Positive
    """Slices of a layer."""
    width: Positive
    ffn: Positive

    @property
    def layers_bytes(self) -> int:
        return 4 * self.layers * (4 * self.width + 2 * self.ffn) * self.width


class StudiedTask(Configuration):
    """Labelled examples that accuracy is measured on."""

    name: str
    sha256: str
    examples: Positive
    classes: Positive
    largest_class: Share
    """Share of the commonest class: the accuracy of guessing."""


class StudiedStore(Configuration):
    """The shards on disk."""

    name: str
    shard_bytes: dict[int, Positive]
    """Mean record by bits, outliers and dictionary included."""
    outlier_share: Share
    """Share of the weights."""


class StudiedDevice(Configuration):
    """The costs that plans are made by."""

    name: str
    kind: Kind
    source: str
    io_s: dict[int, AboveZero]
    """Seconds to read one shard from a cold disk, by bits."""
    comp_s: tuple[AboveZero, ...]
    """Seconds to compute one layer of 1, 2, ... slices."""
    embed_s: Seconds = 0.0
    """Computed before the first layer, while the disk reads; 0 if no profile records it."""
    head_s: Seconds = 0.0
    slowed: tuple[Annotated[float, Field(ge=1.0)], ...] = ()
    """Factor by which computing 1, 2, ... slices takes longer while the disk reads; empty: no longer."""
    preload_share: Share
    """The device's preload buffer, as a share of all shards in float32."""

    @property
    def skew(self) -> float:
        """Time to load a whole layer in 32 bits over the time to compute it."""
        return len(self.comp_s) * self.io_s[32] / self.comp_s[-1]

    def whole_s(self, layers: int) -> float:
        """Return the seconds that the whole model of `layers` layers computes."""
        return self.embed_s + layers * self.comp_s[-1] + self.head_s


class ImportanceOrder(Configuration):
    """Shards by importance, best first (STI-09)."""

    order: tuple[tuple[int, int], ...]
    """Layer and slice, from 0."""
    evaluations: Count
    """Evaluations that ranked them: one for each shard and one more."""
    task_sha256: str
    """Fingerprint of the examples that ranked them."""
    task: str = ""
    examples: Count | None = None
    shared: Count | None = None
    """Those whose text the judged task has too; None if unknown, since a profile records no texts."""


class PartRun(study.PartRun):
    """How and when one part was measured."""

    part: Part
    evaluations: Count
    """Submodels that were run over all examples; results that were known before do not count."""
    seed: int
    settings: dict[str, JsonValue] = Field(default_factory=dict)


class Outcome(Configuration):
    """Answers of a submodel to the task's examples."""

    accuracy: Share
    log_likelihood: float
    """Natural, of the true class, mean over examples."""
    agreement: Share | None = None
    """Share of the examples that the whole model in 32 bits answers alike (XP-03)."""
    correct: str
    """Whether each example is right: bits, the first in the highest place of a byte, in base64."""

    @field_validator("correct")
    @classmethod
    def _is_base64(cls, text: str) -> str:
        try:
            base64.b64decode(text, validate=True)
        except binascii.Error:
            raise ValueError("not base64") from None
        return text

    def right(self, examples: int) -> NDArray[np.bool_]:
        return np.unpackbits(np.frombuffer(base64.b64decode(self.correct), np.uint8), count=examples).astype(bool)


def packed_correct(right: NDArray[np.bool_]) -> str:
    return base64.b64encode(np.packbits(np.asarray(right, bool)).tobytes()).decode("ascii")


class Submodel(Configuration):
    """The size of a submodel."""

    layers: Positive
    """n of the paper."""
    slices: Positive
    """Slices of each layer, m of the paper."""


class Uniform(Submodel):
    """A submodel of the most important slices with every shard at one bitwidth (STI-27)."""

    bits: Positive
    outcome: Outcome


class Point(Submodel):
    """One method under one deadline. Where no submodel ends in time, the smallest one is run late."""

    device: str
    method: Method
    deadline_share: AboveZero
    """Share of the whole model's computation."""
    deadline_s: AboveZero
    preload_share: Share | None
    """The preload buffer, as a share of all shards in float32; None for methods that have none."""
    preload_bytes: Count
    bits: dict[int, Positive]
    """Number of shards by bits."""
    held_bytes: Count
    """Parameters that stay in memory between executions."""
    working_bytes: Count
    """Largest number of bytes of float32 parameters that an execution unpacks: one layer's; with Load&Exec all layers'.

    The compressed shards that the other methods read, and hold until the execution ends, are not included.
    """
    load_s: tuple[Seconds, ...]
    comp_s: Seconds
    latency_s: Seconds
    stall_s: Seconds
    """Seconds that the computation waits for reads."""
    misses: bool
    """True if it ends after its deadline."""
    flagged: bool
    """True if the planner warned that not even 2 bits keep the budget (STI-13)."""
    outcome: Outcome

    @property
    def shards(self) -> int:
        """Number of shards, n x m, the measure of operations (STI-24)."""
        return self.layers * self.slices

    @property
    def mean_bits(self) -> float:
        return sum(bits * count for bits, count in self.bits.items()) / self.shards

    @property
    def io_s(self) -> float:
        return sum(self.load_s)

    @property
    def busy_s(self) -> float:
        return self.layers * self.comp_s

    def timeline(self, device: StudiedDevice) -> Timeline:
        """Return the timeline of the execution on its device, layer by layer."""
        run = load_then_run if self.method == "Load&Exec" else timeline
        slowed = device.slowed[self.slices - 1] if device.slowed else 1.0
        return run(self.load_s, Work([self.comp_s] * self.layers, device.head_s, slowed, device.embed_s))

    @model_validator(mode="after")
    def _is_whole(self) -> Point:
        if sum(self.bits.values()) != self.shards or len(self.load_s) != self.layers:
            raise ValueError("bits and loads are not of n x m shards")
        return self


class Upgraded(Submodel):
    """A submodel at 2 bits of which some shards are raised: the most important ones, or random ones (STI-24)."""

    raised: Positive
    to_bits: Positive
    base: Outcome
    best: Outcome
    random: tuple[Outcome, ...]
    """Raised at random, one outcome for each order."""
    same: Count = 0
    """Random orders that raise the same shards as importance does."""


class Study(Configuration):
    """One model, one task, and the measured parts; other parts are empty."""

    document: Literal["sti study"] = "sti study"
    schema_version: Literal[1] = 1
    tool: str
    """Name and version of the program that wrote the file."""
    model: StudiedClassifier
    task: StudiedTask
    store: StudiedStore
    devices: tuple[StudiedDevice, ...] = ()
    length: Positive
    """Padded tokens of the costs."""
    importance: ImportanceOrder
    runs: tuple[PartRun, ...] = ()
    """In the order in which they were measured."""
    uniform: tuple[Uniform, ...] = ()
    grid: tuple[Point, ...] = ()
    sizes: tuple[Point, ...] = ()
    upgrades: tuple[Upgraded, ...] = ()

    @property
    def name(self) -> str:
        return f"{self.model.name} on {self.task.name.removesuffix('.tsv')}"

    @property
    def ranked_on_judged(self) -> bool:
        """True if the examples that judge also ranked the shards."""
        return self.importance.task_sha256 == self.task.sha256

    @property
    def outcomes(self) -> tuple[Outcome, ...]:
        raised = tuple(outcome for case in self.upgrades for outcome in (case.base, case.best, *case.random))
        points = (point.outcome for point in (*self.grid, *self.sizes))
        return (*(submodel.outcome for submodel in self.uniform), *points, *raised)

    @model_validator(mode="after")
    def _outcomes_are_of_the_task(self) -> Study:
        size = -(-self.task.examples // 8)
        if any(len(base64.b64decode(outcome.correct)) != size for outcome in self.outcomes):
            raise ValueError(f"outcomes are not of {self.task.examples} examples")
        known = {device.name for device in self.devices}
        if unknown := {point.device for point in (*self.grid, *self.sizes)} - known:
            raise ValueError(f"points of {', '.join(sorted(unknown))}, which is not one of the devices")
        return self
