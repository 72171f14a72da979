"""The texts of a study: the files of a direction, the sentences read from them, and the check that they have not changed."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice, zip_longest
from pathlib import Path
from typing import NamedTuple

from simnmt.base.errors import InputError
from simnmt.base.files import MOST_TENSOR_BYTES, check_regular
from simnmt.calibrate.settings import CalibrationError
from simnmt.papers.fvp.study import Role, StudiedText, Study
from simnmt.workload.text_lines import Kept, TextLines

_BLOCK_BYTES = 1 << 20
_REMEDY = "give a text, one sentence a line"


@dataclass(frozen=True, slots=True)
class Direction:
    """The texts of one language direction, one sentence a line.

    The second half of the held-out text chooses r and K, and the first half is decoded with them: the reported figures of the
    chosen cell come from other sentences than those that chose it.
    """

    label: str
    train: Path
    """Sources that clusters and lists are made of."""
    heldout: Path
    """Other sources."""
    references: Path | None = None
    """Translations of `heldout`, for BLEU."""
    train_targets: Path | None = None
    """Translations of `train`, for word alignments alone (SHARP-02)."""

    @property
    def files(self) -> dict[Role, Path]:
        """Return the files by role."""
        files: dict[Role, Path | None] = {
            "train": self.train,
            "targets": self.train_targets,
            "heldout": self.heldout,
            "references": self.references,
        }
        return {role: path for role, path in files.items() if path is not None}


class Sample(NamedTuple):
    """Some sentences of a text, with their translations if there are any."""

    sources: Sequence[str]
    references: Sequence[str] | None


def directions_of(
    *,
    train: Mapping[str, Path],
    heldout: Mapping[str, Path],
    targets: Mapping[str, Path] | None = None,
    references: Mapping[str, Path] | None = None,
) -> list[Direction]:
    """Return the directions of files by label.

    Raises `InputError` if a direction lacks one of its two sources, or a translation its source.
    """
    targets, references = targets or {}, references or {}
    if set(train) != set(heldout):
        raise InputError(
            f"--text of {_listed(train)} and --heldout of {_listed(heldout)}",
            remedy="give both for each direction: --text fr-en=FILE --heldout fr-en=FILE",
        )
    for option, labels in (("--targets", targets), ("--references", references)):
        if unknown := set(labels) - set(train):
            raise InputError(f"{option} of {_listed(unknown)}, which --text does not name", remedy="use the same labels")
    return [Direction(label, train[label], heldout[label], references.get(label), targets.get(label)) for label in train]


def _listed(labels: Iterable[str]) -> str:
    return ", ".join(sorted(labels)) or "nothing"


def training_lines(direction: Direction, most: int) -> list[str]:
    """Return the first `most` lines that are not empty. Raises `CalibrationError` if there is none, and what reading raises."""
    lines = list(islice((line for line in TextLines(direction.train, kept="head", pipes=False) if line.strip()), most))
    if not lines:
        raise CalibrationError("the text has no sentence", path=direction.train, remedy=_REMEDY)
    return lines


def training_pairs(direction: Direction, most: int) -> Iterator[tuple[str, str]]:
    """Return the first `most` pairs of a line and its translation, neither empty. Raises as `training_lines` does."""
    if direction.train_targets is None:
        raise CalibrationError(
            f"no translations of {direction.label}'s training text, which word alignments need", remedy="give its targets too"
        )
    pairs = _paired(direction.train, direction.train_targets, kept="head")
    return islice(((source, target) for source, target in pairs if source.strip() and target.strip()), most)


def held_out(direction: Direction, most: int) -> tuple[Sample, Sample]:
    """Return the first half of the held-out text for tests and the second for development, empty lines left out.

    Each half has at most its first `most` lines. Raises `CalibrationError` for fewer than two lines.
    """
    if direction.references is None:
        pairs = [(line, "") for line in TextLines(direction.heldout, kept="all", pipes=False) if line.strip()]
    else:
        pairs = [pair for pair in _paired(direction.heldout, direction.references, kept="all") if pair[0].strip()]
    if len(pairs) < 2:
        raise CalibrationError("fewer than two sentences", path=direction.heldout, remedy=_REMEDY)
    half = (len(pairs) + 1) // 2

    def sample(part: Sequence[tuple[str, str]]) -> Sample:
        sources, references = zip(*part[:most], strict=True)
        return Sample(sources, None if direction.references is None else references)

    return sample(pairs[:half]), sample(pairs[half:])


def studied_texts(directions: Sequence[Direction]) -> tuple[StudiedText, ...]:
    """Return every text that the study reads, with its role, SHA-256 and line count."""
    return tuple(
        StudiedText(
            label=direction.label, role=role, name=path.name, sha256=sha256_of(path), lines=TextLines(path, pipes=False).drain()
        )
        for direction in directions
        for role, path in direction.files.items()
    )


def check_same(study: Study, model_sha256: str, texts: Sequence[StudiedText], path: Path | None) -> None:
    """Raise `CalibrationError` if the study is of another model, or of other texts for these directions and roles."""
    if study.model.sha256 != model_sha256:
        raise CalibrationError(f"a study of another model, {study.model.name}", path=path, remedy="choose another file")
    now = {(text.label, text.role): text.sha256 for text in texts}
    for before in study.texts:
        if now.get((before.label, before.role), before.sha256) != before.sha256:
            problem = f"a study of another text {before.name} for {before.label}"
            raise CalibrationError(problem, path=path, remedy="choose another file")


def check_held_out(texts: Sequence[StudiedText]) -> None:
    """Raise `CalibrationError` if a held-out text is also a training text of any direction."""
    train = {text.sha256: text for text in texts if text.role == "train"}
    for text in texts:
        if text.role == "heldout" and text.sha256 in train:
            problem = f"{text.name} is {text.label}'s held-out text and {train[text.sha256].label}'s training text"
            raise CalibrationError(problem, remedy="hold out sentences that clusters are not made of")


def sha256_of(path: str | os.PathLike[str]) -> str:
    """Return the SHA-256 of a file in hexadecimal. Raises `CalibrationError` if it cannot be read."""
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
    for source, target in zip_longest(*texts):
        if source is None or target is None:
            raise CalibrationError(
                f"not as many lines as {sources}", path=targets, remedy="give one translation a line, in the order of the text"
            )
        yield source, target
