"""Where a training stands: counters, curves, and the file from which it goes on as if it had never stopped."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field
from safetensors import SafetensorError

from simnmt.configuration import checked_dataclass
from simnmt.errors import describe_error
from simnmt.nmt.tensor_files import read_tensors, write_tensors
from simnmt.nmt.training.errors import TrainingError
from simnmt.nmt.training.learner import Learner

VERSION = 2
_NOTE = "simnmt"
"""What the file's header calls our part of it."""
START_AGAIN = "start again in another folder"


MOST = 10**15
"""Of any counter, far beyond every training; sums and rates of such counts are still finite."""
NotNegative = Annotated[int, Field(ge=0, le=MOST)]
NotNegativeReal = Annotated[float, Field(ge=0.0, le=MOST)]
StepOrNone = Annotated[int, Field(ge=-1, le=MOST)]
"""A step, or -1 for none."""


@dataclass(slots=True)
class Standing:
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


def save_state(path: Path, identity: dict[str, Any], learner: Learner, standing: Standing) -> None:
    """Write all that the next step depends on; `identity` is what a later sitting must agree with.

    Raises `TrainingError` where there is no room for it.
    """
    note = {"version": VERSION, "identity": identity, "standing": asdict(standing)}
    try:
        write_tensors(path, learner.tensors(), {_NOTE: json.dumps(note)})
    except (OSError, SafetensorError) as error:
        reason = getattr(error, "strerror", None) or describe_error(error, most=100)
        raise TrainingError(
            f"cannot be written: {reason}", path=path, remedy="make room; the last state is still there"
        ) from None


def load_state(path: Path, identity: dict[str, Any], learner: Learner) -> Standing:
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
    if version != VERSION:
        raise TrainingError(f"a state of version {version}, not {VERSION}", path=path, remedy=START_AGAIN)
    check_identity(recorded, identity, path.parent)
    try:
        done = checked_dataclass(Standing, standing)
        learner.restore(tensors)
        return done
    except (TypeError, ValueError, RuntimeError) as error:
        raise TrainingError(f"the state cannot be used: {describe_error(error)}", path=path, remedy=START_AGAIN) from None


def check_identity(recorded: dict[str, Any], wanted: dict[str, Any], folder: Path) -> None:
    """Raise `TrainingError` where a training would go on with another recipe or another text."""
    for name, was, now in _differences(recorded, wanted):
        what = f"its training has {name} {_short(was)}, this one {_short(now)}"
        raise TrainingError(what, path=folder, remedy="give the same again, or another --out")


def _differences(one: dict[str, Any], other: dict[str, Any]) -> list[tuple[str, Any, Any]]:
    found: list[tuple[str, Any, Any]] = []
    for name in [*one, *(name for name in other if name not in one)]:
        was, now = one.get(name), other.get(name)
        if isinstance(was, dict) and isinstance(now, dict):
            found += [(f"{name}.{inner}", old, new) for inner, old, new in _differences(was, now)]
        elif was != now:
            found.append((name, was, now))
    return found


def _short(value: Any) -> str:
    text = str(value)
    return text if len(text) <= 24 else text[:12] + "..."
