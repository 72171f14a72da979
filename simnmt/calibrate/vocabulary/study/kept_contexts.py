"""Contexts of a study's texts, decoded once and kept on disk where a folder is given: every part needs the same ones."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from safetensors import SafetensorError

from simnmt.calibrate.errors import CalibrationError
from simnmt.calibrate.vocabulary.study.held_cells import HeldOutTokens
from simnmt.nmt.tensor_files import read_tensors, write_tensors
from simnmt.nmt.translation import Translator
from simnmt.nmt.vocabulary.contexts import Contexts, collect

BATCH = 128
"""Sentences decoded together: 1.3 times as fast on one thread as 64."""


SILENT_S = 10.0
"""Seconds of decoding that need no word."""


@dataclass(frozen=True, slots=True)
class DirectionContexts:
    """Contexts of dense greedy decoding of one direction's texts."""

    label: str
    training: Contexts
    development: Contexts
    """Of held-out text, sentence by sentence."""

    @property
    def tokens(self) -> HeldOutTokens:
        """What dense decoding wrote of the held-out text."""
        return HeldOutTokens(self.development.top[:, 0].long().numpy(), self.development.sentence.long().numpy())

    @property
    def emitted(self) -> int:
        """Distinct tokens that dense decoding wrote of both texts."""
        return len(torch.unique(torch.cat((self.training.emitted, self.development.emitted))))


def beginning(contexts: Contexts, sentences: int) -> Contexts:
    """Those of the first so many sentences."""
    return replace(contexts.of(contexts.sentence < sentences), sentences=sentences)


def first_contexts(contexts: Contexts, count: int) -> Contexts:
    """The first so many, of which the last sentence may be a part; contexts sentence by sentence."""
    found = contexts.of(torch.arange(min(count, len(contexts))))
    return replace(found, sentences=int(found.sentence.max()) + 1)


def by_sentence(contexts: Contexts) -> Contexts:
    """The same, sentence by sentence, each in the order of its steps."""
    return contexts.of(torch.sort(contexts.sentence, stable=True).indices)


class KeptContexts:
    """Decodes text, or finds what an earlier run decoded."""

    def __init__(self, translator: Translator, model_sha256: str, folder: Path | None, say: Callable[[str], None]) -> None:
        """`folder`: where contexts are kept, None: nowhere; `say`: is told of what takes long."""
        self._translator, self._model, self.folder, self._say = translator, model_sha256, folder, say

    def of(self, what: str, lines: Sequence[str], top: int) -> Contexts:
        """Contexts with their `top` likeliest tokens, sentence by sentence; `what`: for people."""
        path = None if self.folder is None else self.folder / f"contexts-{self._key(lines, top)}.safetensors"
        if path is not None and path.is_file():
            self._say(f"contexts of {what}: kept from before")
            return _read(path, len(lines))
        self._say(f"decoding {len(lines):,} sentences of {what}")
        contexts = by_sentence(collect(self._translator, lines, top, batch=BATCH, progress=_tenths(self._say)))
        if path is not None:
            _write(path, contexts)
        return contexts

    def _key(self, lines: Sequence[str], top: int) -> str:
        digest = hashlib.sha256(f"{self._model} {top}\n".encode())
        for line in lines:
            digest.update(f"{line}\n".encode())
        return digest.hexdigest()[:32]


def _tenths(say: Callable[[str], None]) -> Callable[[str, float | None], None]:
    """Says each tenth once, where there are minutes to tell of."""
    next_share, begin_s = 0.1, time.monotonic()

    def progress(what: str, share: float | None) -> None:
        nonlocal next_share
        if share is not None and share >= next_share and time.monotonic() - begin_s > SILENT_S:
            say(f"{what}: {share:.0%}")
            next_share = share + 0.1

    return progress


_NAMES = ("hidden", "top", "sentence", "emitted")


def _write(path: Path, contexts: Contexts) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_tensors(path, {name: getattr(contexts, name) for name in _NAMES})
    except (OSError, SafetensorError) as error:
        said = getattr(error, "strerror", None) or str(error)
        raise CalibrationError(f"cannot be written: {said}", path=path, remedy="choose another folder") from None


def _read(path: Path, sentences: int) -> Contexts:
    try:
        tensors, _ = read_tensors(path)
        hidden, top, sentence, emitted = (tensors[name] for name in _NAMES)
    except (OSError, ValueError, KeyError):
        raise CalibrationError("no kept contexts, or damaged", path=path, remedy="remove the file") from None
    return Contexts(hidden, top, sentence, emitted, sentences)
