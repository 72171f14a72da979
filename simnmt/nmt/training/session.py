"""A training session of any kind of model: its loop, its folder, and the saved state from which it resumes.

A task subclasses `TrainingSession` and defines the training on one batch.
"""

from __future__ import annotations

import json
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any, Generic, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field
from safetensors import SafetensorError
from torch import Tensor, nn

from simnmt.base.configuration import checked_dataclass
from simnmt.base.errors import describe_error
from simnmt.base.files import read_bounded, sole_writer, written_whole
from simnmt.nmt.architecture import architecture_of
from simnmt.nmt.checkpoint import TRAINING_FILE, check_tensors, own_tensors, read_tensors, write_tensors
from simnmt.nmt.devices import installed_versions, torch_device, torch_threads
from simnmt.nmt.errors import TrainingError
from simnmt.nmt.training.recipe import CorpusFiles, Recipe

START_AGAIN = "start again in another folder"


def check_identity(recorded: Mapping[str, Any], wanted: Mapping[str, Any], folder: Path) -> None:
    """Raise `TrainingError` if a training would be resumed with another recipe or another text."""
    for name, was, now in _differences(recorded, wanted):
        what = f"its training has {name} {_shorten(was)}, this one {_shorten(now)}"
        raise TrainingError(what, path=folder, remedy="give the same again, or another --out")


def _differences(one: Mapping[str, Any], other: Mapping[str, Any]) -> list[tuple[str, Any, Any]]:
    differences: list[tuple[str, Any, Any]] = []
    for name in [*one, *(name for name in other if name not in one)]:
        was, now = one.get(name), other.get(name)
        if isinstance(was, dict) and isinstance(now, dict):
            differences += [(f"{name}.{inner}", old, new) for inner, old, new in _differences(was, now)]
        elif was != now:
            differences.append((name, was, now))
    return differences


def _shorten(value: Any) -> str:
    text = str(value)
    return text if len(text) <= 24 else text[:12] + "..."


STATE_FILE = "state.safetensors"


class TrainingFolder:
    """A folder that is missing, empty, or contains a training; raises `TrainingError` for any other."""

    def __init__(self, path: Path, *vocabularies: str) -> None:
        """`vocabularies`: names of the sentencepiece models' files."""
        self.path = path
        self.state = path / STATE_FILE
        self.account = path / TRAINING_FILE
        self.vocabularies = [path / name for name in vocabularies]
        try:
            if path.exists() and not path.is_dir():
                raise TrainingError("not a folder", path=path, remedy="give another --out")
            # A killed start leaves a partial file, whose name begins with a dot.
            if path.is_dir() and any(path.glob("[!.]*")) and not self.account.is_file():
                raise TrainingError("holds something else than a training", path=path, remedy="give another --out")
            if self.account.is_file() and not self.begun and "training" in read_account(path):
                what = f"holds a trained model, but no {STATE_FILE} to go on from"
                raise TrainingError(what, path=path, remedy="give another --out")
        except OSError as error:
            raise _unusable(path, error) from None

    @property
    def begun(self) -> bool:
        """Whether there is a state to resume from; otherwise the folder has no weights yet, and its files may be replaced."""
        return self.state.exists()

    def refuse_other(self, identity: Mapping[str, Any]) -> None:
        """Raise `TrainingError` if the folder's training has another recipe or text."""
        if self.begun:
            recorded = read_account(self.path)
            check_identity({name: recorded.get(name) for name in identity}, identity, self.path)

    def begin(self, account: Mapping[str, Any], vocabularies: Sequence[bytes]) -> None:
        """Write the account and the sentencepiece models of a new training."""
        # First the account, which marks the folder as that of a training if an interrupt follows.
        self.write_account(account)
        for path, model in zip(self.vocabularies, vocabularies, strict=True):
            self._write(path, model)

    def write_account(self, account: Mapping[str, Any]) -> None:
        """Write training.json, whole."""
        self._write(self.account, (json.dumps(account, indent=1, allow_nan=False, ensure_ascii=False) + "\n").encode())

    def _write(self, path: Path, content: bytes) -> None:
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            with written_whole(path) as partial:
                partial.write_bytes(content)
        except OSError as error:
            raise _unusable(path, error) from None


def read_account(folder: Path) -> dict[str, Any]:
    """Read the training.json of a folder; raises `TrainingError` if it is missing or not a JSON object."""
    path = folder / TRAINING_FILE
    try:
        account = json.loads(read_bounded(path))
    except FileNotFoundError:
        raise TrainingError("no training here", path=folder, remedy="give the --out of an earlier training") from None
    except OSError as error:
        raise _unusable(path, error) from None
    except (ValueError, RecursionError):
        account = None
    if not isinstance(account, dict):
        raise TrainingError("no account of a training", path=path, remedy="start again in another folder")
    return account


def _unusable(path: Path, error: OSError) -> TrainingError:
    return TrainingError(f"cannot be used: {error.strerror or error}", path=path, remedy="give another --out")


