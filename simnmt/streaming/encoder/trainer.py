"""Train an elastic classifier on a task, in one or more sessions, and write its folder.

A batch holds examples of similar length; the seed and the epoch decide the order.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from simnmt.base.configuration import checked_dataclass
from simnmt.base.errors import describe_error
from simnmt.base.files import MOST_MODEL_BYTES, is_vacant, read_bounded, sole_writer, written_whole
from simnmt.base.random_streams import stream
from simnmt.nmt.devices import installed_versions, torch_device, torch_threads
from simnmt.nmt.training.folder import START_AGAIN, NotNegative, NotNegativeReal, defer_signals
from simnmt.profile.doubts import chance_level_message
from simnmt.streaming.encoder.encoder_configuration import EncoderConfiguration
from simnmt.streaming.encoder.encoder_folder import (
    ACCOUNT_FILE,
    STATE_FILE,
    load_state,
    read_json,
    save_encoder,
    save_state,
    unusable,
    write_json,
)
from simnmt.streaming.encoder.learner import ElasticLearner, ElasticRecipe
from simnmt.streaming.encoder.task import Task, shared_texts
from simnmt.streaming.encoder.tokenizer import PADDING, PIECES_FILE, Pieces, learn_pieces, padded
from simnmt.streaming.errors import StreamingError

_SPREAD = 4.0
"""Tokens by which lengths are blurred before sorting, so that a batch is another one each epoch."""


def epoch_batches(lengths: NDArray[np.int64], batch_tokens: int, *, seed: int, epoch: int) -> list[NDArray[np.int64]]:
    """Rows of each batch, at most `batch_tokens` with padding (a longer example is alone), in random order."""
    draw = stream(seed, 0, "elastic-batches", epoch)
    order = np.argsort(lengths + draw.random(len(lengths)) * _SPREAD, kind="stable")
    batches = in_order(lengths, order, batch_tokens)
    return [batches[index] for index in draw.permutation(len(batches))]


def in_order(lengths: NDArray[np.int64], order: NDArray[np.int64], batch_tokens: int) -> list[NDArray[np.int64]]:
    """Rows in `order`, cut into batches of at most `batch_tokens` with padding."""
    batches: list[NDArray[np.int64]] = []
    begin, longest = 0, 0
    for at, row in enumerate(order):
        longer = max(longest, int(lengths[row]))
        if at > begin and (at - begin + 1) * longer > batch_tokens:
            batches.append(order[begin:at])
            begin, longer = at, int(lengths[row])
        longest = longer
    return [*batches, order[begin:]]


def lengths_of(token_ids: Sequence[Sequence[int]]) -> NDArray[np.int64]:
    """Tokens of each example."""
    return np.array([len(tokens) for tokens in token_ids], np.int64)


SAVE_EVERY_S = 120.0
"""What a power cut costs at most; an interrupt costs nothing."""

Progress = Callable[[str, float | None], None]
"""Told what is being done and which share of it is done, None where nobody knows."""


@dataclass(slots=True)
class TrainingPosition:
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
class EncodedTask:
    """A task in tokens."""

    token_ids: Sequence[Sequence[int]]
    labels: NDArray[np.int64]
    lengths: NDArray[np.int64]

    @classmethod
    def of(cls, task: Task, pieces: Pieces, positions: int) -> EncodedTask:
        """Texts longer than `positions` are cut."""
        token_ids = pieces.encode(task.texts, positions)
        return cls(token_ids, task.labels, lengths_of(token_ids))

    def batch(self, rows: NDArray[np.int64]) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Token ids, mask and labels of these examples."""
        tokens, mask = padded([self.token_ids[row] for row in rows], PADDING)
        return tokens, mask, torch.from_numpy(self.labels[rows])


