"""Lengths in the pieces of a sentencepiece model, as the translation models that we calibrate count them."""

from __future__ import annotations

import hashlib
import os
import re
import warnings
from pathlib import Path
from typing import Any

from simnmt.files import MOST_MODEL_BYTES, read_bounded
from simnmt.workload.errors import CorpusError


class SentencePieceCounter:
    """Counts the pieces of a text, without marks of its beginning or end.

    `unit` names the model by its file and the first 8 hexadecimal digits of its SHA-256, so that a table or a profile
    of another model is told apart. Pickled, it takes its path along and loads the model anew.

    Raises `CorpusError` where the package `sentencepiece` is not installed, and for a file that is no such model or,
    once pickled, no longer the same one.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        model = _read(self.path)
        # Some hold blanks, which would be hard to see in the header of a table.
        stem = re.sub(r"[^\w.+-]+", "_", self.path.stem)[:60]
        self.unit = f"sentencepiece {stem} {hashlib.sha256(model).hexdigest()[:8]}"
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
