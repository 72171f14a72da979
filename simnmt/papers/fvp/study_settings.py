"""How much of a study of a vocabulary is measured, and on which texts; by default the paper's grid (FVP-10, FVP-11)."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import islice, zip_longest
from pathlib import Path
from typing import Any

from simnmt.base.files import MOST_TENSOR_BYTES, check_regular
from simnmt.calibrate.settings import CalibrationError
from simnmt.nmt.vocabulary.candidate_lists import CANDIDATES
from simnmt.papers.fvp.study import Part, PartRun, Role, StudiedText, Study
from simnmt.workload.text_lines import Kept, TextLines

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
    """Return the first `most` lines that are not empty. Raises `CalibrationError` if there is none, and what reading raises."""
    lines = list(islice((line for line in TextLines(direction.train, kept="head", pipes=False) if line.strip()), most))
    if not lines:
        raise CalibrationError("no sentence in it", path=direction.train, remedy="give a text, one sentence a line")
    return lines


def training_pairs(direction: Direction, most: int) -> Iterator[tuple[str, str]]:
    """Return the first `most` pairs of a line and its translation, neither empty. Raises as `training_lines` does."""
    if direction.train_targets is None:
        raise CalibrationError(
            f"no translations of {direction.label}'s training text, which word alignments need", remedy="give its targets too"
        )
    pairs = _paired(direction.train, direction.train_targets, kept="head")
    return islice(((source, target) for source, target in pairs if source.strip() and target.strip()), most)


def held_out(direction: Direction, most: int) -> HeldOut:
    """Return both halves, each with at most its first `most` lines. Raises `CalibrationError` for fewer than two lines."""
    if direction.references is None:
        pairs = [(line, "") for line in TextLines(direction.heldout, kept="all", pipes=False) if line.strip()]
    else:
        pairs = [pair for pair in _paired(direction.heldout, direction.references, kept="all") if pair[0].strip()]
    if len(pairs) < 2:
        raise CalibrationError("fewer than two sentences", path=direction.heldout, remedy="give a text, one sentence a line")
    half = (len(pairs) + 1) // 2
    test, development = pairs[:half][:most], pairs[half:][:most]
    references = [
        None if direction.references is None else tuple(reference for _, reference in part) for part in (test, development)
    ]
    return HeldOut(tuple(line for line, _ in development), tuple(line for line, _ in test), *references)


def studied_texts(directions: Sequence[Direction]) -> Iterator[StudiedText]:
    """Yield every text that the study reads, with its role, SHA-256 and line count."""
    for direction in directions:
        files: tuple[tuple[Role, Path | None], ...] = (
            ("train", direction.train),
            ("targets", direction.train_targets),
            ("heldout", direction.heldout),
            ("references", direction.references),
        )
        for role, path in files:
            if path is not None:
                lines = TextLines(path, pipes=False).drain()
                yield StudiedText(label=direction.label, role=role, name=path.name, sha256=sha256_of(path), lines=lines)


def check_texts(study: Study, texts: Sequence[StudiedText], path: Path | None) -> None:
    """Raise `CalibrationError` if the study used other texts for these directions and roles."""
    now = {(text.label, text.role): text.sha256 for text in texts}
    for before in study.texts:
        if now.get((before.label, before.role), before.sha256) != before.sha256:
            what = f"a study of another text {before.name} for {before.label}"
            raise CalibrationError(what, path=path, remedy="choose another file")


def check_held_out(texts: Sequence[StudiedText]) -> None:
    """Raise `CalibrationError` if a held-out text is also a training text of any direction."""
    train = {text.sha256: text for text in texts if text.role == "train"}
    for text in texts:
        if text.role == "heldout" and text.sha256 in train:
            what = f"{text.name} is {text.label}'s held-out text and {train[text.sha256].label}'s training text"
            raise CalibrationError(what, remedy="hold out sentences that nothing is made of")


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


_TEXTS = ("train_sentences", "heldout_sentences")
_CLUSTERED = (*_TEXTS, "clustered_contexts")
_DECODED = ("searches", "rounds")
_READ: Mapping[Part, tuple[str, ...]] = {
    "sweep": (*_CLUSTERED, "clusters", "tops", "fine_clusters", "fine_tops"),
    "volume": (*_CLUSTERED, "tops", "volumes", "volume_clusters"),
    "by_language": (*_CLUSTERED, "tops", "language_clusters"),
    "per_cluster": (*_CLUSTERED, "tops", "shown_clusters"),
    "memory": (*_CLUSTERED, "tops", "shown_clusters"),
    "chosen": (*_CLUSTERED, *_DECODED),
    "speeds": (*_CLUSTERED, *_DECODED, "tops", "speed_clusters", "speed_sentences"),
    "candidates": (*_TEXTS, *_DECODED, "candidates", "always"),
}
"""What says how much of each part is measured."""


@dataclass(frozen=True, slots=True)
class StudySettings:
    """Raises `CalibrationError` for what nothing can be measured with."""

    clusters: tuple[int, ...] = tuple(range(100, 2_001, 100))
    """Of the sweep: r."""
    tops: tuple[int, ...] = (1, 3, 5)
    """K."""
    fine_clusters: tuple[int, ...] = (50, 100, 200, 300, 500, 1_000)
    """Of the sweep beside the grid, where quality is sought: few clusters with many tokens each miss least."""
    fine_tops: tuple[int, ...] = (5, 10, 20)
    train_sentences: int = 100_000
    """Whose contexts are clustered: about 900,000 of short sentences."""
    clustered_contexts: int = 100_000
    """That k-means sees of them at most: with all of them a sweep takes hours; active sets are made of all."""
    heldout_sentences: int = 2_000
    """Of each half of a held-out text."""
    volumes: int = 5
    """Steps of the training text, each twice the one before, up to all of it."""
    volume_clusters: tuple[int, ...] = (300, 1_000)
    language_clusters: tuple[int, ...] = (100, 200, 300, 400, 500)
    shown_clusters: int = 1_300
    """r of figure 4."""
    searches: tuple[tuple[int, int], ...] = ((1, 1), (2, 20))
    """Beam and batch of what is decoded: the paper's b1 and b2."""
    rounds: int = 3
    speed_clusters: tuple[int, ...] = (100, 300, 500, 900, 1_300, 2_000)
    speed_sentences: int = 300
    candidates: int = CANDIDATES
    """Per source word (SHARP-02)."""
    always: tuple[int, ...] = (0,)
    """Most frequent target words on top of the lists, each number tried."""
    least_identical: float = 0.90
    """Of the sentences with each search, for r and K to be good enough: the paper's own share (section 3.4)."""
    most_bleu_change: float = 0.2
    """With each search, for r and K to be good enough (FVP-08)."""
    most_share: float = 0.15
    """Of V, active on average at batch 1 (FVP-20)."""
    tried_sentences: int = 1_000
    """Of the development half, which r and K are chosen on."""
    chosen: dict[str, tuple[int, int]] = field(default_factory=dict)
    """r and K by direction; for one that is not named, see `choice`."""
    seed: int = 1
    method: str | None = None
    """Of k-means: sklearn or faiss; None: whichever is usual here."""
    quick: bool = False
    """Marks every part as measured on too little text to judge claims by."""

    @property
    def grid(self) -> dict[int, tuple[int, ...]]:
        """Return every r of the sweep with its values of K, both ascending."""
        tops_of = {clusters: set(self.tops) for clusters in self.clusters}
        for clusters in self.fine_clusters:
            tops_of.setdefault(clusters, set()).update(self.fine_tops)
        return {clusters: tuple(sorted(tops)) for clusters, tops in sorted(tops_of.items()) if tops}

    @property
    def most_top(self) -> int:
        """Likeliest tokens that are recorded of each context."""
        return max((*self.tops, *(self.fine_tops if self.fine_clusters else ())))

    def told(self) -> dict[str, Any]:
        """Return the settings as JSON values."""
        settings: dict[str, Any] = json.loads(json.dumps(asdict(self)))
        return settings

    def measured_by(self, run: PartRun) -> bool:
        """Return whether a run covers all that these settings ask of its part; a full run without settings counts."""
        if self.quick or run.settings is None:
            return self.quick or not run.quick
        wanted = self.told()
        return not run.quick and all(_holds(run.settings.get(name), wanted[name]) for name in _READ[run.part])

    def __post_init__(self) -> None:
        counts = [
            *self.clusters,
            *self.tops,
            *self.fine_clusters,
            *self.fine_tops,
            *self.volume_clusters,
            *self.language_clusters,
            *self.speed_clusters,
        ]
        counts += [self.train_sentences, self.clustered_contexts, self.heldout_sentences, self.volumes, self.rounds]
        counts += [self.shown_clusters, self.speed_sentences, self.candidates, self.tried_sentences]
        counts += [count for pair in (*self.searches, *self.chosen.values()) for count in pair]
        if min(counts) < 1 or min(self.always, default=0) < 0:
            raise CalibrationError("a study of less than one of something", remedy="give 1 or more of each")
        if not self.tops or not self.clusters:
            raise CalibrationError("a study without an r or a K", remedy="give one or more of each")


def _holds(had: Any, wanted: Any) -> bool:
    """Return whether `had` is at least `wanted`, or contains all of it if it is a list."""
    if isinstance(wanted, list):
        return isinstance(had, list) and all(member in had for member in wanted)
    return isinstance(had, int) and had >= wanted
