"""Documents: how many sentences they have, and arrivals of which each is a document.

All sentences of a document are issued at one moment by one end node: arrivals in batches (M^X where they are Poisson).
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import ConfigDict, Discriminator, Field, Tag, model_validator
from typing_extensions import Self

from simnmt.base import random_streams
from simnmt.base.configuration import Configuration, InputFile, form_by_key, misfit
from simnmt.base.errors import shorten
from simnmt.base.laws import check_law, describe_law, scipy_law
from simnmt.base.random_streams import BLOCK
from simnmt.workload import ArrivalsError, CorpusError
from simnmt.workload.arrivals.process import ArrivalProcess, RandomStream, Times
from simnmt.workload.arrivals.recording import read_column
from simnmt.workload.text_lines import TextLines

MOST_SENTENCES = 1_000_000
"""Most sentences of a document; a longer one is cut."""
Sizes = NDArray[np.int64]


class SentenceLaw(Configuration):
    """A number of sentences by a law: `{dist: geometric, mean: 12}`, or `{dist: poisson, mu: 11, loc: 1}` by scipy's names."""

    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[str, float]

    dist: str
    """`geometric`, with its `mean`, or the name of a discrete distribution in scipy.stats, such as poisson; its parameters and
    `loc` stand beside it."""
    mean: Annotated[float, Field(ge=1.0, le=MOST_SENTENCES)] | None = None
    """Mean of a geometric number."""

    @model_validator(mode="after")
    def _is_law_of_counts(self) -> Self:
        if self.dist == "geometric":
            if self.mean is None or self.__pydantic_extra__:
                raise misfit("", "geometric needs {mean: NUMBER}")
            return self
        check_law(self.dist, self.__pydantic_extra__, key="dist", scaled=True, counts=True)
        if self.mean is not None:
            raise misfit("mean", "is for dist: geometric alone")
        return self

    @property
    def law(self) -> tuple[str, dict[str, float]]:
        """Name and parameters of the law in scipy.stats."""
        return (self.dist, self.__pydantic_extra__) if self.mean is None else ("geom", {"p": 1.0 / self.mean})

    def __str__(self) -> str:
        return describe_law(*self.law) if self.mean is None else self.dist


@dataclass(frozen=True, slots=True, eq=False)
class DocumentSizes:
    """How many sentences documents have, drawn independently; immutable and picklable."""

    mean: float
    account: str
    """Their origin, for the notes."""
    source: SentenceLaw | Sizes
    """Law by which they are drawn, or the sentences of listed documents, of which each is drawn equally often."""

    def draw(self, generator: np.random.Generator) -> Sizes:
        """Return the sentences of one block of documents, shape (BLOCK,)."""
        if not isinstance(self.source, SentenceLaw):
            return self.source[generator.integers(len(self.source), size=BLOCK)]
        name, parameters = self.source.law
        drawn: Sizes = scipy_law(name, parameters).rvs(size=BLOCK, random_state=generator).astype(np.int64)
        return np.minimum(drawn, MOST_SENTENCES)

    @classmethod
    def of_list(cls, sizes: Sizes, origin: str) -> DocumentSizes:
        """Return the sizes of listed documents."""
        mean = float(sizes.mean())
        return cls(mean, f"{mean:.4g} sentences on average, as {len(sizes):,} documents of {origin} have them", sizes)


class DrawnDocuments(Configuration):
    """Documents whose numbers of sentences are constant, or independent draws of a law."""

    sentences: Annotated[
        Annotated[int, Field(ge=1, le=MOST_SENTENCES), Tag("number")] | Annotated[SentenceLaw, Tag("SentenceLaw")],
        Discriminator(lambda value: "SentenceLaw" if isinstance(value, (dict, SentenceLaw)) else "number"),
    ]
    """Sentences of each document: a number, `{dist: geometric, mean: 12}`, or a discrete law by scipy's names."""

    def read(self, base: Path, text: str) -> DocumentSizes:
        """Return the sizes."""
        if isinstance(self.sentences, int):
            return DocumentSizes(float(self.sentences), f"{self.sentences:,} sentences", np.array([self.sentences]))
        name, parameters = self.sentences.law
        mean = float(scipy_law(name, parameters).mean())
        return DocumentSizes(mean, f"{mean:.4g} sentences on average, {self.sentences}", self.sentences)


