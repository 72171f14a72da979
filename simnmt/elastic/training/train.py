"""From a task to a folder with an elastic classifier, its vocabulary and an account of how it came about."""

from __future__ import annotations

import importlib.metadata
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from simnmt.elastic.encoder_weights import EncoderConfiguration
from simnmt.elastic.errors import ElasticError
from simnmt.elastic.task import Task
from simnmt.elastic.tokenizer import PADDING, PIECES_FILE, Pieces, learn_pieces, padded
from simnmt.elastic.training.batches import epoch_batches, in_order, lengths_of
from simnmt.elastic.training.folder import (
    ACCOUNT_FILE,
    STATE_FILE,
    load_state,
    parameters,
    read_json,
    save_encoder,
    save_state,
    unusable,
    write_json,
)
from simnmt.elastic.training.learner import ElasticLearner
from simnmt.elastic.training.recipe import ElasticRecipe
from simnmt.files import written_whole
from simnmt.nmt.training.interrupts import held_back

SAVE_EVERY_S = 120.0
"""What a power cut costs at most; an interrupt costs nothing."""

Progress = Callable[[str, float | None], None]
"""Told what is being done and which share of it is done, None where nobody knows."""


@dataclass(slots=True)
class Standing:
    """How far a training is, all sittings together."""

    step: int = 0
    epoch: int = 0
    """Whole ones."""
    batch: int = 0
    """Batches done of the epoch under way."""
    seconds: float = 0.0
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


def train(
    task: Task,
    out: Path,
    recipe: ElasticRecipe,
    *,
    dev: Task | None = None,
    threads: int | None = None,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Train on `task`, or go on with the training in `out`, until the recipe's end; returns its training.json.

    Only after the last step does `out` hold a model; whatever ends it earlier, the last whole step is kept. `dev` is looked at
    after each epoch and chooses nothing: the weights are the running mean at the end, whatever `dev` says of them.

    Raises `ElasticError`; any other exception, an interrupt among them, passes through.
    """
    tell = progress or (lambda stage, share: None)
    identity = {"recipe": recipe.as_json(), "task": task.sha256}
    begun = _check(out, identity)
    with torch.random.fork_rng([]), _threads(threads):
        if begun:
            pieces = Pieces((out / PIECES_FILE).read_bytes())
        else:
            tell("learning subwords", None)
            pieces = learn_pieces(task.texts, recipe.vocab)
            _begin(out, identity, pieces)
        configuration = configuration_of(recipe, pieces.size, len(task.label_names))
        learner, standing = ElasticLearner(configuration, recipe), Standing()
        if (out / STATE_FILE).exists():
            note, tensors = load_state(out / STATE_FILE)
            try:
                learner.restore(tensors)
                standing = Standing(**note["standing"])
            except (KeyError, TypeError, RuntimeError):
                remedy = "start again in another folder"
                raise ElasticError("the state does not fit the model", path=out / STATE_FILE, remedy=remedy) from None
        examples = Encoded.of(task, pieces, recipe.positions)
        looked = None if dev is None else Encoded.of(dev, pieces, recipe.positions)
        sitting = _Sitting(out, identity, recipe, learner, standing, examples, looked, tell)
        sitting.run()
        account = {
            "schema_version": 1,
            **identity,
            "label_names": list(task.label_names),
            "examples": len(task),
            "parameters": parameters(learner.model),
            "vocabulary": pieces.size,
            "threads": torch.get_num_threads(),
            "versions": {name: importlib.metadata.version(name) for name in ("simnmt", "torch", "sentencepiece")},
            "training": {
                "steps": standing.step,
                "epochs": standing.epoch,
                "seconds": round(standing.seconds, 1),
                "curve": standing.curve,
            },
        }
        if dev is not None and looked is not None:
            account["dev"] = {
                "path": Path(dev.path).name,
                "sha256": dev.sha256,
                "examples": len(dev),
                "majority": dev.majority,
                "accuracy": sitting.accuracy(looked),
            }
        save_encoder(out, learner.mean.exported(), account)
        return account


def configuration_of(recipe: ElasticRecipe, vocabulary: int, classes: int) -> EncoderConfiguration:
    """What the encoder's forward pass depends on."""
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


class _Sitting:
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
        standing, recipe, saved_s = self.standing, self.recipe, time.monotonic()
        batches, epoch = list[NDArray[np.int64]](), -1
        try:
            while True:
                if epoch != standing.epoch:
                    epoch = standing.epoch
                    batches = epoch_batches(self.examples.lengths, recipe.batch_tokens, seed=recipe.seed, epoch=epoch)
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


def _check(out: Path, identity: dict[str, Any]) -> bool:
    """Whether a training of this task and recipe has begun in `out`; raises `ElasticError` where `out` holds anything else."""
    try:
        if out.exists() and not out.is_dir():
            raise ElasticError("not a folder", path=out, remedy="give another --out")
        if not out.is_dir() or not any(out.iterdir()):
            return False
    except OSError as error:
        raise unusable(out, error) from None
    if not (out / ACCOUNT_FILE).is_file():
        raise ElasticError("holds something else than a training", path=out, remedy="give another --out")
    recorded = read_json(out / ACCOUNT_FILE)
    for name, now in [("task", identity["task"]), *identity["recipe"].items()]:
        was = recorded.get("task") if name == "task" else recorded.get("recipe", {}).get(name)
        if was != now:
            said = "another task" if name == "task" else f"{name} {was}, not {now}"
            raise ElasticError(f"holds a training with {said}", path=out, remedy="give the same again, or another --out")
    return (out / PIECES_FILE).is_file()


def _begin(out: Path, identity: dict[str, Any], pieces: Pieces) -> None:
    try:
        out.mkdir(parents=True, exist_ok=True)
        # First the account, by which the folder is known for a training should what follows be cut short.
        write_json(out / ACCOUNT_FILE, {"schema_version": 1, **identity})
        with written_whole(out / PIECES_FILE) as partial:
            partial.write_bytes(pieces.files[PIECES_FILE])
    except OSError as error:
        raise unusable(out, error) from None


@contextmanager
def _threads(number: int | None) -> Iterator[None]:
    before = torch.get_num_threads()
    if number is not None:
        torch.set_num_threads(number)
    try:
        yield
    finally:
        torch.set_num_threads(before)
