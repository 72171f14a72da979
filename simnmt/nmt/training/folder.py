"""The folder of a training: vocabularies, training.json, and the checks that nothing else is written over."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from simnmt.base.files import is_vacant, read_bounded, written_whole
from simnmt.nmt.architecture import architecture_of
from simnmt.nmt.checkpoint import TRAINING_FILE
from simnmt.nmt.errors import TrainingError
from simnmt.nmt.training.corpus import CorpusFiles
from simnmt.nmt.training.recipe import Recipe

START_AGAIN = "start again in another folder"


def check_identity(recorded: Mapping[str, Any], wanted: Mapping[str, Any], folder: Path) -> None:
    """Raise `TrainingError` where a training would go on with another recipe or another text."""
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
    """A folder that is missing, empty, or holds a training; raises `TrainingError` for any other."""

    def __init__(self, path: Path, *vocabularies: str) -> None:
        """`vocabularies`: names of the sentencepiece models' files."""
        self.path = path
        self.state = path / STATE_FILE
        self.account = path / TRAINING_FILE
        self.vocabularies = [path / name for name in vocabularies]
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

    def refuse_other(self, identity: Mapping[str, Any]) -> None:
        """Raise `TrainingError` where the folder's training had another recipe or text."""
        if self.begun:
            recorded = read_account(self.path)
            check_identity({name: recorded.get(name) for name in identity}, identity, self.path)

    def begin(self, account: Mapping[str, Any], vocabularies: Sequence[bytes]) -> None:
        """Write down what a new training goes by, and its sentencepiece models."""
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
