"""The one trainer, of translation models and encoders: its loop, its folder, and the save from which it goes on.

A task subclasses `Learner`, which says what a batch is and what its loss is. The random numbers of a step depend only on the
seed and the number of the step, so that a training in several sessions gives the weights of one in a single session.
"""

from __future__ import annotations

import json
import math
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from filelock import FileLock, Timeout
from numpy.typing import NDArray
from safetensors import SafetensorError
from torch import Tensor, nn

from simnmt.base.files import read_bounded, written_whole
from simnmt.base.random_streams import stream
from simnmt.nmt.checkpoint import TRAINING_FILE, own_tensors, read_tensors, write_tensors
from simnmt.nmt.devices import installed_versions, torch_device, torch_threads
from simnmt.nmt.errors import TrainingError, within_memory

STATE_FILE, LOCK_FILE = "state.safetensors", ".lock"
SAVE_EVERY_S = 120.0
"""Seconds of training between two saves, which is the most that whatever ends a session loses."""

Rows = NDArray[np.int64]
Tell = Callable[[str, float | None], None]
"""Called with the name of the present stage and the share of it that is done, None if unknown."""


@dataclass(frozen=True, slots=True)
class Budget:
    """Limits of a training, all its sessions together; the first that is reached ends it, None is no limit."""

    epochs: float | None = None
    steps: int | None = None
    minutes: float | None = None
    """Minutes of training and of measurements."""

    def __post_init__(self) -> None:
        for name, value in asdict(self).items():
            if value is not None and not (value >= 0 and math.isfinite(value)):
                raise TrainingError(f"--{name} {value}: not a length of time", remedy="give a number above 0")

    def used(self, *, epochs: float, steps: int, seconds: float) -> float:
        """Return the share that is used up, 1 or more at the end; 0 for a budget without limits."""
        spent = ((epochs, self.epochs), (steps, self.steps), (seconds / 60.0, self.minutes))
        return max((done / bound if bound else 1.0 for done, bound in spent if bound is not None), default=0.0)


DEFAULT_BUDGET = Budget(epochs=10.0)


@dataclass(slots=True)
class Progress:
    """What a training has done, all its sessions together."""

    steps: int = 0
    epochs: int = 0
    """Epochs completed."""
    batch: int = 0
    """Batches done of the current epoch."""
    seconds: float = 0.0
    examples: int = 0
    """Examples of all steps, repetitions included."""
    loss: float = 0.0
    """Sum of the losses of all steps since the last measurement."""
    curve: list[dict[str, float]] = field(default_factory=list)
    """A point per measurement: step, epoch, seconds, mean loss, and what the task measures."""
    sessions: int = 0

    def as_json(self) -> dict[str, Any]:
        """Return every field, and the examples per second."""
        return asdict(self) | {"examples_per_s": self.examples / self.seconds if self.seconds else None}

    def __str__(self) -> str:
        last = self.curve[-1] if self.curve else {}
        measured = "".join(f", {name} {value:.3g}" for name, value in last.items() if name.startswith("dev_"))
        return f"epoch {self.epochs + 1}, step {self.steps:,}{measured}"


