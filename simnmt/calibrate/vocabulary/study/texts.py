"""The texts of a study of a vocabulary, by direction: what is read of each, and what it is known by."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice, zip_longest
from pathlib import Path

from simnmt.calibrate.errors import CalibrationError
from simnmt.calibrate.vocabulary.study.document import Role, StudiedText, Study
from simnmt.files import MOST_TENSOR_BYTES, check_regular
from simnmt.workload.byte_lines import Kept
from simnmt.workload.text_lines import TextLines

_BLOCK_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Direction:
    """The texts of one language direction, one sentence a line.

    Of the held-out text the second half chooses r and K, and the first half is decoded with them: what is reported of the
    chosen was not chosen on it.
    """

    label: str
    train: Path
    """Sources that clusters and lists are made of."""
    heldout: Path
    """Other sources."""
    references: Path | None = None
    """Of `heldout`, for BLEU."""
    train_targets: Path | None = None
    """Of `train`, for word alignments alone (SHARP-02)."""


@dataclass(frozen=True, slots=True)
class HeldOut:
    """The two halves of a held-out text, without its empty lines."""

    development: tuple[str, ...]
    """Sources of the second half."""
    test: tuple[str, ...]
    """Sources of the first half."""
    test_references: tuple[str, ...] | None
    development_references: tuple[str, ...] | None


def training_lines(direction: Direction, most: int) -> list[str]:
    """The first so many lines that are not empty. Raises `CalibrationError` where there is none, and what reading raises."""
    lines = list(islice((line for line in TextLines(direction.train, kept="head", pipes=False) if line.strip()), most))
    if not lines:
        raise CalibrationError("no sentence in it", path=direction.train, remedy="give a text, one sentence a line")
    return lines


def training_pairs(direction: Direction, most: int) -> Iterator[tuple[str, str]]:
    """The first so many lines with their translations, where neither is empty. Raises as `training_lines` does."""
    if direction.train_targets is None:
        raise CalibrationError(
            f"no translations of {direction.label}'s training text, which word alignments need", remedy="give its targets too"
        )
    pairs = _paired(direction.train, direction.train_targets, kept="head")
    return islice(((source, told) for source, told in pairs if source.strip() and told.strip()), most)


def held_out(direction: Direction, most: int) -> HeldOut:
    """Both halves, of each the first so many lines at most. Raises `CalibrationError` for fewer than two lines."""
    if direction.references is None:
        pairs = [(line, "") for line in TextLines(direction.heldout, kept="all", pipes=False) if line.strip()]
    else:
        pairs = [pair for pair in _paired(direction.heldout, direction.references, kept="all") if pair[0].strip()]
    if len(pairs) < 2:
        raise CalibrationError("fewer than two sentences", path=direction.heldout, remedy="give a text, one sentence a line")
    half = (len(pairs) + 1) // 2
    test, development = pairs[:half][:most], pairs[half:][:most]
    told = [None if direction.references is None else tuple(own for _, own in half) for half in (test, development)]
    return HeldOut(tuple(line for line, _ in development), tuple(line for line, _ in test), *told)


def studied_texts(directions: Sequence[Direction]) -> Iterator[StudiedText]:
    """Every file that is read, by what is in it."""
    for each in directions:
        files: tuple[tuple[Role, Path | None], ...] = (
            ("train", each.train),
            ("targets", each.train_targets),
            ("heldout", each.heldout),
            ("references", each.references),
        )
        for role, path in files:
            if path is not None:
                lines = TextLines(path, pipes=False).drain()
                yield StudiedText(label=each.label, role=role, name=path.name, sha256=sha256_of(path), lines=lines)


def check_texts(study: Study, texts: Sequence[StudiedText], path: Path | None) -> None:
    """Raises `CalibrationError` where the study is of other texts of these directions and roles."""
    now = {(each.label, each.role): each.sha256 for each in texts}
    for before in study.texts:
        if now.get((before.label, before.role), before.sha256) != before.sha256:
            what = f"a study of another text {before.name} for {before.label}"
            raise CalibrationError(what, path=path, remedy="choose another file")


def check_held_out(texts: Sequence[StudiedText]) -> None:
    """Raises `CalibrationError` for held-out text that is a training text, of whatever direction."""
    train = {each.sha256: each for each in texts if each.role == "train"}
    for each in texts:
        if each.role == "heldout" and each.sha256 in train:
            what = f"{each.name} is {each.label}'s held-out text and {train[each.sha256].label}'s training text"
            raise CalibrationError(what, remedy="hold out sentences that nothing is made of")


def sha256_of(path: str | os.PathLike[str]) -> str:
    """SHA-256 of a file, in hexadecimal. Raises `CalibrationError` where it cannot be read."""
    digest = hashlib.sha256()
    try:
        check_regular(path, MOST_TENSOR_BYTES)
        with Path(path).open("rb") as file:
            while block := file.read(_BLOCK_BYTES):
                digest.update(block)
    except OSError as error:
        raise CalibrationError(f"cannot be read: {error.strerror}", path=path, remedy="name a readable file") from None
    return digest.hexdigest()


def _paired(sources: Path, targets: Path, *, kept: Kept) -> Iterator[tuple[str, str]]:
    texts = (TextLines(path, kept=kept, pipes=False) for path in (sources, targets))  # not pipes: texts are read several times
    for source, told in zip_longest(*texts):
        if source is None or told is None:
            raise CalibrationError(
                f"not as many lines as {sources}", path=targets, remedy="give one translation a line, in the order of the text"
            )
        yield source, told