class RecordedDocuments(Configuration):
    """Documents with the numbers of sentences of those in a log, each of which is drawn equally often."""

    recorded: Annotated[str, InputFile(), Field(min_length=1)]
    """Path, relative to the scenario file; a log as for recorded arrivals."""
    column: Annotated[str, Field(min_length=1)]
    """Column with the number of sentences of each row or, with `rows: sentences`, with the document that the row is of."""
    rows: Literal["documents", "sentences"] = "documents"
    """What a row of the log is: a document, or a sentence, as in the log of `simnmt live gateway` with `column: document`."""

    def read(self, base: Path, text: str) -> DocumentSizes:
        """Return the sizes after reading the log. Raises `ArrivalsError`."""
        import pandas as pd  # only logs need it, and it takes a third of a second

        path = base / self.recorded
        column, cells = read_column(path, (self.column.lower(),))
        if self.rows == "sentences":
            return DocumentSizes.of_list(cells.value_counts(sort=False).to_numpy(np.int64), path.name)
        sizes = np.asarray(pd.to_numeric(cells, errors="coerce"), np.float64)
        wrong = ~((sizes >= 1.0) & (sizes <= MOST_SENTENCES) & (sizes == np.floor(sizes)))
        if wrong.any():
            row = int(np.argmax(wrong))
            what, line = f"{column} is {shorten(cells.iloc[row], 40)}", int(cells.index[row])
            remedy = "give a whole number of sentences, 1 or more, or say rows: sentences"
            raise ArrivalsError(what, path=path, line=line, remedy=remedy)
        return DocumentSizes.of_list(sizes.astype(np.int64), path.name)


class CorpusDocuments(Configuration):
    """Documents of the workload's text, between which there are blank lines."""

    corpus: Literal[True]
    """Each document of the text is drawn equally often; its sentences are the lines between two blank ones, also those that the
    filter drops. The lengths of the sentences are still drawn one by one."""

    def read(self, base: Path, text: str) -> DocumentSizes:
        """Return the sizes after reading the text. Raises `CorpusError`."""
        sizes, lines = array("q"), 0
        for line in TextLines(base / text):
            if line.strip():
                lines += 1
            elif lines:
                sizes.append(lines)
                lines = 0
        sizes.extend([lines] * (lines > 0))
        if len(sizes) < 2:
            remedy = "separate documents by blank lines, or give documents: {sentences: ...}"
            raise CorpusError("no blank line between two documents", path=base / text, remedy=remedy)
        return DocumentSizes.of_list(np.array(sizes), Path(text).name)


DocumentsConfiguration = Annotated[
    Annotated[DrawnDocuments, Tag("DrawnDocuments")]
    | Annotated[RecordedDocuments, Tag("RecordedDocuments")]
    | Annotated[CorpusDocuments, Tag("CorpusDocuments")],
    Discriminator(
        form_by_key(sentences=DrawnDocuments, recorded=RecordedDocuments, corpus=CorpusDocuments),
        custom_error_type="no_documents",
        custom_error_message="expected sentences, recorded and column, or corpus: true",
    ),
]
"""How many sentences documents have. The tags are no keys of a scenario."""


@dataclass(frozen=True, slots=True)
class DocumentArrivals(ArrivalProcess):
    """Documents that arrive as requests would, with all of their sentences as requests of one moment and one end node."""

    begin: ArrivalProcess
    """Arrivals of the documents, of an open kind."""
    sizes: DocumentSizes

    @property
    def period_s(self) -> float | None:
        return self.begin.period_s

    @property
    def mean_rate_rps(self) -> float | None:
        return None if self.begin.mean_rate_rps is None else self.begin.mean_rate_rps * self.sizes.mean

    @property
    def requests_per_arrival(self) -> float:
        return self.begin.requests_per_arrival * self.sizes.mean

    @property
    def account(self) -> str:
        rate_rps = self.mean_rate_rps
        in_all = "" if rate_rps is None else f", {rate_rps:.4g} sentences/s in all"
        return f"documents of {self.sizes.account}{in_all}; a document arrives where a request would of: {self.begin.account}"

    def at_rate(self, rate_rps: float) -> Self:
        return replace(self, begin=self.begin.at_rate(rate_rps / self.sizes.mean))

    def times(self, n: int, rng: RandomStream) -> Times:
        document = self.documents(n, rng)
        times_s: Times = self.begin.times(int(document.max(initial=-1)) + 1, rng)[document]
        return times_s

    def documents(self, n: int, rng: RandomStream) -> NDArray[np.int32]:
        drawn, sentences, key = list[Sizes](), 0, rng.part("documents").key
        for block in count():
            if sentences >= n:
                break
            drawn.append(self.sizes.draw(random_streams.stream(*key, block)))
            sentences += int(drawn[-1].sum())
        sizes = np.concatenate([*drawn, np.empty(0, np.int64)])
        documents = int(np.searchsorted(np.cumsum(sizes), n)) + 1  # the run ends within the last one, or with it
        return np.repeat(np.arange(len(sizes[:documents]), dtype=np.int32), sizes[:documents])[:n]

    def engagements(self, n: int, rng: RandomStream) -> NDArray[np.int64]:
        document = self.documents(n, rng).astype(np.int64)
        of_document = self.begin.engagements(int(document.max(initial=-1)) + 1, rng)
        return document if of_document is None else of_document[document]
