"""The texts of a study: the files of a direction, and the sentences read from them."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from simnmt.base.errors import InputError
from simnmt.calibrate.settings import CalibrationError
from simnmt.papers.fvp.study import StudiedText
from simnmt.workload.text_lines import TextLines

Pair = tuple[str, str | None]
"""A sentence, and its translation if there are references."""


@dataclass(frozen=True, slots=True)
class Direction:
    """The texts of one language direction, one sentence a line."""

    label: str
    train: Path
    """Sources that clusters are made of."""
    heldout: Path
    """Other sources."""
    references: Path | None = None
    """Translations of `heldout`, for BLEU."""

    def studied(self) -> list[StudiedText]:
        """Return every text that a study reads, with its role, SHA-256 and line count."""
        files = {"train": self.train, "heldout": self.heldout, "references": self.references}
        return [
            StudiedText(label=self.label, role=role, name=path.name, sha256=sha256_of(path), lines=len(_lines(path)))  # type: ignore[arg-type]
            for role, path in files.items()
            if path is not None
        ]

    def training_sources(self, most: int) -> list[str]:
        """Return the first `most` training sentences that are not empty."""
        return [line for line in _lines(self.train) if line.strip()][:most]

    def held_out(self, most: int) -> tuple[list[Pair], list[Pair]]:
        """Return at most `most` sentences of each half of the held-out text, without empty ones.

        The second half chooses r and K, and the first half is decoded with them: the reported figures of the chosen cell come
        from other sentences than those that chose it. Raises `CalibrationError` for fewer than two sentences, and for
        references of another length.
        """
        lines = _lines(self.heldout)
        references: Sequence[str | None] = [None] * len(lines) if self.references is None else _lines(self.references)
        if len(references) != len(lines):
            remedy = "give one translation a line, in the order of the text"
            raise CalibrationError(f"not as many lines as {self.heldout}", path=self.references, remedy=remedy)
        kept = [pair for pair in zip(lines, references, strict=True) if all(text is None or text.strip() for text in pair)]
        if len(kept) < 2:
            raise CalibrationError("fewer than two sentences", path=self.heldout, remedy="give a text, one sentence a line")
        half = (len(kept) + 1) // 2
        return kept[:half][:most], kept[half:][:most]


def directions_of(*, text: Sequence[str], heldout: Sequence[str], references: Sequence[str]) -> list[Direction]:
    """Return the directions of files, each given as LABEL=FILE.

    Raises `InputError` for another form, a label given twice, and if a direction lacks one of its two sources, or references
    their source.
    """
    train, held, translations = (
        dict(_labelled(option, file) for file in files)
        for option, files in (("--text", text), ("--heldout", heldout), ("--references", references))
    )
    twice = len(train) + len(held) + len(translations) < len(text) + len(heldout) + len(references)
    if twice or train.keys() != held.keys() or not translations.keys() <= train.keys():
        what = f"--text of {', '.join(train) or 'nothing'}, --heldout of {', '.join(held) or 'nothing'}"
        what += f", --references of {', '.join(translations)}" if translations else ""
        remedy = "give both for each direction: --text fr-en=FILE --heldout fr-en=FILE"
        raise InputError(f"{what}: not the same directions, or one twice", remedy=remedy)
    return [Direction(label, train[label], held[label], translations.get(label)) for label in train]


def _labelled(option: str, file: str) -> tuple[str, Path]:
    label, _, path = file.partition("=")
    if not (label and path):
        raise InputError(f"{option} {file}: no LABEL=FILE", remedy=f"name the direction first: {option} fr-en={file}")
    return label, Path(path)


def _lines(path: Path) -> list[str]:
    return list(TextLines(path, kept="all", pipes=False))


def sha256_of(path: Path) -> str:
    """Return the SHA-256 of a file in hexadecimal. Raises `CalibrationError` if it cannot be read."""
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError as error:
        raise CalibrationError(f"cannot be read: {error.strerror}", path=path, remedy="name a readable file") from None
