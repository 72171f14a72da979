"""The texts of a study: the files of a direction, and the sentences read from them."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from simnmt.base.errors import InputError
from simnmt.calibrate.settings import CalibrationError
from simnmt.papers.fvp.study import StudiedText
from simnmt.workload.text_lines import TextLines

_REMEDY = "give a text, one sentence a line"


@dataclass(frozen=True, slots=True)
class Direction:
    """The texts of one language direction, one sentence a line.

    The second half of the held-out text chooses r and K, and the first half is decoded with them: the reported figures of the
    chosen cell come from other sentences than those that chose it.
    """

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


def directions_of(*, text: Sequence[str], heldout: Sequence[str], references: Sequence[str] = ()) -> list[Direction]:
    """Return the directions of files, each given as LABEL=FILE.

    Raises `InputError` for another form or a repeated label, and if a direction lacks one of its two sources, or references
    their source.
    """
    options = {"--text": text, "--heldout": heldout, "--references": references}
    files = {option: _by_label(option, given) for option, given in options.items()}
    if set(files["--text"]) != set(files["--heldout"]):
        named = [", ".join(sorted(files[option])) or "nothing" for option in ("--text", "--heldout")]
        remedy = "give both for each direction: --text fr-en=FILE --heldout fr-en=FILE"
        raise InputError(f"--text of {named[0]} and --heldout of {named[1]}", remedy=remedy)
    train, held, translations = files.values()
    if unknown := set(translations) - set(train):
        what = f"--references of {', '.join(sorted(unknown))}, which --text does not name"
        raise InputError(what, remedy="use the same labels")
    return [Direction(label, train[label], held[label], translations.get(label)) for label in train]


def _by_label(option: str, given: Sequence[str]) -> dict[str, Path]:
    """Return the files by label, the part before `=`."""
    paths: dict[str, Path] = {}
    for pair in given:
        label, equals, path = pair.partition("=")
        if not (label and equals and path):
            raise InputError(f"{option} {pair}: no LABEL=FILE", remedy=f"name the direction first: {option} fr-en={pair}")
        if label in paths:
            raise InputError(f"{option}: {label} twice", remedy="give one file a direction")
        paths[label] = Path(path)
    return paths


class Sample(NamedTuple):
    """Some sentences of a text, with their translations if there are any."""

    sources: Sequence[str]
    references: Sequence[str] | None


def training_sources(direction: Direction, most: int) -> Sequence[str]:
    """Return the first `most` training sentences that are not empty."""
    return _sample(_pairs(direction.train, None), 0, most).sources


def held_out(direction: Direction, most: int) -> tuple[Sample, Sample]:
    """Return the first half of the held-out text for tests and the second for development, at most `most` lines of each."""
    pairs = _pairs(direction.heldout, direction.references)
    half = (len(pairs) + 1) // 2
    return _sample(pairs, 0, min(half, most)), _sample(pairs, half, min(len(pairs) - half, most))


def _sample(pairs: Sequence[tuple[str, str | None]], first: int, count: int) -> Sample:
    part = pairs[first : first + count]
    references = [target for _, target in part if target is not None]
    return Sample([source for source, _ in part], references or None)


def _pairs(sources: Path, targets: Path | None) -> list[tuple[str, str | None]]:
    """Return the lines of a text that are not empty, each with its translation, which must not be empty, or with None.

    Raises `CalibrationError` for texts of different lengths and for fewer than two sentences, and what reading raises.
    """
    lines = _lines(sources)
    translations = [None] * len(lines) if targets is None else _lines(targets)
    if len(translations) != len(lines):
        remedy = "give one translation a line, in the order of the text"
        raise CalibrationError(f"not as many lines as {sources}", path=targets, remedy=remedy)
    pairs = zip(lines, translations, strict=True)
    kept = [(source, target) for source, target in pairs if source.strip() and (target is None or target.strip())]
    if len(kept) < 2:
        raise CalibrationError("fewer than two sentences", path=sources, remedy=_REMEDY)
    return kept


def _lines(path: Path) -> list[str]:
    return list(TextLines(path, kept="all", pipes=False))


def sha256_of(path: Path) -> str:
    """Return the SHA-256 of a file in hexadecimal. Raises `CalibrationError` if it cannot be read."""
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError as error:
        raise CalibrationError(f"cannot be read: {error.strerror}", path=path, remedy="name a readable file") from None
