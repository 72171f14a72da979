"""How much of a study of a vocabulary is measured; by default the paper's grid, where a box manages it (FVP-10, FVP-11)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from simnmt.calibrate.errors import CalibrationError
from simnmt.calibrate.vocabulary.study.document import Part, PartRun
from simnmt.nmt.vocabulary.candidate_lists import CANDIDATES

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
    """Is told of each part: of so little text that nothing is judged by it."""

    @property
    def grid(self) -> dict[int, tuple[int, ...]]:
        """Every r of the sweep with its K, both ascending."""
        found = {clusters: set(self.tops) for clusters in self.clusters}
        for clusters in self.fine_clusters:
            found.setdefault(clusters, set()).update(self.fine_tops)
        return {clusters: tuple(sorted(tops)) for clusters, tops in sorted(found.items()) if tops}

    @property
    def most_top(self) -> int:
        """Likeliest tokens that are recorded of each context."""
        return max((*self.tops, *(self.fine_tops if self.fine_clusters else ())))

    def told(self) -> dict[str, Any]:
        """As JSON has them."""
        found: dict[str, Any] = json.loads(json.dumps(asdict(self)))
        return found

    def measured_by(self, run: PartRun) -> bool:
        """Whether a part's measurement was of all that these settings ask of it; one that does not tell counts."""
        if self.quick or run.settings is None:
            return self.quick or not run.quick
        own = self.told()
        return not run.quick and all(_holds(run.settings.get(name), own[name]) for name in _READ[run.part])

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
        counts += [each for pair in (*self.searches, *self.chosen.values()) for each in pair]
        if min(counts) < 1 or min(self.always, default=0) < 0:
            raise CalibrationError("a study of less than one of something", remedy="give 1 or more of each")
        if not self.tops or not self.clusters:
            raise CalibrationError("a study without an r or a K", remedy="give one or more of each")


def _holds(had: Any, wanted: Any) -> bool:
    """As much, or all of a list."""
    if isinstance(wanted, list):
        return isinstance(had, list) and all(each in had for each in wanted)
    return isinstance(had, int) and had >= wanted