class Learner(ABC):
    """A model, its optimiser and its examples."""

    look_every: int | None = None
    """Steps between two measurements; None for one after each epoch."""

    def __init__(
        self, model: nn.Module, optimizer: torch.optim.Optimizer, device: torch.device, seed: int, clip_norm: float = 1.0
    ) -> None:
        """`clip_norm`: largest norm of the gradient, to which longer ones are scaled."""
        self.model, self.optimizer, self.device, self.seed, self.clip_norm = model, optimizer, device, seed, clip_norm
        self.models = {"model": model}
        """The models whose weights are saved."""

    @abstractmethod
    def batches(self, epoch: int) -> list[Rows]:
        """Return the rows of each batch of an epoch."""

    @abstractmethod
    def loss(self, rows: Rows, draw: np.random.Generator) -> Tensor:
        """Return the loss of a batch, which is minimised; `draw`: random numbers of the step."""

    @abstractmethod
    def rates(self, step: int, share: float) -> Sequence[float]:
        """Return the learning rate of each group of parameters; `share`: share of the budget that is used up."""

    @abstractmethod
    def look(self, progress: Progress, folder: Path) -> dict[str, float]:
        """Return what is measured on the development part; may keep weights in the folder."""

    @abstractmethod
    def stepped(self, step: int) -> None:
        """Follow a step, such as by limiting the weights."""

    def step(self, rows: Rows, step: int, share: float = 0.0) -> float:
        """Train on one batch as step number `step`, from 1; return its loss.

        Raises `TrainingError` if the loss or its gradient is not finite, before the weights change, and `OutOfMemory`.
        """
        draw = stream(self.seed, 0, "training-step", step)
        # On the CPU its own generator alone: torch.manual_seed also notes the stack of its caller, which takes half a ms.
        (torch.default_generator if self.device.type == "cpu" else torch).manual_seed(int(draw.integers(2**62)))
        self.model.train()
        value, norm = within_memory(str(self.device), partial(self._gradient, rows, draw))
        check_finite(value + norm, step)
        for group, rate in zip(self.optimizer.param_groups, self.rates(step, share), strict=True):
            group["lr"] = rate
        with torch.no_grad():
            within_memory(str(self.device), self.optimizer.step)
            self.stepped(step)
        return value

    def _gradient(self, rows: Rows, draw: np.random.Generator) -> tuple[float, float]:
        loss = self.loss(rows, draw)
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]
        norm = nn.utils.clip_grad_norm_(self.model.parameters(), self.clip_norm)
        value, slope = torch.stack([loss.detach(), norm]).tolist()  # one wait for the device
        return value, slope

    def save(self, path: Path, progress: Progress) -> None:
        """Write everything on which the next step depends; raises `OSError` and `SafetensorError`."""
        parts = {name: own_tensors(model) for name, model in self.models.items()} | self.optimizer.state_dict()["state"]
        tensors = {f"{part}/{key}": tensor for part, tensors in parts.items() for key, tensor in tensors.items()}
        write_tensors(path, tensors, {"progress": json.dumps(asdict(progress))})

    def restore(self, path: Path) -> Progress:
        """Take over a result of `save`; raises `TrainingError` for a file that is damaged or of another model."""
        parts: dict[str, dict[str, Tensor]] = {}
        try:
            tensors, notes = read_tensors(path, copies=True)  # otherwise the optimiser would write into the mapped file
            for name, tensor in tensors.items():
                part, _, key = name.partition("/")
                parts.setdefault(part, {})[key] = tensor
            for name, model in self.models.items():
                model.load_state_dict(parts.pop(name), strict=False)  # tied embeddings are saved once
            moments = {int(index): of_parameter for index, of_parameter in parts.items()}
            self.optimizer.load_state_dict(self.optimizer.state_dict() | {"state": moments})
            return Progress(**json.loads(notes["progress"]))
        except (OSError, RuntimeError, ValueError, KeyError, TypeError):
            raise TrainingError("damaged, or of another training", path=path, remedy="start again in another folder") from None


def check_finite(loss: float, step: int) -> None:
    """Raise `TrainingError` unless the loss of a step is a finite number."""
    if not math.isfinite(loss):
        raise TrainingError(f"the loss of step {step:,} is not a number", remedy="start again with a smaller --rate")


def train(learner: Learner, folder: Path, account: Mapping[str, Any], budget: Budget, tell: Tell) -> Progress:
    """Take steps until the budget is used up, from the last save if there is one; save every `SAVE_EVERY_S` and at the end.

    `folder`: one of `training_folder`; training.json in it holds `account` and the progress.
    """
    progress = learner.restore(folder / STATE_FILE) if (folder / STATE_FILE).exists() else Progress()
    progress.sessions += 1
    saved_s, epoch, batches = time.monotonic(), -1, list[Rows]()

    def save() -> None:
        learner.save(folder / STATE_FILE, progress)
        write_account(folder, {**account, "training": progress.as_json()})

    while True:
        if epoch != progress.epochs:
            epoch, batches = progress.epochs, learner.batches(progress.epochs)
        done = progress.epochs + progress.batch / len(batches)
        share = budget.used(epochs=done, steps=progress.steps, seconds=progress.seconds)
        looked_at = int(progress.curve[-1]["step"]) if progress.curve else -1
        due = progress.batch == 0 if learner.look_every is None else progress.steps % learner.look_every == 0
        if looked_at != progress.steps and (share >= 1.0 or (due and progress.steps)):
            begun_s, losses = time.perf_counter(), progress.steps - max(looked_at, 0)
            measured = learner.look(progress, folder)
            progress.seconds += time.perf_counter() - begun_s
            mean = {"train_loss": progress.loss / losses} if losses else {}
            at = {"step": progress.steps, "epoch": progress.epochs, "seconds": round(progress.seconds, 3)}
            progress.curve.append({**at, **mean, **measured})
            progress.loss = 0.0
            save()
        if share >= 1.0:
            return progress
        begun_s, rows = time.perf_counter(), batches[progress.batch]
        progress.loss += learner.step(rows, progress.steps + 1, share)
        progress.steps, progress.batch = progress.steps + 1, progress.batch + 1
        progress.examples += len(rows)
        progress.seconds += time.perf_counter() - begun_s
        if progress.batch == len(batches):
            progress.epochs, progress.batch = progress.epochs + 1, 0
        if time.monotonic() - saved_s > SAVE_EVERY_S:
            save()
            saved_s = time.monotonic()
        tell(str(progress), share)


