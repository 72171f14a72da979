"""The folder that a training writes: a checkpoint, its vocabulary, its state and its account."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from simnmt.files import is_vacant, read_bounded, written_whole
from simnmt.nmt.architecture import architecture_of
from simnmt.nmt.checkpoint import SOURCE_TOKENIZER, TARGET_TOKENIZER, TRAINING_FILE
from simnmt.nmt.training.corpus import Text
from simnmt.nmt.training.errors import TrainingError
from simnmt.nmt.training.recipe import Recipe
from simnmt.nmt.training.state import check_identity

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


def recorded(folder: Path) -> tuple[Text, Recipe]:
    """The text and the recipe of the training in a folder; raises `TrainingError` where it holds none."""
    account = read_account(folder)
    try:
        text, fields = account["text"], dict(account["recipe"])
        keys = text["keys"]
        where = Text(Path(text["src"]), None if text["tgt"] is None else Path(text["tgt"]), tuple(keys) if keys else None)
        return where, Recipe(architecture_of(fields.pop("architecture")), **fields)
    except (KeyError, TypeError, AttributeError):
        path = folder / TRAINING_FILE
        raise TrainingError("no account of a training", path=path, remedy="start again in another folder") from None
