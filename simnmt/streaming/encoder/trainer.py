"""Train an elastic classifier on a task, in one or more sessions, and write its folder.

A batch holds examples of similar length; the seed and the epoch decide the order.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from simnmt.base.files import MOST_MODEL_BYTES, read_bounded
from simnmt.base.random_streams import stream
from simnmt.nmt.training.learner import batch_slices
from simnmt.nmt.training.session import (
    Progress,
    TrainingFolder,
    TrainingSession,
    TrainingState,
    machine_facts,
    training_place,
)
from simnmt.profile.doubts import chance_level_message
from simnmt.streaming.encoder.encoder_configuration import EncoderConfiguration
from simnmt.streaming.encoder.encoder_folder import save_encoder, unusable
from simnmt.streaming.encoder.learner import ElasticLearner, ElasticRecipe
from simnmt.streaming.encoder.task import Task, shared_texts
from simnmt.streaming.encoder.tokenizer import PADDING, PIECES_FILE, Pieces, learn_pieces, padded
from simnmt.streaming.errors import StreamingError

_SPREAD = 4.0
"""Tokens of random noise on lengths before sorting, so that batches differ between epochs."""


def epoch_batches(lengths: NDArray[np.int64], batch_tokens: int, *, seed: int, epoch: int) -> list[NDArray[np.int64]]:
    """Return the rows of each batch in random order; a batch has at most `batch_tokens` with padding, or one example."""
    draw = stream(seed, 0, "elastic-batches", epoch)
    order = np.argsort(lengths + draw.random(len(lengths)) * _SPREAD, kind="stable")
    batches = in_order(lengths, order, batch_tokens)
    return [batches[index] for index in draw.permutation(len(batches))]


def in_order(lengths: NDArray[np.int64], order: NDArray[np.int64], batch_tokens: int) -> list[NDArray[np.int64]]:
    """Return rows in `order`, cut into batches of at most `batch_tokens` with padding."""
    return [order[run] for run in batch_slices(lengths[order], batch_tokens)]


@dataclass(slots=True)
class ElasticTrainingState(TrainingState):
    """Progress of the training of an elastic classifier."""

    losses: list[float] = field(default_factory=list)
    """Loss of the whole model at each step of the current epoch."""
    curve: list[dict[str, float]] = field(default_factory=list)
    """One point per epoch."""


@dataclass(frozen=True, slots=True)
class EncodedTask:
    """A task as token ids."""

    token_ids: Sequence[Sequence[int]]
    labels: NDArray[np.int64]
    lengths: NDArray[np.int64]

    @classmethod
    def of(cls, task: Task, pieces: Pieces, positions: int) -> EncodedTask:
        """Return a task as token ids, each text cut to `positions`."""
        token_ids = pieces.encode(task.texts, positions)
        return cls(token_ids, task.labels, np.array([len(tokens) for tokens in token_ids], np.int64))

    def batch(self, rows: NDArray[np.int64]) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Return token ids, mask and labels of these examples."""
        tokens, mask = padded([self.token_ids[row] for row in rows], PADDING)
        return tokens, mask, torch.from_numpy(self.labels[rows])


class ElasticSession(TrainingSession[ElasticLearner, ElasticTrainingState]):
    """A training of an elastic classifier until its recipe ends."""

    def __init__(
        self,
        folder: TrainingFolder,
        identity: Mapping[str, Any],
        learner: ElasticLearner,
        examples: EncodedTask,
        dev: EncodedTask | None,
        tell: Progress,
    ) -> None:
        super().__init__(folder, identity, learner, ElasticTrainingState(), tell)
        self.recipe, self.examples, self.dev = learner.recipe, examples, dev

    def batches(self) -> list[NDArray[np.int64]]:
        """See `TrainingSession`."""
        recipe, epoch = self.recipe, self.standing.epoch
        return epoch_batches(self.examples.lengths, recipe.batch_tokens, seed=recipe.seed, epoch=epoch)

    def share(self, batches: int) -> float:
        """See `TrainingSession`."""
        if self.recipe.minutes is not None:
            return self.standing.seconds / (60.0 * self.recipe.minutes)
        assert self.recipe.epochs is not None
        return (self.standing.epoch + self.standing.batch / batches) / self.recipe.epochs

    def learn(self, rows: NDArray[np.int64], share: float) -> None:
        """See `TrainingSession`."""
        tokens, mask, labels = self.examples.batch(rows)
        self.standing.losses.append(self.learner.step(tokens, mask, labels, step=self.standing.step + 1, share=share))

    def end_epoch(self) -> None:
        """See `TrainingSession`."""
        standing = self.standing
        point = {"epoch": standing.epoch, "step": standing.step, "seconds": round(standing.seconds, 1)}
        point |= {"loss": float(np.mean(standing.losses))}
        standing.losses = []
        if self.dev is not None:
            point |= {"dev_accuracy": self.accuracy(self.dev)}
        standing.curve.append(point)

    def accuracy(self, task: EncodedTask) -> float:
        """Return the accuracy of the mean weights."""
        right = 0
        for rows in in_order(task.lengths, np.argsort(task.lengths, kind="stable"), 4 * self.recipe.batch_tokens):
            tokens, mask, labels = task.batch(rows)
            right += int((self.learner.predicted(tokens, mask) == labels).sum())
        return right / len(task.labels)

    def message(self) -> str:
        """See `TrainingSession`."""
        curve = self.standing.curve
        at = f", dev {curve[-1]['dev_accuracy']:.1%}" if curve and "dev_accuracy" in curve[-1] else ""
        return f"epoch {self.standing.epoch + 1}, step {self.standing.step:,}{at}"


