"""Parallel text for training: read, cleaned, and split into training, development and held-out pairs."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from simnmt.base.random_streams import stream
from simnmt.nmt.errors import TrainingError
from simnmt.workload.corpus import text_pairs

Pair = tuple[str, str]

LEAST_PAIRS = 32
"""Fewer teach nothing; a corpus of three lines is a mistake."""


@dataclass(frozen=True, slots=True)
class CorpusFiles:
    """Where the parallel text stands, in any form of docs/corpora.md."""

    src: Path
    """The sources; or, alone, a file of two columns or, with `keys`, of JSON Lines."""
    tgt: Path | None = None
    """The targets; line i translates line i."""
    keys: tuple[str, str] | None = None
    """Under which keys of JSON Lines the two texts stand."""

    def as_json(self) -> dict[str, Any]:
        """Absolute paths, so that a training can be taken up from anywhere."""
        tgt = None if self.tgt is None else str(self.tgt.absolute())
        return {"src": str(self.src.absolute()), "tgt": tgt, "keys": None if self.keys is None else list(self.keys)}


@dataclass(frozen=True, slots=True)
class Corpus:
    """The three parts of a corpus: no source or target of the small ones stands in the large one."""

    train: list[Pair]
    dev: list[Pair]
    """Chooses the weights that are kept."""
    heldout: list[Pair]
    """Judges them, once, at the end."""
    read: int
    """Pairs in the files."""
    blank: int
    """Pairs dropped because a side is empty."""
    repeated: int
    """Pairs dropped because they stand in the files more than once."""
    shared: int
    """Pairs dropped from `train` because their source or target stands in a small part, too."""
    sha256: str
    """Of the pairs as read, whatever files they came from."""

    def as_json(self) -> dict[str, int | str]:
        """Sizes and digest."""
        parts = {"train": len(self.train), "dev": len(self.dev), "heldout": len(self.heldout)}
        dropped = {"blank": self.blank, "repeated": self.repeated, "shared_with_heldout": self.shared}
        return {"read": self.read, **parts, **dropped, "sha256": self.sha256}


def read_training_corpus(text: CorpusFiles, *, heldout: int, seed: int) -> Corpus:
    """Read parallel text and part it; the same pairs and seed give the same parts.

    `heldout`: pairs in each of the small parts. White space is collapsed.

    Raises `CorpusError` for files that cannot be read, and `TrainingError` where too little is left to train on.
    """
    digest = hashlib.sha256()
    seen: dict[Pair, None] = {}
    read = blank = 0
    src = text.src
    files = [src] if text.tgt is None else [src, text.tgt]
    for one, other in text_pairs(files, text.keys, kept="all"):
        pair = " ".join(one.split()), " ".join(other.split())
        digest.update(f"{pair[0]}\t{pair[1]}\n".encode())
        read += 1
        if pair[0] and pair[1]:
            seen[pair] = None
        else:
            blank += 1
    if not read:
        raise TrainingError("the corpus is empty", path=src, remedy="give a file with one sentence a line")
    pairs = list(seen)
    wanted = 2 * heldout + max(LEAST_PAIRS, 2 * heldout)
    if len(pairs) < wanted:
        what = f"{len(pairs):,} different pairs, too few to set twice {heldout:,} aside and train on as many"
        raise TrainingError(what, path=src, remedy=f"give {wanted:,} pairs or more, or a smaller --heldout")
    order = stream(seed, 0, "held-out pairs").permutation(len(pairs))
    small = [pairs[index] for index in order[: 2 * heldout]]
    apart = set(order[: 2 * heldout].tolist())
    # A judge who has seen the answer is none: neither side may occur in what is learnt from, whatever its case.
    sources, targets = ({text.casefold() for text in side} for side in zip(*small, strict=True))
    rest = [pair for index, pair in enumerate(pairs) if index not in apart]
    train = [pair for pair in rest if pair[0].casefold() not in sources and pair[1].casefold() not in targets]
    if len(train) < LEAST_PAIRS:
        what = f"{len(train):,} pairs are left to train on, the others share a side with the held-out ones"
        raise TrainingError(what, path=src, remedy="give more text, or a smaller --heldout")
    return Corpus(
        train,
        small[:heldout],
        small[heldout:],
        read,
        blank,
        read - blank - len(pairs),
        len(rest) - len(train),
        digest.hexdigest(),
    )


def side_of(pairs: Iterable[Pair], side: int) -> list[str]:
    """The sources (side 0) or the targets (side 1)."""
    return [pair[side] for pair in pairs]