@contextmanager
def training_folder(
    folder: Path, account: Mapping[str, Any], learn: Callable[[], Mapping[str, bytes]], device: str, threads: int | None
) -> Iterator[torch.device]:
    """Lock a folder for a training; yield torch's device, and restore random generators and threads of torch at the end.

    `account`, `learn`: training.json and the maker of the vocabularies of a new training, which are written before the block.
    Raises `TrainingError` for a folder that cannot be used, or is locked by another process.
    """
    files = None if _goes_on(folder, account) else learn()
    where, lock = torch_device(device), FileLock(folder / LOCK_FILE, timeout=0)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock.acquire()
    except Timeout:
        what = "another training is writing this folder"
        raise TrainingError(what, path=folder, remedy="let it end, or choose another --out") from None
    except (OSError, NotImplementedError) as error:  # the latter from a file system without locks
        raise _unusable(folder, error) from None
    try:
        with torch.random.fork_rng([where] if where.type == "cuda" else []), torch_threads(threads):
            if files is not None:
                write_account(folder, account)  # first: it marks the folder as that of a training
                for name, content in files.items():
                    with written_whole(folder / name) as path:
                        path.write_bytes(content)
            yield where
    except (OSError, SafetensorError) as error:
        raise _unusable(folder, error) from None
    finally:
        lock.release()


def _goes_on(folder: Path, account: Mapping[str, Any]) -> bool:
    """Return whether a folder has a save to go on from.

    Raises `TrainingError` for a folder that holds something else, or a training with another recipe or other examples.
    """
    if not folder.exists() or (folder.is_dir() and not any(folder.glob("[!.]*"))):  # a killed start leaves hidden names
        return False
    if not (folder / TRAINING_FILE).is_file():
        raise TrainingError("holds something else than a training", path=folder, remedy="give another --out")
    try:
        recorded = json.loads(read_bounded(folder / TRAINING_FILE))
        before, now = ({"examples": manifest["sha256"], **manifest["recipe"]} for manifest in (recorded, account))
    except (OSError, ValueError, RecursionError, TypeError, KeyError):
        what = "no account of a training"
        raise TrainingError(what, path=folder / TRAINING_FILE, remedy="start again in another folder") from None
    if not (folder / STATE_FILE).exists():
        if "training" in recorded:
            raise TrainingError(f"a trained model without {STATE_FILE} to go on from", path=folder, remedy="give another --out")
        return False
    if changed := [name for name in now if before.get(name) != now[name]]:
        what = f"its training differs in: {', '.join(changed)}"
        raise TrainingError(what, path=folder, remedy="give the same again, or another --out")
    return True


def _unusable(path: Path, error: Exception) -> TrainingError:
    what = f"cannot be used: {getattr(error, 'strerror', None) or error}"
    return TrainingError(what, path=path, remedy="make room, or give another --out")


def write_account(folder: Path, account: Mapping[str, Any]) -> None:
    """Write training.json, whole; raises `OSError`."""
    with written_whole(folder / TRAINING_FILE) as path:
        path.write_text(json.dumps(account, indent=1, allow_nan=False, ensure_ascii=False) + "\n", encoding="utf-8")


def machine_facts(where: torch.device, *packages: str) -> dict[str, Any]:
    """Return the facts on machine and libraries for training.json."""
    versions = installed_versions(("simnmt", "torch", "sentencepiece", *packages))
    return {"device": str(where), "threads": torch.get_num_threads(), "versions": versions}


def epoch_batches(
    lengths: NDArray[np.int64], batch_tokens: int, *, seed: int, epoch: int, by: Sequence[NDArray[np.int64]] = ()
) -> list[Rows]:
    """Return the rows of each batch of an epoch, in random order; each row occurs once.

    A batch has at most `batch_tokens` with padding, or one row. Rows of equal length are in random order. `by`: keys to sort
    by, the last one first; by default the lengths.
    """
    draw = stream(seed, epoch, "batches")
    order = draw.permutation(len(lengths))
    order = order[np.lexsort([key[order] for key in by or (lengths,)])]
    batches = batch_slices(lengths[order], batch_tokens)
    return [order[batches[index]] for index in draw.permutation(len(batches))]


def batch_slices(lengths: NDArray[np.int64], batch_tokens: int) -> list[slice]:
    """Cut lengths into runs of at most `batch_tokens` tokens when padded; a longer row makes a run alone."""
    runs: list[slice] = []
    start = longest = 0
    for index, length in enumerate(lengths.tolist()):
        longest = max(longest, length)
        if index > start and longest * (index + 1 - start) > batch_tokens:
            runs.append(slice(start, index))
            start, longest = index, length
    return [*runs, slice(start, len(lengths))]