def train(
    task: Task,
    out: Path,
    recipe: ElasticRecipe,
    *,
    dev: Task | None = None,
    device: str = "cpu",
    threads: int | None = None,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Train on `task`, or resume the training in `out`, until the recipe ends; return its training.json.

    `out` holds a model only after the last step. An interrupted training goes on from its last save.

    Args:
        dev: examples to report the accuracy on after each epoch; they do not influence the weights.

    Raises:
        StreamingError: for a task with one class, and if `dev` equals `task`.
        TrainingError: for a folder that cannot be used, or in which another process trains.
    """
    if dev is not None and dev.sha256 == task.sha256:
        what = "--dev: the very examples that are trained on"
        raise StreamingError(what, path=dev.path, remedy="give others, or leave it out")
    tell = progress or (lambda stage, share: None)
    if len(set(task.labels.tolist())) < 2:
        what = f"every example is labelled {task.label_names[int(task.labels[0])]}: there is nothing to tell apart"
        raise StreamingError(what, path=task.path, remedy="give examples of two classes")
    identity = {"recipe": asdict(recipe), "task": task.sha256}
    TrainingFolder(out, PIECES_FILE).refuse_other(identity)  # before a folder is made
    with training_place(out, device, threads) as where:
        return _train(task, TrainingFolder(out, PIECES_FILE), recipe, dev, where, tell, identity)


def _train(
    task: Task,
    folder: TrainingFolder,
    recipe: ElasticRecipe,
    dev: Task | None,
    where: torch.device,
    tell: Progress,
    identity: Mapping[str, Any],
) -> dict[str, Any]:
    begun = {"schema_version": 1, **identity}
    folder.refuse_other(identity)
    if not folder.begun:
        tell("learning subwords", None)
        learnt = learn_pieces(task.texts, recipe.vocab)
        folder.begin(begun, [learnt.files[PIECES_FILE]])
    pieces = Pieces(_vocabulary(folder))
    learner = ElasticLearner(configuration_of(recipe, pieces.size, len(task.label_names)), recipe, where)
    examples = EncodedTask.of(task, pieces, recipe.positions)
    encoded_dev = None if dev is None else EncodedTask.of(dev, pieces, recipe.positions)
    session = ElasticSession(folder, identity, learner, examples, encoded_dev, tell)
    session.run()
    standing = session.standing
    training: dict[str, Any] = {"steps": standing.step, "epochs": standing.epoch}
    training |= {"seconds": round(standing.seconds, 1), "curve": standing.curve}
    account = {
        **begun,
        "label_names": list(task.label_names),
        "examples": len(task),
        "parameters": sum(tensor.numel() for tensor in learner.model.parameters()),
        "vocabulary": pieces.size,
        **machine_facts(where),
        "training": training,
    }
    if dev is not None and encoded_dev is not None:
        account["dev"] = {
            "path": Path(dev.path).name,
            "sha256": dev.sha256,
            "examples": len(dev),
            "trained_on": shared_texts(dev, task),
            "majority": dev.majority,
            "accuracy": session.accuracy(encoded_dev),
        }
    else:
        training |= {"majority": task.majority, "accuracy": session.accuracy(examples)}
    save_encoder(folder.path, learner.mean.cpu().exported(), account)
    return account


def chance_level(account: Mapping[str, Any]) -> str | None:
    """Return a warning if a trained model is no better than the commonest class, else None.

    `account`: the content of training.json. Its dev set decides; without one, the training examples do.
    """
    dev = account.get("dev")
    if dev is not None:
        return chance_level_message(dev["accuracy"], dev["majority"], dev["examples"], dev["path"])
    fit = account["training"]
    return chance_level_message(fit["accuracy"], fit["majority"], account["examples"], "the examples it was trained on")


def configuration_of(recipe: ElasticRecipe, vocabulary: int, classes: int) -> EncoderConfiguration:
    """Return the configuration of the encoder of a recipe."""
    return EncoderConfiguration(
        kind="elastic",
        layers=recipe.layers,
        heads=recipe.slices,
        width=recipe.width,
        ffn=recipe.ffn,
        vocabulary=vocabulary,
        positions=recipe.positions,
        classes=classes,
        norm="pre",
        norm_epsilon=1e-5,
        pooling="first" if recipe.pooling == "first" else "mean",
        head_activation=None,
        padding_token=PADDING,
    )


def _vocabulary(folder: TrainingFolder) -> bytes:
    (path,) = folder.vocabularies
    try:
        return read_bounded(path, MOST_MODEL_BYTES)
    except OSError as error:
        raise unusable(path, error) from None