class TrainingSession:
    """Goes on from where a training stands, step by step."""

    def __init__(
        self,
        out: Path,
        identity: dict[str, Any],
        recipe: ElasticRecipe,
        learner: ElasticLearner,
        standing: TrainingPosition,
        examples: EncodedTask,
        dev: EncodedTask | None,
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
                with defer_signals():
                    self._step(batches, share)
                    if time.monotonic() - saved_s > SAVE_EVERY_S:
                        self._save()
                        saved_s = time.monotonic()
                self.tell(self._words(), share)
        except BaseException:
            if self.learner.whole:
                with defer_signals():
                    self._save()
            raise
        with defer_signals():
            self._save()

    def _batches(self) -> list[NDArray[np.int64]]:
        """Batches of the epoch that is under way. Raises `StreamingError` for a state that counts more of them."""
        recipe, standing = self.recipe, self.standing
        batches = epoch_batches(self.examples.lengths, recipe.batch_tokens, seed=recipe.seed, epoch=standing.epoch)
        if standing.batch >= len(batches):
            what = f"the state cannot be used: batch: {standing.batch:,} where an epoch has {len(batches):,} batches"
            raise StreamingError(what, path=self.out / STATE_FILE, remedy=START_AGAIN)
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

    def accuracy(self, task: EncodedTask) -> float:
        """Share of right answers of the mean weights."""
        right = 0
        for rows in in_order(task.lengths, np.argsort(task.lengths, kind="stable"), 4 * self.recipe.batch_tokens):
            tokens, mask, labels = task.batch(rows)
            right += int((self.learner.predicted(tokens, mask) == labels).sum())
        return right / len(task.labels)

    def _save(self) -> None:
        fields = {name: getattr(self.standing, name) for name in TrainingPosition.__slots__}
        save_state(self.out / STATE_FILE, {"identity": self.identity, "standing": fields}, self.learner.tensors())

    def _words(self) -> str:
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
    """Train on `task`, or go on with the training in `out`, until the recipe's end; returns its training.json.

    Only after the last step does `out` hold a model; whatever ends it earlier, the last whole step is kept. `dev` is looked at
    after each epoch and chooses nothing: the weights are the running mean at the end, whatever `dev` says of them.

    Raises `StreamingError`, also where `dev` is `task` itself, on which anything looks well learnt, and while another process
    trains in `out`; any other exception, an
    interrupt among them, passes through.
    """
    if dev is not None and dev.sha256 == task.sha256:
        raise StreamingError(
            "--dev: the very examples that are trained on", path=dev.path, remedy="give others, or leave it out"
        )
    tell = progress or (lambda stage, share: None)
    if len(set(task.labels.tolist())) < 2:
        what = f"every example is labelled {task.label_names[int(task.labels[0])]}: there is nothing to tell apart"
        raise StreamingError(what, path=task.path, remedy="give examples of two classes")
    where = torch_device(device)
    identity = {"recipe": recipe.as_json(), "task": task.sha256}
    _check(out, identity)  # refuses what cannot be used before a folder is made
    with sole_writer(out, StreamingError, "training"):
        return _train(task, out, recipe, dev, where, threads, tell, identity)


def _train(
    task: Task,
    out: Path,
    recipe: ElasticRecipe,
    dev: Task | None,
    where: torch.device,
    threads: int | None,
    tell: Progress,
    identity: dict[str, Any],
) -> dict[str, Any]:
    begun = _check(out, identity)
    with torch.random.fork_rng([where] if where.type == "cuda" else []), torch_threads(threads):
        if begun:
            pieces = Pieces(_vocabulary(out))
        else:
            tell("learning subwords", None)
            pieces = learn_pieces(task.texts, recipe.vocab)
            _begin(out, identity, pieces)
        configuration = configuration_of(recipe, pieces.size, len(task.label_names))
        learner, standing = ElasticLearner(configuration, recipe, where), TrainingPosition()
        if (out / STATE_FILE).exists():
            note, tensors = load_state(out / STATE_FILE)
            try:
                standing = checked_dataclass(TrainingPosition, note.get("standing"))
                learner.restore(tensors)
            except (TypeError, ValueError, RuntimeError) as error:
                what = f"the state cannot be used: {describe_error(error)}"
                raise StreamingError(what, path=out / STATE_FILE, remedy=START_AGAIN) from None
        examples = EncodedTask.of(task, pieces, recipe.positions)
        looked = None if dev is None else EncodedTask.of(dev, pieces, recipe.positions)
        sitting = TrainingSession(out, identity, recipe, learner, standing, examples, looked, tell)
        sitting.run()
        training: dict[str, Any] = {
            "steps": standing.step,
            "epochs": standing.epoch,
            "seconds": round(standing.seconds, 1),
            "curve": standing.curve,
        }
        account = {
            "schema_version": 1,
            **identity,
            "label_names": list(task.label_names),
            "examples": len(task),
            "parameters": sum(tensor.numel() for tensor in learner.model.parameters()),
            "vocabulary": pieces.size,
            "device": str(where),
            "threads": torch.get_num_threads(),
            "versions": installed_versions(("simnmt", "torch", "sentencepiece")),
            "training": training,
        }
        if dev is not None and looked is not None:
            account["dev"] = {
                "path": Path(dev.path).name,
                "sha256": dev.sha256,
                "examples": len(dev),
                "trained_on": shared_texts(dev, task),
                "majority": dev.majority,
                "accuracy": sitting.accuracy(looked),
            }
        else:
            training |= {"majority": task.majority, "accuracy": sitting.accuracy(examples)}
        save_encoder(out, learner.mean.cpu().exported(), account)
        return account


def chance_level(account: Mapping[str, Any]) -> str | None:
    """Return the warning of a training whose model is no better than the commonest class; None for a better one.

    Judged on the dev set of `account`, the content of training.json; without one, on the examples that were trained on.
    """
    dev = account.get("dev")
    if dev is not None:
        return chance_level_message(dev["accuracy"], dev["majority"], dev["examples"], dev["path"])
    fit = account["training"]
    return chance_level_message(fit["accuracy"], fit["majority"], account["examples"], "the examples it was trained on")


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


def _check(out: Path, identity: dict[str, Any]) -> bool:
    """Return whether training of this task and recipe began in `out`. Raises `StreamingError` if `out` holds anything else."""
    try:
        if out.exists() and not out.is_dir():
            raise StreamingError("not a folder", path=out, remedy="give another --out")
        if not out.is_dir() or is_vacant(out):
            return False
    except OSError as error:
        raise unusable(out, error) from None
    if not (out / ACCOUNT_FILE).is_file():
        raise StreamingError("holds something else than a training", path=out, remedy="give another --out")
    recorded = read_json(out / ACCOUNT_FILE)
    for name, now in [("task", identity["task"]), *identity["recipe"].items()]:
        was = recorded.get("task") if name == "task" else recorded.get("recipe", {}).get(name)
        if was != now:
            mismatch = "another task" if name == "task" else f"{name} {was}, not {now}"
            raise StreamingError(f"holds a training with {mismatch}", path=out, remedy="give the same again, or another --out")
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


def _vocabulary(out: Path) -> bytes:
    try:
        return read_bounded(out / PIECES_FILE, MOST_MODEL_BYTES)
    except OSError as error:
        raise unusable(out / PIECES_FILE, error) from None
