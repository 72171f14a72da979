"""How often sentences come back: their popularity by Zipf's law, or the sequence of a recorded log."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import numpy as np
from numpy.typing import NDArray
from pydantic import Discriminator, Field, Tag

from simnmt.base import random_streams
from simnmt.base.arrays import Floats
from simnmt.base.configuration import Configuration, InputFile, form_by_key
from simnmt.workload.arrivals import RandomStream
from simnmt.workload.arrivals.recording import read_column
from simnmt.workload.arrivals.traffic import HASHES, TEXTS

SentenceNumbers = NDArray[np.int32]


@dataclass(frozen=True, slots=True, eq=False)
class Repeats:
    """Sentences that come back, by number; immutable and picklable."""

    shares: Floats
    """Share of the requests that each sentence has, shape (sentences,)."""
    account: str
    """Origin of the repeats: a sentence that begins in lower case, without a full stop."""
    recorded: SentenceNumbers | None = None
    """Sentence of each request of a log, which is replayed for ever; None: each request draws its sentence by the shares."""
    is_log_of_arrivals: bool = False
    """True if the arrivals replay the same log: each request then has the sentence of the row whose time it has."""

    def draw(self, n: int, rng: RandomStream, first_row: int | None = None) -> SentenceNumbers:
        """Return the sentence of each request, shape (n,).

        `first_row`: row of the log at which its replay begins; None: at the first one, and elsewhere in further replications.
        """
        if self.recorded is not None:
            if first_row is None:
                first_row = int(rng.integers(len(self.recorded))) if rng.replication else 0
            return np.resize(np.roll(self.recorded, -first_row), n)
        ends, sentences = np.cumsum(self.shares)[:-1], np.empty(n, np.int32)
        for block, rows in random_streams.blocks(n):
            uniform = random_streams.stream(*rng.key, block).random(rows.stop - rows.start)
            sentences[rows] = np.searchsorted(ends, uniform, side="right")
        return sentences

    def length_quantiles(self, rng: np.random.Generator) -> Floats:
        """Draw for each sentence the share of pairs, in [0, 1), before the pair whose lengths it has; shape (sentences,).

        The sentences divide [0, 1) by their shares in a random order, and each has a random quantile of its part. So the
        lengths of the requests have the law of the pairs, and their mean differs little between draws although a few sentences
        are frequent.
        """
        order = rng.permutation(len(self.shares))
        shares, quantiles = self.shares[order], np.empty(len(order))
        quantiles[order] = np.cumsum(shares) - shares * (1.0 - rng.random(len(order)))
        return np.clip(quantiles, 0.0, np.nextafter(1.0, 0.0), out=quantiles)


def first_requests(sentence: SentenceNumbers) -> NDArray[np.int64]:
    """Return for each request the number of the first request of its sentence."""
    first = np.empty(int(sentence.max(initial=-1)) + 1, np.int64)
    first[sentence[::-1]] = np.arange(len(sentence))[::-1]
    return first[sentence]


def numbered_apart(sentences: Sequence[SentenceNumbers | None]) -> list[SentenceNumbers | None]:
    """Return the sentences of several workloads so that those of different workloads differ; nothing if a workload has none."""
    apart, begin = list[SentenceNumbers | None](), 0
    for sentence in sentences:
        if sentence is None:
            return [None] * len(sentences)
        apart.append(sentence + np.int32(begin))
        begin += int(sentence.max(initial=-1)) + 1
    return apart


class ZipfRepeats(Configuration):
    """Sentences whose frequency falls with a power of their rank, drawn independently of each other."""

    zipf: Annotated[float, Field(ge=0.0, le=20.0)]
    """Exponent: the sentence of rank r is requested in proportion to 1 / r^zipf; 0: all are equally frequent."""
    over: Annotated[int, Field(ge=1, le=10_000_000)]
    """Number of different sentences."""

    def read(self, base: Path) -> Repeats:
        """Return the repeats."""
        weights = np.arange(1, self.over + 1, dtype=np.float64) ** -self.zipf
        law = f"assumed Zipf's law of exponent {self.zipf:g} over {self.over:,} sentences"
        return Repeats(weights / weights.sum(), f"sentences come back by an {law}")


class RecordedRepeats(Configuration):
    """The sentences of the requests of a log, in its order, repeated for ever."""

    recorded: Annotated[str, InputFile(), Field(min_length=1)]
    """Path, relative to the scenario file; a log as for recorded arrivals, with a column of texts or of their hashes."""
    column: Annotated[str, Field(min_length=1)] | None = None
    """Column that identifies the text. Left out: the first of text, src_text, source_text, sentence, prompt, q, hash,
    text_hash, sha256 and hash_ids that the log has."""

    def read(self, base: Path) -> Repeats:
        """Return the repeats after reading the log. Raises `ArrivalsError`."""
        import pandas as pd  # only logs need it, and it takes a third of a second

        column, cells = read_column(base / self.recorded, (*TEXTS, *HASHES) if self.column is None else (self.column.lower(),))
        sentence, texts = pd.factorize(cells)
        log = f"{column} of {Path(self.recorded).name}: {len(sentence):,} requests of {len(texts):,} sentences"
        account = f"sentences come back as in a recorded log ({log}); after its end it begins anew"
        return Repeats(np.bincount(sentence) / len(sentence), account, sentence.astype(np.int32))


RepeatsConfiguration = Annotated[
    Annotated[ZipfRepeats, Tag("ZipfRepeats")] | Annotated[RecordedRepeats, Tag("RecordedRepeats")],
    Discriminator(
        form_by_key(zipf=ZipfRepeats, over=ZipfRepeats, recorded=RecordedRepeats),
        custom_error_type="no_repeats",
        custom_error_message="expected zipf and over, or recorded",
    ),
]
"""How often sentences come back. The tags are no keys of a scenario."""
