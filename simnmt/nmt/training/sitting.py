"""One stretch of training: steps, looks at the development part, and all of it kept as it comes."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simnmt.nmt.checkpoint import save_checkpoint
from simnmt.nmt.training.encoded import EncodedPairs
from simnmt.nmt.training.errors import TrainingError
from simnmt.nmt.training.folder import TrainingFolder
from simnmt.nmt.training.interrupts import held_back
from simnmt.nmt.training.learner import Learner
from simnmt.nmt.training.recipe import Budget
from simnmt.nmt.training.state import START_AGAIN, Standing, save_state

SAVE_EVERY_S = 120.0
"""What a power cut costs at most; an interrupt costs nothing."""

Progress = Callable[[str, float | None], None]
"""Told what is being done and which share of it is done, None where nobody knows."""


class Sitting:
    """Goes on from where a training stands, step by step."""

    def __init__(
        self,
        folder: TrainingFolder,
        pairs: EncodedPairs,
        dev: EncodedPairs,
        learner: Learner,
        standing: Standing,
        account: Mapping[str, Any],
        identity: dict[str, Any],
        tell: Progress,
    ) -> None:
        """`account`: what training.json says beside how far the training is; `identity`: see `save_state`."""
        self.folder, self.pairs, self.dev, self.learner, self.standing = folder, pairs, dev, learner, standing
        self.account, self.identity, self.tell = account, identity, tell
        self.recipe = learner.recipe

    def run(self, budget: Budget) -> None:
        """Step until the budget is used up; whatever ends it, the last complete step is kept.

        Except where an update failed midway: then what was last written stays, up to `SAVE_EVERY_S` old.
        """
        standing, recipe = self.standing, self.recipe
        saved_s = time.monotonic()
        epoch, batches = standing.epoch, self._batches()
        try:
            while (share := self._share(budget, len(batches))) < 1.0:
                if epoch != standing.epoch:
                    epoch, batches = standing.epoch, self._batches()
                    continue
                if standing.step % recipe.validate_every == 0 and standing.looked_at != standing.step and standing.step:
                    self._look()
                with held_back():
                    self._step(batches)
                    if time.monotonic() - saved_s > SAVE_EVERY_S:
                        self._save()
                        saved_s = time.monotonic()
                self.tell(self._words(), share)
            if standing.looked_at != standing.step:
                self._look()
        except BaseException:
            if self.learner.whole:
                with held_back():
                    if standing.best_loss is None:
                        self._keep()
                    self._save()
            raise
        with held_back():
            self._save()

    def _batches(self) -> list[NDArray[np.int64]]:
        """Batches of the epoch that is under way. Raises `TrainingError` for a state that counts more of them."""
        batches = self.pairs.epoch(self.recipe.batch_tokens, seed=self.recipe.seed, epoch=self.standing.epoch)
        if self.standing.batch >= len(batches):
            what = f"the state cannot be used: batch: {self.standing.batch:,} where an epoch has {len(batches):,} batches"
            raise TrainingError(what, path=self.folder.state, remedy=START_AGAIN)
        return batches

    def _share(self, budget: Budget, batches: int) -> float:
        standing = self.standing
        epochs = standing.epoch + (standing.batch / batches if batches else 0.0)
        return budget.used(epochs=epochs, steps=standing.step, seconds=standing.seconds)

    def _step(self, batches: list[NDArray[np.int64]]) -> None:
        standing, begun_s = self.standing, time.perf_counter()
        rows = batches[standing.batch]
        batch = self.pairs.batch(rows, self.learner.device)
        loss = self.learner.step(batch, standing.step + 1)
        standing.step += 1
        standing.loss_sum += loss
        standing.loss_tokens += batch.tgt_tokens
        standing.tgt_tokens += batch.tgt_tokens
        standing.pairs += len(rows)
        standing.batch += 1
        if standing.batch == len(batches):
            standing.epoch, standing.batch = standing.epoch + 1, 0
        spent_s = time.perf_counter() - begun_s
        standing.seconds += spent_s
        standing.step_seconds += spent_s

    def _look(self) -> None:
        """Measure the development loss, and keep the weights if they are the best so far."""
        standing, begun_s = self.standing, time.perf_counter()
        loss = self.learner.mean_loss(self.dev.in_order(self.recipe.batch_tokens, self.learner.device))
        with held_back():
            standing.seconds += time.perf_counter() - begun_s
            if standing.best_loss is None or loss < standing.best_loss:
                standing.best_loss, standing.best_step = loss, standing.step
                self._keep()
            point = {"step": standing.step, "epoch": standing.epoch, "seconds": round(standing.seconds, 3), "dev_loss": loss}
            if standing.loss_tokens:
                point["train_loss"] = standing.loss_sum / standing.loss_tokens
            standing.curves.append(point)
            standing.loss_sum, standing.loss_tokens = 0.0, 0
            standing.looked_at = standing.step
            self._save()

    def _keep(self) -> None:
        save_checkpoint(self.folder.path, self.learner.model, self.recipe.architecture)

    def _save(self) -> None:
        save_state(self.folder.state, self.identity, self.learner, self.standing)
        self.folder.write_account({**self.account, "training": self.progress()})

    def progress(self) -> dict[str, Any]:
        """How far the training is, as training.json says it."""
        standing = self.standing
        rates = {
            "sentences_per_s": standing.pairs / standing.step_seconds if standing.step_seconds else None,
            "tgt_tokens_per_s": standing.tgt_tokens / standing.step_seconds if standing.step_seconds else None,
        }
        return {name: value for name, value in asdict(standing).items() if name not in ("loss_sum", "loss_tokens")} | rates

    def _words(self) -> str:
        standing = self.standing
        best = "" if standing.best_loss is None else f", perplexity {math.exp(min(standing.best_loss, 99.0)):.1f}"
        rate = standing.tgt_tokens / standing.step_seconds if standing.step_seconds else 0.0
        return f"epoch {standing.epoch + 1}, step {standing.step:,}{best}, {rate:,.0f} tokens/s"
