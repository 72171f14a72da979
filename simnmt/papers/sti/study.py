"""The file of a study: the answers of a trained classifier's submodels to the examples of a task (STI-22 to 27).

Needs no torch: `simnmt reproduce sti` reads it, `study_run.py` measures it. Which submodels a study needs, and their times and
bytes, follow from the costs of the paper's boards (`plans.py`).
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from pydantic import model_validator

from simnmt.base.configuration import Configuration
from simnmt.papers.kit.study import Count, PartRun, Positive, Share
from simnmt.profile.streaming_block import Shard


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


class Answers(Configuration):
    """Answers of a submodel to the task's examples."""

    accuracy: Share
    agreement: Share
    """Share of the examples that the whole model in 32 bits answers alike (XP-03)."""
    correct: str
    """Whether each example is right: bits, the first in the highest place of a byte, in base64."""


class Study(Configuration):
    """One model and one task."""

    document: Literal["sti study"] = "sti study"
    schema_version: Literal[2] = 2
    tool: str
    model: StudiedClassifier
    task: StudiedTask
    importance: ImportanceOrder
    runs: tuple[PartRun, ...] = ()
    """When and where answers were measured."""
    answers: Mapping[str, Answers]
    """By `submodel_name`."""

    @property
    def name(self) -> str:
        return f"{self.model.name} on {self.task.name.removesuffix('.tsv')}"

    @property
    def ranked_on_judged(self) -> bool:
        """True if the examples that judge also ranked the shards."""
        return self.importance.task_sha256 == self.task.sha256

    def right(self, submodel: str) -> NDArray[np.bool_]:
        """Return whether a submodel answers each example correctly."""
        return unpacked(self.answers[submodel].correct)[: self.task.examples]

    @model_validator(mode="after")
    def _answers_are_of_the_task(self) -> Study:
        for name, answers in self.answers.items():
            if not 0 <= len(unpacked(answers.correct)) - self.task.examples < 8:
                raise ValueError(f"answers: {name}: not of {self.task.examples} examples")
        return self


def submodel_name(bits: Mapping[Shard, int], slices: int) -> str:
    """Return the shards of a submodel by layer, one sign a slice: the bits, `f` for 32, `-` for none.

    Example:
        >>> submodel_name({(0, 0): 2, (0, 2): 32, (1, 0): 6, (1, 2): 6}, 3)
        '2-f/6-6'
    """
    layers = 1 + max(layer for layer, _ in bits)
    signs = {shard: "f" if width == 32 else str(width) for shard, width in bits.items()}
    return "/".join("".join(signs.get((layer, piece), "-") for piece in range(slices)) for layer in range(layers))


def unpacked(correct: str) -> NDArray[np.bool_]:
    """Return truth values by example, and up to 7 more; raises `ValueError` for text that is not base64."""
    return np.unpackbits(np.frombuffer(base64.b64decode(correct, validate=True), np.uint8)).astype(bool)


def packed(right: ArrayLike) -> str:
    return base64.b64encode(np.packbits(np.asarray(right, bool)).tobytes()).decode("ascii")