def recorded(folder: Path) -> tuple[CorpusFiles, Recipe]:
    """Return the text and the recipe of the training in a folder; raises `TrainingError` if there is none."""
    account = read_account(folder)
    try:
        text, fields = account["text"], dict(account["recipe"])
        keys = text["keys"]
        where = CorpusFiles(
            Path(text["src"]), None if text["tgt"] is None else Path(text["tgt"]), tuple(keys) if keys else None
        )
        return where, Recipe(architecture_of(fields.pop("architecture")), **fields)
    except (KeyError, TypeError, AttributeError):
        path = folder / TRAINING_FILE
        raise TrainingError("no account of a training", path=path, remedy="start again in another folder") from None


SAVE_EVERY_S = 120.0
"""Seconds of training between two saves, which is the most that whatever ends a session loses."""

Progress = Callable[[str, float | None], None]
"""Called with the name of the present stage and the share of it that is done, None if unknown."""


@contextmanager
def training_place(folder: Path, device: str, threads: int | None) -> Iterator[torch.device]:
    """Lock the folder, and restore torch's random generators and threads when the training ends.

    Raises `TrainingError` if another process trains in the folder.
    """
    where = torch_device(device)
    generators = torch.random.fork_rng([where] if where.type == "cuda" else [])
    with sole_writer(folder, TrainingError, "training"), generators, torch_threads(threads):
        yield where


def machine_facts(where: torch.device, *packages: str) -> dict[str, Any]:
    """Return the facts on machine and libraries for training.json."""
    versions = installed_versions(("simnmt", "torch", "sentencepiece", *packages))
    return {"device": str(where), "threads": torch.get_num_threads(), "versions": versions}


_MOMENTS = ("step", "exp_avg", "exp_avg_sq")
"""Adam's names of its state."""


def seed_step(device: torch.device, draw: np.random.Generator) -> None:
    """Seed torch's random numbers on this device.

    On the CPU its own generator alone: `torch.manual_seed` also notes the seed, with the stack of its caller, for a GPU that
    may be used later, which takes half a millisecond.
    """
    (torch.default_generator if device.type == "cpu" else torch).manual_seed(int(draw.integers(2**62)))


class AdamLearner:
    """A model trained by Adam, and other models whose weights the training keeps as well."""

    def __init__(self, models: Mapping[str, nn.Module], optimizer: torch.optim.Optimizer) -> None:
        """`models`: by the prefix of their tensors' names in the state; the first one is trained."""
        self._models, self.optimizer = models, optimizer

    @property
    def _parameters(self) -> dict[str, nn.Parameter]:
        return dict(next(iter(self._models.values())).named_parameters())

    def tensors(self) -> dict[str, Tensor]:
        """Return weights and Adam's moments by name, on which the next step depends; no two share memory."""
        kept = {f"{kind}.{name}": tensor for kind, model in self._models.items() for name, tensor in own_tensors(model).items()}
        for name, parameter in self._parameters.items():
            kept |= {f"{kind}.{name}": moment for kind, moment in self.optimizer.state.get(parameter, {}).items()}
        return kept

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        """Restore a result of `tensors`; raises `ValueError` for the first tensor that does not fit."""
        parameters = self._parameters
        # A parameter that no step has changed yet has no moments.
        learnt = [name for name in parameters if any(f"{kind}.{name}" in tensors for kind in _MOMENTS)]
        shapes: dict[str, Sequence[int]] = {}
        for kind, model in self._models.items():
            shapes |= {f"{kind}.{name}": tensor.shape for name, tensor in own_tensors(model).items()}
        for kind in _MOMENTS:
            shapes |= {f"{kind}.{name}": () if kind == "step" else parameters[name].shape for name in learnt}
        check_tensors(tensors, shapes)
        for kind, model in self._models.items():
            model.load_state_dict({name: tensors[f"{kind}.{name}"] for name in own_tensors(model)}, strict=False)
        groups = self.optimizer.state_dict()["param_groups"]
        numbers = {
            id(one): at for at, one in enumerate(one for group in self.optimizer.param_groups for one in group["params"])
        }
        # Copies: otherwise the optimiser would write into the given tensors.
        state = {
            numbers[id(parameters[name])]: {kind: tensors[f"{kind}.{name}"].clone() for kind in _MOMENTS} for name in learnt
        }
        self.optimizer.load_state_dict({"state": state, "param_groups": groups})


MOST_COUNT = 10**15
"""Largest value of any counter, far beyond every training; sums and rates of such counts are still finite."""
NotNegative = Annotated[int, Field(ge=0, le=MOST_COUNT)]
NotNegativeReal = Annotated[float, Field(ge=0.0, le=MOST_COUNT)]


@dataclass(slots=True)
class TrainingState:
    """The progress of a training, all its sessions together."""

    step: NotNegative = 0
    epoch: NotNegative = 0
    """Epochs completed."""
    batch: NotNegative = 0
    """Batches done of the current epoch."""
    seconds: NotNegativeReal = 0.0
    """Seconds of steps and of measurements of the development part."""


