"""One stretch of training: steps, looks at the development part, and all of it kept as it comes."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from simnmt.elastic.errors import ElasticError
from simnmt.elastic.task import Task
from simnmt.elastic.tokenizer import PADDING, Pieces, padded
from simnmt.elastic.training.batches import epoch_batches, in_order, lengths_of
from simnmt.elastic.training.folder import STATE_FILE, save_state
from simnmt.elastic.training.learner import ElasticLearner
from simnmt.elastic.training.recipe import ElasticRecipe
from simnmt.nmt.training.interrupts import held_back
from simnmt.nmt.training.state import START_AGAIN, NotNegative, NotNegativeReal

SAVE_EVERY_S = 120.0
"""What a power cut costs at most; an interrupt costs nothing."""

Progress = Callable[[str, float | None], None]
"""Told what is being done and which share of it is done, None where nobody knows."""


@dataclass(slots=True)
class Standing:
    """How far a training is, all sittings together."""

    step: NotNegative = 0
    epoch: NotNegative = 0
    """Whole ones."""
    batch: NotNegative = 0
    """Batches done of the epoch under way."""
    seconds: NotNegativeReal = 0.0
    losses: list[float] = field(default_factory=list)
    """Of the whole model, mean over the steps since the last look."""
    curve: list[dict[str, float]] = field(default_factory=list)
    """A point after each epoch."""


@dataclass(frozen=True, slots=True)
class Encoded:
    """A task in tokens."""

    token_ids: Sequence[Sequence[int]]
    labels: NDArray[np.int64]
    lengths: NDArray[np.int64]

    @classmethod
    def of(cls, task: Task, pieces: Pieces, positions: int) -> Encoded:
        """Texts longer than `positions` are cut."""
        token_ids = pieces.encode(task.texts, positions)
        return cls(token_ids, task.labels, lengths_of(token_ids))

    def batch(self, rows: NDArray[np.int64]) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Token ids, mask and labels of these examples."""
        tokens, mask = padded([self.token_ids[row] for row in rows], PADDING)
        return tokens, mask, torch.from_numpy(self.labels[rows])


class Sitting:
    """Goes on from where a training stands, step by step."""

    def __init__(
        self,
        out: Path,
        identity: dict[str, Any],
        recipe: ElasticRecipe,
        learner: ElasticLearner,
        standing: Standing,
        examples: Encoded,
        dev: Encoded | None,
        tell: Progress,
    ) -> None:
        self.out, self.identity, self.recipe, self.learner, self.standing = out, identity, recipe, learner, standing
        self.examples, self.dev, self.tell = examples, dev, tell

    def run(self) -> None:
        """Step until the recipe ends; whatever ends it earlier, the last whole step is kept."""
        standing, saved_s = self.standing, time.monotonic()
        epoch, batches = standing.epoch, self._batches()
        try:
            while True:
                if epoch != standing.epoch:
                    epoch, batches = standing.epoch, self._batches()
                share = self._share(len(batches))
                if share >= 1.0:
                    break
                with held_back():
                    self._step(batches, share)
                    if time.monotonic() - saved_s > SAVE_EVERY_S:
                        self._save()
                        saved_s = time.monotonic()
                self.tell(self._words(), share)
        except BaseException:
            if self.learner.whole:
                with held_back():
                    self._save()
            raise
        with held_back():
            self._save()

    def _batches(self) -> list[NDArray[np.int64]]:
        """Batches of the epoch that is under way. Raises `ElasticError` for a state that counts more of them."""
        recipe, standing = self.recipe, self.standing
        batches = epoch_batches(self.examples.lengths, recipe.batch_tokens, seed=recipe.seed, epoch=standing.epoch)
        if standing.batch >= len(batches):
            what = f"the state cannot be used: batch: {standing.batch:,} where an epoch has {len(batches):,} batches"
            raise ElasticError(what, path=self.out / STATE_FILE, remedy=START_AGAIN)
        return batches

    def _share(self, batches: int) -> float:
        if self.recipe.minutes is not None:
            return self.standing.seconds / (60.0 * self.recipe.minutes)
        assert self.recipe.epochs is not None
        return (self.standing.epoch + self.standing.batch / batches) / self.recipe.epochs

    def _step(self, batches: list[NDArray[np.int64]], share: float) -> None:
        standing, begun_s = self.standing, time.perf_counter()
        tokens, mask, labels = self.examples.batch(batches[standing.batch])
        standing.losses.append(self.learner.step(tokens, mask, labels, step=standing.step + 1, share=share))
        standing.step += 1
        standing.batch += 1
        standing.seconds += time.perf_counter() - begun_s
        if standing.batch == len(batches):
            standing.epoch, standing.batch = standing.epoch + 1, 0
            point = {"epoch": standing.epoch, "step": standing.step, "seconds": round(standing.seconds, 1)}
            point |= {"loss": float(np.mean(standing.losses))}
            standing.losses = []
            if self.dev is not None:
                point |= {"dev_accuracy": self.accuracy(self.dev)}
            standing.curve.append(point)

    def accuracy(self, task: Encoded) -> float:
        """Share of right answers of the mean weights."""
        right = 0
        for rows in in_order(task.lengths, np.argsort(task.lengths, kind="stable"), 4 * self.recipe.batch_tokens):
            tokens, mask, labels = task.batch(rows)
            right += int((self.learner.predicted(tokens, mask) == labels).sum())
        return right / len(task.labels)

    def _save(self) -> None:
        fields = {name: getattr(self.standing, name) for name in Standing.__slots__}
        save_state(self.out / STATE_FILE, {"identity": self.identity, "standing": fields}, self.learner.tensors())

    def _words(self) -> str:
        curve = self.standing.curve
        at = f", dev {curve[-1]['dev_accuracy']:.1%}" if curve and "dev_accuracy" in curve[-1] else ""
        return f"epoch {self.standing.epoch + 1}, step {self.standing.step:,}{at}"
