"""The folder of a training: checkpoint, vocabularies, training.json, and the state from which it resumes exactly.

`defer_signals` keeps interrupts waiting while weights change or files are written, so that only whole steps are kept.
"""

from __future__ import annotations

import json
import signal
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import FrameType
from typing import Annotated, Any

from pydantic import Field
from safetensors import SafetensorError

from simnmt.base.configuration import checked_dataclass
from simnmt.base.errors import describe_error
from simnmt.base.files import is_vacant, read_bounded, written_whole
from simnmt.nmt.architecture import architecture_of
from simnmt.nmt.checkpoint import SOURCE_TOKENIZER, TARGET_TOKENIZER, TRAINING_FILE, read_tensors, write_tensors
from simnmt.nmt.errors import TrainingError
from simnmt.nmt.training.corpus import CorpusFiles
from simnmt.nmt.training.learner import Learner
from simnmt.nmt.training.recipe import Recipe

_SIGNALS = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)]


@contextmanager
def defer_signals() -> Iterator[None]:
    """A signal that would raise comes when the block has ended; without effect outside the main thread."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came: list[tuple[int, FrameType | None]] = []
    before = {number: signal.getsignal(number) for number in _SIGNALS}
    for number, handler in before.items():
        if callable(handler):  # ignored ones stay ignored, and those that end the process at once do so
            signal.signal(number, lambda signum, frame: came.append((signum, frame)))
    try:
        yield
    finally:
        for number, handler in before.items():
            if callable(handler):
                signal.signal(number, handler)
        for number, frame in came[:1]:
            handler = before[number]
            assert callable(handler)
            handler(number, frame)


STATE_VERSION = 2
_NOTE = "simnmt"
"""What the file's header calls our part of it."""
START_AGAIN = "start again in another folder"


MOST_COUNT = 10**15
"""Of any counter, far beyond every training; sums and rates of such counts are still finite."""
NotNegative = Annotated[int, Field(ge=0, le=MOST_COUNT)]
NotNegativeReal = Annotated[float, Field(ge=0.0, le=MOST_COUNT)]
StepOrNone = Annotated[int, Field(ge=-1, le=MOST_COUNT)]
"""A step, or -1 for none."""


@dataclass(slots=True)
class TrainingState:
    """What has been done so far, all sittings together."""

    step: NotNegative = 0
    epoch: NotNegative = 0
    """Epochs completed."""
    batch: NotNegative = 0
    """Batches done of the epoch that is under way."""
    seconds: NotNegativeReal = 0.0
    """Spent on steps and on looks at the development part."""
    step_seconds: NotNegativeReal = 0.0
    """Spent on steps alone."""
    pairs: NotNegative = 0
    """Sentence pairs learnt from, those of every epoch counted."""
    tgt_tokens: NotNegative = 0
    loss_sum: float = 0.0
    """Of the smoothed loss since the last look, in nats."""
    loss_tokens: NotNegative = 0
    """Target tokens since the last look."""
    looked_at: StepOrNone = -1
    """The step at which the development part was last looked at."""
    best_loss: float | None = None
    """The least loss of the development part, in nats a token."""
    best_step: StepOrNone = -1
    curves: list[dict[str, float]] = field(default_factory=list)
    """A point per look."""
    sittings: NotNegative = 0
    """How often the training was begun or taken up."""


def save_state(path: Path, identity: dict[str, Any], learner: Learner, standing: TrainingState) -> None:
    """Write all that the next step depends on; `identity` is what a later sitting must agree with.

    Raises `TrainingError` where there is no room for it.
    """
    note = {"version": STATE_VERSION, "identity": identity, "standing": asdict(standing)}
    try:
        write_tensors(path, learner.tensors(), {_NOTE: json.dumps(note)})
    except (OSError, SafetensorError) as error:
        reason = getattr(error, "strerror", None) or describe_error(error, most=100)
        raise TrainingError(
            f"cannot be written: {reason}", path=path, remedy="make room; the last state is still there"
        ) from None


def load_state(path: Path, identity: dict[str, Any], learner: Learner) -> TrainingState:
    """Put the learner where the file says, and return where that is.

    Raises `TrainingError` for a file that is damaged or of another training, naming what differs.
    """
    try:
        # Copies: else the optimiser would write into the file's mapped memory.
        tensors, notes = read_tensors(path, copies=True)
        note = json.loads(notes[_NOTE])
        version, recorded, standing = note["version"], dict(note["identity"]), note["standing"]
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        reason = getattr(error, "strerror", None) or "damaged, or not a state of a training"
        raise TrainingError(f"the state cannot be read: {reason}", path=path, remedy=START_AGAIN) from None
    if version != STATE_VERSION:
        raise TrainingError(f"a state of version {version}, not {STATE_VERSION}", path=path, remedy=START_AGAIN)
    check_identity(recorded, identity, path.parent)
    try:
        done = checked_dataclass(TrainingState, standing)
        learner.restore(tensors)
        return done
    except (TypeError, ValueError, RuntimeError) as error:
        raise TrainingError(f"the state cannot be used: {describe_error(error)}", path=path, remedy=START_AGAIN) from None


def check_identity(recorded: dict[str, Any], wanted: dict[str, Any], folder: Path) -> None:
    """Raise `TrainingError` where a training would go on with another recipe or another text."""
    for name, was, now in _differences(recorded, wanted):
        what = f"its training has {name} {_shorten(was)}, this one {_shorten(now)}"
        raise TrainingError(what, path=folder, remedy="give the same again, or another --out")


def _differences(one: dict[str, Any], other: dict[str, Any]) -> list[tuple[str, Any, Any]]:
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
    """A folder that is missing, empty, or holds a training; raises `TrainingError` for any other."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.state = path / STATE_FILE
        self.account = path / TRAINING_FILE
        self.vocabularies = path / SOURCE_TOKENIZER, path / TARGET_TOKENIZER
        try:
            if path.exists() and not path.is_dir():
                raise TrainingError("not a folder", path=path, remedy="give another --out")
            if path.is_dir() and not is_vacant(path) and not self.account.is_file():
                raise TrainingError("holds something else than a training", path=path, remedy="give another --out")
            if self.account.is_file() and not self.begun and "training" in read_account(path):
                what = f"holds a trained model, but no {STATE_FILE} to go on from"
                raise TrainingError(what, path=path, remedy="give another --out")
        except OSError as error:
            raise _unusable(path, error) from None

    @property
    def begun(self) -> bool:
        """Whether there is a state to go on from; what stands here otherwise has no weights yet, and may be written over."""
        return self.state.exists()

    def refuse_other(self, identity: dict[str, Any]) -> None:
        """Raise `TrainingError` where the folder's training had another recipe or text."""
        if self.begun:
            recorded = read_account(self.path)
            check_identity({name: recorded.get(name) for name in identity}, identity, self.path)

    def begin(self, account: Mapping[str, Any], vocabularies: Sequence[bytes]) -> None:
        """Write down what a new training goes by, and its two sentencepiece models."""
        # First the account, by which the folder is known for a training should what follows be cut short.
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
    """The training.json of a folder; raises `TrainingError` where it is missing or no JSON object."""
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
    """The text and the recipe of the training in a folder; raises `TrainingError` where it holds none."""
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
