"""The file of a study: accuracy that a trained classifier keeps when it is streamed under deadlines (STI-22 to 27).

Needs no torch: `simnmt reproduce sti` reads it, `study_run.py` measures it. A part is a list of rows, and each row has the
answers of one submodel to every example of the task. Times and bytes follow from the costs of the paper's boards.
"""

from __future__ import annotations

import base64
from typing import Literal, NamedTuple, get_args

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike
from pydantic import model_validator

from simnmt.base.configuration import Configuration
from simnmt.papers.kit import study
from simnmt.papers.kit.study import AboveZero, Count, Positive, Seconds, Share
from simnmt.profile.streaming_cost import BERT_BASE
from simnmt.streaming.plan.presets import PRELOAD_BYTES, Board

Part = Literal["uniform", "grid", "sizes", "upgrades"]
"""`uniform`: submodels with all shards at one bitwidth; `grid`: every method under every deadline; `sizes`: STI with preload
buffers of many sizes; `upgrades`: shards raised by importance or at random."""
PARTS: tuple[Part, ...] = get_args(Part)
Method = Literal["STI", "STI, waiting", "Load&Exec", "StdPL-2", "StdPL-6", "StdPL-32", "PreloadModel-6", "PreloadModel-32"]
"""STI-19's names; 32 bits are the paper's `full`. Waiting, beyond the paper: a plan may stall until its deadline."""
METHODS: tuple[Method, ...] = get_args(Method)
PLANNED: tuple[Method, ...] = ("STI", "STI, waiting")
"""Methods with a preload buffer."""

Order = Literal["none", "importance", "random"]
"""The order by which shards were raised; each random one is another draw."""


def scaled(base_bytes: float) -> float:
    """Return a preload buffer for BERT's base size as a share of all shards in float32, which any model can have."""
    return base_bytes / (BERT_BASE.layers * BERT_BASE.float32_bytes_per_layer)


class Device(NamedTuple):
    """A board of the paper: shards of BERT's size, and the paper's own times of a layer (STI-20, STI-21)."""

    name: str
    times: Board
    buffer: Board
    """The board whose preload buffer it has."""

    @property
    def preload_share(self) -> float:
        """The preload buffer, as a share of all shards in float32."""
        return scaled(PRELOAD_BYTES[self.buffer])


PROCESSOR, GPU = Device("processor, 1 MB", "odroid", "odroid"), Device("GPU, 5 MB", "jetson", "jetson")
DEVICES = (PROCESSOR, Device("processor, 5 MB", "odroid", "jetson"), GPU)
"""The second one since 1 MB does not hold twelve slices of 2 bits."""


class StudiedClassifier(Configuration):
    """The model that is streamed."""

    name: str
    sha256: str
    layers: Positive
    heads: Positive
    """Slices of a layer."""
    width: Positive


class StudiedTask(Configuration):
    """Labelled examples that accuracy is measured on."""

    name: str
    sha256: str
    examples: Positive
    largest_class: Share
    """Share of the commonest class: the accuracy of guessing."""


class ImportanceOrder(Configuration):
    """Shards by importance (STI-09), and the examples that ranked them."""

    order: tuple[tuple[int, int], ...]
    """Layer and slice, from 0; best first."""
    task: str
    task_sha256: str
    examples: Count
    shared: Count
    """Examples whose text the judged task has too."""


class PartRun(study.PartRun):
    """How and when one part was measured."""

    part: Part


class Answers(Configuration):
    """The size of a submodel, and its answers to the task's examples."""

    layers: Positive
    """n of the paper."""
    slices: Positive
    """Slices of each layer, m of the paper."""
    accuracy: Share
    agreement: Share
    """Share of the examples that the whole model in 32 bits answers alike (XP-03)."""
    correct: str
    """Whether each example is right: bits, the first in the highest place of a byte, in base64."""


class Uniform(Answers):
    """A submodel of the most important slices with every shard at one bitwidth (STI-27)."""

    bits: Positive


class Point(Answers):
    """One method under one deadline. Where no submodel ends in time, the smallest one is run late."""

    device: str
    method: Method
    deadline_share: AboveZero
    """Share of the whole model's computation."""
    deadline_s: AboveZero
    preload_share: Share | None
    """The preload buffer, as a share of all shards in float32; None for methods that have none."""
    mean_bits: AboveZero
    held_bytes: Count
    """Parameters that stay in memory between executions."""
    working_bytes: Count
    """Float32 parameters that an execution unpacks at once: one layer's; with Load&Exec all layers'.

    The compressed shards that the other methods read, and hold until the execution ends, are not included.
    """
    load_s: tuple[Seconds, ...]
    comp_s: Seconds
    """Of each layer."""
    latency_s: Seconds
    stall_s: Seconds
    misses: bool
    """True if it ends after its deadline."""


class Raised(Answers):
    """A submodel at 2 bits, or with some of its shards raised (STI-24)."""

    raised: Positive
    to_bits: Positive
    order: Order


class Study(Configuration):
    """One model, one task, and the measured parts; other parts are empty."""

    document: Literal["sti study"] = "sti study"
    schema_version: Literal[2] = 2
    tool: str
    """Name and version of the program that wrote the file."""
    model: StudiedClassifier
    task: StudiedTask
    importance: ImportanceOrder
    runs: tuple[PartRun, ...] = ()
    """In the order in which they were measured."""
    uniform: tuple[Uniform, ...] = ()
    grid: tuple[Point, ...] = ()
    sizes: tuple[Point, ...] = ()
    upgrades: tuple[Raised, ...] = ()

    @property
    def name(self) -> str:
        return f"{self.model.name} on {self.task.name.removesuffix('.tsv')}"

    @property
    def ranked_on_judged(self) -> bool:
        """True if the examples that judge also ranked the shards."""
        return self.importance.task_sha256 == self.task.sha256

    def frame(self, part: Part) -> pd.DataFrame:
        """Return the rows of a part; `right` has a truth value for each example, `shards` is n x m (STI-24)."""
        rows = getattr(self, part)
        frame = pd.DataFrame([row.model_dump(exclude={"correct"}) for row in rows])
        if frame.empty:
            return frame
        right = pd.Series([unpacked(row.correct)[: self.task.examples] for row in rows])
        frame = frame.assign(study=self.name, right=right, shards=frame["layers"] * frame["slices"])
        if part in ("uniform", "upgrades"):
            return frame
        return frame.assign(
            deadline_ms=1e3 * frame["deadline_s"],
            latency_ms=1e3 * frame["latency_s"],
            stall_ms=1e3 * frame["stall_s"],
            io_busy_ms=1e3 * frame["load_s"].map(sum),
            compute_busy_ms=1e3 * frame["layers"] * frame["comp_s"],
            held_mb=1e-6 * frame["held_bytes"],
            working_mb=1e-6 * frame["working_bytes"],
        )

    @model_validator(mode="after")
    def _answers_are_of_the_task(self) -> Study:
        for part in PARTS:
            for row in getattr(self, part):
                if not 0 <= len(unpacked(row.correct)) - self.task.examples < 8:
                    raise ValueError(f"{part}: answers are not of {self.task.examples} examples")
        return self


def unpacked(correct: str) -> np.ndarray:
    """Return truth values by example, and up to 7 more; raises `ValueError` for text that is not base64."""
    return np.unpackbits(np.frombuffer(base64.b64decode(correct, validate=True), np.uint8)).astype(bool)


def packed(right: ArrayLike) -> str:
    """Return the text of truth values."""
    return base64.b64encode(np.packbits(np.asarray(right, bool)).tobytes()).decode("ascii")
