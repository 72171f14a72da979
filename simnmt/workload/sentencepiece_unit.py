"""Lengths in the pieces of a sentencepiece model, as the translation models that we calibrate count them."""

from __future__ import annotations

import hashlib
import os
import warnings
from pathlib import Path
from typing import Any, Literal

from simnmt.files import MOST_MODEL_BYTES, read_bounded
from simnmt.workload.counting import UNIT_PREFIX
from simnmt.workload.errors import CorpusError

Side = Literal["src", "tgt"]
TOKENISER_FILES: dict[Side, tuple[str, ...]] = {"src": ("source.model", "source.spm"), "tgt": ("target.model", "target.spm")}
"""Of a folder that `simnmt nmt train` wrote, and of a Hugging Face Marian folder."""


def tokeniser_in(folder: str | os.PathLike[str], side: Side) -> Path | None:
    """Return the sentencepiece model of one side in a translation model's folder; None where it holds none."""
    return next((path for name in TOKENISER_FILES[side] if (path := Path(folder) / name).is_file()), None)


def model_file(path: str | os.PathLike[str], side: Side) -> Path:
    """Return the sentencepiece model that a user named by its file or by the folder of a translation model.

    Raises `CorpusError` for a folder without one.
    """
    if not Path(path).is_dir():
        return Path(path)
    tokeniser = tokeniser_in(path, side)
    if tokeniser is None:
        what = f"a folder without {' or '.join(TOKENISER_FILES[side])}"
        remedy = "name a sentencepiece model, or the folder of a translation model that simnmt nmt train wrote"
        raise CorpusError(what, path=path, remedy=remedy)
    return tokeniser


def unit_of(path: str | os.PathLike[str]) -> str:
    """Return the name of the unit of a sentencepiece model: by the content of the file, whatever its name.

    The package sentencepiece is not needed. Raises `CorpusError` for a file that cannot be read.
    """
    return unit_of_content(_read(Path(path)))


def unit_of_content(model: bytes) -> str:
    """Return the name of the unit of a sentencepiece model, of which `model` is the file's content."""
    return f"{UNIT_PREFIX}{hashlib.sha256(model).hexdigest()[:12]}"


class SentencePieceCounter:
    """Counts the pieces of a text, without marks of its beginning or end.

    `unit` names the model by the first 12 hexadecimal digits of its SHA-256, so that tables and profiles of the same model
    agree wherever its file lies, and those of another differ. Pickled, it takes its path along and loads the model anew.

    Raises `CorpusError` where the package `sentencepiece` is not installed, and for a file that is no such model or,
    once pickled, no longer the same one.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        model = _read(self.path)
        self.unit = unit_of_content(model)
        """The name that lengths counted so go by."""
        self._encode = _loaded(self.path, model).encode

    def __call__(self, text: str) -> int:
        """Pieces of the text."""
        return len(self._encode(text))

    def __reduce__(self) -> tuple[Any, ...]:
        return _same_again, (str(self.path), self.unit)


def _same_again(path: str, unit: str) -> SentencePieceCounter:
    counter = SentencePieceCounter(path)
    if counter.unit != unit:
        raise CorpusError(f"the model is now {counter.unit}, it was {unit}", path=path, remedy="leave it alone during a run")
    return counter


def _read(path: Path) -> bytes:
    remedy = "give a sentencepiece model, usually named *.model or *.spm"
    try:
        return read_bounded(path, MOST_MODEL_BYTES)
    except FileNotFoundError:
        raise CorpusError("no such file", path=path, remedy="check the path of the sentencepiece model") from None
    except OSError as error:
        raise CorpusError(f"cannot be read: {error.strerror or error}", path=path, remedy=remedy) from None


def _loaded(path: Path, model: bytes) -> Any:
    with warnings.catch_warnings():
        # Its bindings warn of their own types on newer Pythons.
        warnings.simplefilter("ignore", DeprecationWarning)
        try:
            from sentencepiece import SentencePieceProcessor
        except ImportError:
            what = "lengths in pieces of a sentencepiece model need the package sentencepiece"
            raise CorpusError(what, remedy="pip install 'simnmt[sentencepiece]'") from None
    try:
        processor = SentencePieceProcessor(model_proto=model)
        usable = processor.get_piece_size() > 0
    except (RuntimeError, OSError, ValueError):
        usable = False
    if not usable:
        remedy = "give the .model file that its training wrote, not the .vocab beside it"
        raise CorpusError("no sentencepiece model", path=path, remedy=remedy)
    return processor