StateT = TypeVar("StateT", bound=TrainingState)
LearnerT = TypeVar("LearnerT", bound=AdamLearner)

STATE_VERSION = 1
_NOTE = "simnmt"
"""The key of our notes in the file's header."""


class TrainingSession(ABC, Generic[LearnerT, StateT]):
    """A session that starts or resumes a training and takes steps until its budget is used up."""

    def __init__(
        self, folder: TrainingFolder, identity: Mapping[str, Any], learner: LearnerT, standing: StateT, tell: Progress
    ) -> None:
        """Start the training, or resume it from the folder's state if there is one.

        `identity`: facts that must be equal in all sessions of a training; `standing`: the state of a new training. Raises
        `TrainingError` for a state that is damaged or of another training, naming the difference.
        """
        self.folder, self.identity, self.learner, self.standing, self.tell = folder, identity, learner, standing, tell
        if folder.begun:
            self.standing = self._load(type(standing))

    def run(self) -> None:
        """Take steps until the budget is used up, and save every `SAVE_EVERY_S` and at the end."""
        standing, saved_s = self.standing, time.monotonic()
        epoch, batches = standing.epoch, self._checked_batches()
        while (share := self.share(len(batches))) < 1.0:
            if epoch != standing.epoch:
                epoch, batches = standing.epoch, self._checked_batches()
                continue
            self.look_if_due()
            self._step(batches, share)
            if time.monotonic() - saved_s > SAVE_EVERY_S:
                self.save()
                saved_s = time.monotonic()
            self.tell(self.message(), share)
        self.look_at_end()
        self.save()

    @abstractmethod
    def batches(self) -> list[NDArray[np.int64]]:
        """Return the rows of each batch of the current epoch."""

    @abstractmethod
    def share(self, batches: int) -> float:
        """Return the share of the budget that is used up; `batches`: batches of the current epoch."""

    @abstractmethod
    def learn(self, rows: NDArray[np.int64], share: float) -> None:
        """Train on one batch, as step number `standing.step + 1`, and count its content."""

    @abstractmethod
    def message(self) -> str:
        """Describe the progress in one line."""

    def look_if_due(self) -> None:
        """Measure the development part before a step, if it is due."""

    def look_at_end(self) -> None:
        """Measure the development part when the budget is used up."""

    def end_epoch(self) -> None:
        """Make the measurements at the end of an epoch."""

    def save(self) -> None:
        """Write everything on which the next step depends. Raises `TrainingError` if that fails."""
        note = {"version": STATE_VERSION, "identity": dict(self.identity), "standing": asdict(self.standing)}
        try:
            write_tensors(self.folder.state, self.learner.tensors(), {_NOTE: json.dumps(note)})
        except (OSError, SafetensorError) as error:
            reason = getattr(error, "strerror", None) or describe_error(error, most=100)
            remedy = "make room; the last state is still there"
            raise TrainingError(f"cannot be written: {reason}", path=self.folder.state, remedy=remedy) from None

    def _load(self, kind: type[StateT]) -> StateT:
        path = self.folder.state
        try:
            # Copies: otherwise the optimiser would write into the file's mapped memory.
            tensors, notes = read_tensors(path, copies=True)
            note = json.loads(notes[_NOTE])
            version, recorded, standing = note["version"], dict(note["identity"]), note["standing"]
        except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
            reason = getattr(error, "strerror", None) or "damaged, or not a state of a training"
            raise TrainingError(f"the state cannot be read: {reason}", path=path, remedy=START_AGAIN) from None
        if version != STATE_VERSION:
            raise TrainingError(f"a state of version {version}, not {STATE_VERSION}", path=path, remedy=START_AGAIN)
        check_identity(recorded, self.identity, path.parent)
        try:
            done = checked_dataclass(kind, standing)
            self.learner.restore(tensors)
            return done
        except (TypeError, ValueError, RuntimeError) as error:
            raise TrainingError(f"the state cannot be used: {describe_error(error)}", path=path, remedy=START_AGAIN) from None

    def _checked_batches(self) -> list[NDArray[np.int64]]:
        """Return `batches`. Raises `TrainingError` for a state that counts more of them."""
        batches = self.batches()
        if self.standing.batch >= len(batches):
            what = f"the state cannot be used: batch: {self.standing.batch:,} where an epoch has {len(batches):,} batches"
            raise TrainingError(what, path=self.folder.state, remedy=START_AGAIN)
        return batches

    def _step(self, batches: list[NDArray[np.int64]], share: float) -> None:
        standing, begun_s = self.standing, time.perf_counter()
        self.learn(batches[standing.batch], share)
        standing.step += 1
        standing.batch += 1
        standing.seconds += time.perf_counter() - begun_s
        if standing.batch == len(batches):
            standing.epoch, standing.batch = standing.epoch + 1, 0
            self.end_epoch()
