"""From a task to a folder with an elastic classifier, its vocabulary and an account of how it came about."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import torch

from simnmt.configuration import checked_dataclass
from simnmt.costs.doubts import chance_level_message
from simnmt.elastic.encoder_weights import EncoderConfiguration
from simnmt.elastic.errors import ElasticError
from simnmt.elastic.task import Task, shared_texts
from simnmt.elastic.tokenizer import PADDING, PIECES_FILE, Pieces, learn_pieces
from simnmt.elastic.training.folder import (
    ACCOUNT_FILE,
    STATE_FILE,
    load_state,
    read_json,
    save_encoder,
    unusable,
    write_json,
)
from simnmt.elastic.training.learner import ElasticLearner
from simnmt.elastic.training.recipe import ElasticRecipe
from simnmt.elastic.training.sitting import Encoded, Progress, Sitting, Standing
from simnmt.errors import describe_error
from simnmt.files import MOST_MODEL_BYTES, is_vacant, read_bounded, sole_writer, written_whole
from simnmt.nmt.devices import torch_device
from simnmt.nmt.training.state import START_AGAIN


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

    Raises `ElasticError`, also where `dev` is `task` itself, on which anything looks well learnt, and while another process
    trains in `out`; any other exception, an
    interrupt among them, passes through.
    """
    if dev is not None and dev.sha256 == task.sha256:
        raise ElasticError("--dev: the very examples that are trained on", path=dev.path, remedy="give others, or leave it out")
    tell = progress or (lambda stage, share: None)
    if len(set(task.labels.tolist())) < 2:
        what = f"every example is labelled {task.label_names[int(task.labels[0])]}: there is nothing to tell apart"
        raise ElasticError(what, path=task.path, remedy="give examples of two classes")
    where = torch_device(device)
    identity = {"recipe": recipe.as_json(), "task": task.sha256}
    _check(out, identity)  # refuses what cannot be used before a folder is made
    with sole_writer(out, ElasticError, "training"):
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
    with torch.random.fork_rng([where] if where.type == "cuda" else []), _threads(threads):
        if begun:
            pieces = Pieces(_vocabulary(out))
        else:
            tell("learning subwords", None)
            pieces = learn_pieces(task.texts, recipe.vocab)
            _begin(out, identity, pieces)
        configuration = configuration_of(recipe, pieces.size, len(task.label_names))
        learner, standing = ElasticLearner(configuration, recipe, where), Standing()
        if (out / STATE_FILE).exists():
            note, tensors = load_state(out / STATE_FILE)
            try:
                standing = checked_dataclass(Standing, note.get("standing"))
                learner.restore(tensors)
            except (TypeError, ValueError, RuntimeError) as error:
                what = f"the state cannot be used: {describe_error(error)}"
                raise ElasticError(what, path=out / STATE_FILE, remedy=START_AGAIN) from None
        examples = Encoded.of(task, pieces, recipe.positions)
        looked = None if dev is None else Encoded.of(dev, pieces, recipe.positions)
        sitting = Sitting(out, identity, recipe, learner, standing, examples, looked, tell)
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
            "versions": _versions(),
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
    """Whether a training of this task and recipe has begun in `out`; raises `ElasticError` where `out` holds anything else."""
    try:
        if out.exists() and not out.is_dir():
            raise ElasticError("not a folder", path=out, remedy="give another --out")
        if not out.is_dir() or is_vacant(out):
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


def _vocabulary(out: Path) -> bytes:
    try:
        return read_bounded(out / PIECES_FILE, MOST_MODEL_BYTES)
    except OSError as error:
        raise unusable(out / PIECES_FILE, error) from None


@contextmanager
def _threads(number: int | None) -> Iterator[None]:
    before = torch.get_num_threads()
    if number is not None:
        torch.set_num_threads(number)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _versions() -> dict[str, str]:
    found: dict[str, str] = {}
    for name in ("simnmt", "torch", "sentencepiece"):
        with suppress(importlib.metadata.PackageNotFoundError):  # a checkout that is not installed
            found[name] = importlib.metadata.version(name)
    return found
