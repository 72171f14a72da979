"""Configuration of a workload in a scenario file, and the loading of the lengths that it names."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import replace
from functools import lru_cache
from math import inf
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    RootModel,
    SerializerFunctionWrapHandler,
    Tag,
    field_validator,
    model_serializer,
    model_validator,
)
from typing_extensions import Self

from simnmt.base.configuration import Configuration, InputFile, form_by_key, misfit
from simnmt.base.extension import Extended, Extensible
from simnmt.workload.arrivals import Arrivals, BackToBack, Recorded
from simnmt.workload.arrivals.process import custom_arrivals
from simnmt.workload.corpus import FilterName, RatioFilter, read_corpus, text_pairs
from simnmt.workload.documents import CorpusDocuments, DocumentsConfiguration, DocumentSizes
from simnmt.workload.length_table import LengthTable, read_table
from simnmt.workload.length_units import Fertility, TokeniserKind, tokenisers_in, unit_and_counter
from simnmt.workload.lengths import MIXES, SENTENCES, LognormalLengths, lengths_in
from simnmt.workload.quality import Sentences, read_sentences
from simnmt.workload.repeats import RecordedRepeats, Repeats, RepeatsConfiguration

_NAME_OR_KEYS = Discriminator(lambda value: "by_keys" if isinstance(value, (dict, BaseModel)) else "by_name")

FilePath = Annotated[str, InputFile(), Field(min_length=1)]
_TokeniserPath = Annotated[str, InputFile(files_of=tokenisers_in), Field(min_length=1)]


class TokeniserUnit(RootModel[Annotated[dict[TokeniserKind, _TokeniserPath], Field(min_length=1, max_length=1)]]):
    """Lengths in the tokens of a tokeniser: `{sentencepiece: PATH}` or `{tokenizers: PATH}`.

    The path is relative to the scenario file, and names the file or a translation model's folder.
    """

    model_config = ConfigDict(strict=True, frozen=True)

    def written(self, base: Path) -> str:
        """Return the unit as `read_corpus` takes it."""
        ((kind, path),) = self.root.items()
        return f"{kind}:{base / path}"


Unit = Annotated[
    Annotated[Literal["word", "mixed", "char"], Tag("by_name")] | Annotated[TokeniserUnit, Tag("by_keys")], _NAME_OR_KEYS
]
Filter = Annotated[Annotated[FilterName, Tag("by_name")] | Annotated[RatioFilter, Tag("by_keys")], _NAME_OR_KEYS]


class Lengths(Configuration):
    """Where lengths come from; each form is a subclass. Relative paths start at the folder `base`."""

    fertility: Fertility | None = None
    """Tokens of the device profiles' unit per token counted here, where the two units differ; profiles that count in several
    units need a number for each by its name."""

    @abstractmethod
    def load(self, base: Path) -> LengthTable:
        """Return the lengths in the units in which they are counted; `convert_units` applies the fertility.

        Raises `CorpusError` for a fault of a file, `InputError` for an unknown `@name`.
        """


_TABLE_FILE = InputFile("traces/lengths")
_read_shipped_table = lru_cache(maxsize=8)(read_table)  # which does not change: a sweep reads it for every point (20 ms)


class TableFile(Lengths):
    """Lengths from a table of joint counts, as `simnmt corpus table` writes it."""

    table: Annotated[str, _TABLE_FILE, Field(min_length=1)]
    """`@name` of a shipped table, or a path, relative to the scenario file."""

    @model_serializer(mode="wrap")
    def _shortest(self, handler: SerializerFunctionWrapHandler) -> Any:
        return self.table if self.table.startswith("@") and self.model_fields_set == {"table"} else handler(self)

    def load(self, base: Path) -> LengthTable:
        return (_read_shipped_table if self.table.startswith("@") else read_table)(_TABLE_FILE.path(self.table, base))


class TextLengths(Lengths):
    """Fields of all lengths that are counted on a text."""

    src_unit: Unit
    """What a source length counts."""
    tgt_unit: Unit
    """What a target length counts."""
    filter: Filter = "cnmt"
    """Which pairs are dropped."""

    @property
    @abstractmethod
    def files(self) -> tuple[str, ...]:
        """Paths of the text: that of the sources, and of the targets if they have a file of their own."""

    @property
    def keys(self) -> tuple[str, str] | None:
        """Keys of the two texts in JSON Lines; None for another form."""
        return None

    def load(self, base: Path) -> LengthTable:
        src_unit, tgt_unit = self._written_units(base)
        paths = (base / file for file in self.files)
        return read_corpus(*paths, keys=self.keys, src_unit=src_unit, tgt_unit=tgt_unit, filter=self.filter)[0]

    def sentences(self, base: Path) -> Sentences:
        """Return the sentences of the text, also those that the filter drops. Raises `CorpusError`."""
        src_unit, tgt_unit = self._written_units(base)
        pairs = text_pairs([base / file for file in self.files], self.keys)
        return read_sentences(pairs, unit_and_counter(src_unit)[1], unit_and_counter(tgt_unit, "tgt")[1])

    def _written_units(self, base: Path) -> list[str]:
        return [unit if isinstance(unit, str) else unit.written(base) for unit in (self.src_unit, self.tgt_unit)]


class TextFiles(TextLengths):
    """Lengths from two text files, plain or gzip; line i of one is line i of the other, translated."""

    source: FilePath
    """Path, relative to the scenario file."""
    target: FilePath
    """Path, relative to the scenario file."""

    @property
    def files(self) -> tuple[str, ...]:
        return self.source, self.target


class TsvFile(TextLengths):
    """Lengths from one text file with two tab-separated columns, source and target; plain or gzip."""

    tsv: FilePath
    """Path, relative to the scenario file."""

    @property
    def files(self) -> tuple[str, ...]:
        return (self.tsv,)


class JsonLinesFile(TextLengths):
    """Lengths from JSON Lines, plain or gzip: an object a line that holds the two texts, or has them under `translation`."""

    jsonl: FilePath
    """Path, relative to the scenario file."""
    src_key: Annotated[str, Field(min_length=1)]
    """Key of the source text, such as `de`."""
    tgt_key: Annotated[str, Field(min_length=1)]
    """Key of the target text, such as `en`."""

    @property
    def files(self) -> tuple[str, ...]:
        return (self.jsonl,)

    @property
    def keys(self) -> tuple[str, str] | None:
        return self.src_key, self.tgt_key


class LognormalMix(Configuration):
    """A mix of the paper on top-up batching, or moments of your own."""

    mix: Literal["europarl", "opensubtitles"] | None = None
    """Moments, and number of sentences, of table 1: 26.3 and 14.9 subwords, or 9.4 and 6.1 (FNI-14)."""
    src_mean: Annotated[float, Field(gt=0.0, le=1e4)] | None = None
    """Mean source length, in subwords."""
    src_sd: Annotated[float, Field(ge=0.0, le=1e4)] | None = None
    """Standard deviation of the source length, in subwords."""
    spread: Annotated[float, Field(ge=0.0, le=1.0)] = 0.12
    """Standard deviation of the logarithm of target over source length."""
    sentences: Annotated[int, Field(ge=1, le=1_000_000)] | None = None
    """Pairs of lengths that are drawn for the table; left out: those of the mix, 50,000 with moments of your own."""

    @model_validator(mode="after")
    def _one_of_both(self) -> LognormalMix:
        stated = [value is not None for value in (self.mix, self.src_mean, self.src_sd)]
        if stated not in ([True, False, False], [False, True, True]):
            raise misfit("", "expected mix: europarl or mix: opensubtitles, or src_mean and src_sd")
        return self


class SyntheticLengths(Lengths):
    """Lengths that are drawn, of no text: log-normal sources, and targets that follow them."""

    lognormal: LognormalMix
    """Their moments."""

    def load(self, base: Path) -> LengthTable:
        drawn = self.lognormal
        if drawn.mix is not None:
            moments = replace(MIXES[drawn.mix], spread=drawn.spread)
            return moments.table(drawn.sentences or SENTENCES[drawn.mix], f"lognormal-{drawn.mix}")
        assert drawn.src_mean is not None and drawn.src_sd is not None
        return LognormalLengths(drawn.src_mean, drawn.src_sd, drawn.spread).table(drawn.sentences or 50_000)


class CustomLengths(Extended, Lengths):
    """Lengths that a user brings in Python; they count in the unit of the first device profile."""

    def load(self, base: Path) -> LengthTable:
        """Return the lengths of texts in words, and of numbers as they are."""
        return self.load_in("word", "word")

    def load_in(self, src_unit: str, tgt_unit: str) -> LengthTable:
        """Return the lengths in these units. Raises `ExtensionError`, or `CorpusError` for lengths that make no table."""
        return lengths_in(self.extension.value, self.kind, src_unit, tgt_unit)


def _table_of_name(name: str) -> dict[str, str]:
    if not name.startswith("@") or len(name) < 2:
        raise misfit("", f"{name} is no @name of a shipped length table (for a file of yours write a mapping, table: PATH)")
    return {"table": name}


_ShippedName = Annotated[str, Field(json_schema_extra={"pattern": "^@."})]
_form_of_mapping = form_by_key(
    table=TableFile, source=TextFiles, target=TextFiles, tsv=TsvFile, jsonl=JsonLinesFile, lognormal=SyntheticLengths
)

LengthsConfiguration = Annotated[
    Annotated[TableFile, BeforeValidator(_table_of_name, json_schema_input_type=_ShippedName), Tag("ShippedTable")]
    | Annotated[TableFile, Tag("TableFile")]
    | Annotated[TextFiles, Tag("TextFiles")]
    | Annotated[TsvFile, Tag("TsvFile")]
    | Annotated[JsonLinesFile, Tag("JsonLinesFile")]
    | Annotated[SyntheticLengths, Tag("SyntheticLengths")],
    Discriminator(
        lambda value: "ShippedTable" if isinstance(value, str) else _form_of_mapping(value),
        custom_error_type="no_lengths",
        custom_error_message="expected the @name of a shipped table, or one of table, tsv, jsonl, source and target, lognormal",
    ),
    Extensible(CustomLengths.of, takes_lists=True),
]
"""Source of the lengths; a bare `@name` is the table of that name. The tags are no keys of a scenario."""


MOST_TRIES = 100
"""Most further tries of a client."""


class Retries(Configuration):
    """When a client whose request was refused tries again: after pauses that grow, at the same decider."""

    most: Annotated[int, Field(ge=1, le=MOST_TRIES)] | None = None
    """Most further tries; left out: as many as fit into `timeout_ms`."""
    first_ms: Annotated[float, Field(gt=0.0, le=1e9)]
    """Pause before the first further try, from when the client receives the refusal."""
    factor: Annotated[float, Field(ge=1.0, le=1e3)] = 2.0
    """By which each pause is longer than the one before."""
    jitter: Annotated[float, Field(ge=0.0, le=1.0)] = 0.5
    """Largest share by which chance makes a pause longer or shorter, evenly distributed."""

    def pauses_s(self, timeout_s: float) -> list[float]:
        """Return the pauses without jitter before all tries that may begin within a time."""
        pauses_s, least_s = list[float](), 0.0
        while len(pauses_s) < (self.most or MOST_TRIES) and least_s < timeout_s:
            pauses_s.append(self.first_ms / 1e3 * self.factor ** len(pauses_s))
            least_s += pauses_s[-1] * (1.0 - self.jitter)
        return pauses_s


class ClientsConfiguration(Configuration):
    """What clients do about refusals and late answers."""

    timeout_ms: Annotated[float, Field(gt=0.0, le=1e9)] | None = None
    """Time from a client's first try after which it gives up: an answer that comes later counts for nothing, although its
    request is executed, and no try begins later. Left out: clients wait."""
    retries: Retries | None = None
    """When a client tries again that was refused. Left out: never."""

    @property
    def timeout_s(self) -> float:
        """Seconds after which a client gives up; infinite if it waits."""
        return inf if self.timeout_ms is None else self.timeout_ms / 1e3

    @property
    def pauses_s(self) -> list[float]:
        """The pauses before the further tries, without jitter."""
        return [] if self.retries is None else self.retries.pauses_s(self.timeout_s)

    @model_validator(mode="after")
    def _ends(self) -> ClientsConfiguration:
        if self.timeout_ms is None and self.retries is None:
            raise misfit("", "says nothing (give timeout_ms or retries)")
        if self.retries is not None and self.retries.most is None:
            if self.timeout_ms is None:
                raise misfit("retries", "has no end (give most, or clients.timeout_ms)")
            if len(self.pauses_s) == MOST_TRIES:
                raise misfit("retries", f"is {MOST_TRIES} tries or more within timeout_ms (give most)")
        return self


class WorkloadConfiguration(Configuration):
    """The sentences of a workload, and when they are requested."""

    lengths: LengthsConfiguration
    """`@name` of a shipped table of lengths, files of yours, or moments that lengths are drawn with."""
    arrivals: Annotated[Arrivals, Extensible(custom_arrivals, "simnmt.arrivals", takes_lists=True)] = BackToBack()
    """When requests arrive; null: back to back, as if left out."""
    documents: DocumentsConfiguration | None = None
    """How many sentences documents have, such as `{sentences: {dist: geometric, mean: 12}}`; each arrival is then a document,
    whose sentences are requests of one moment. Left out: each arrival is a sentence by itself."""
    lines_per_request: Annotated[int, Field(ge=1, le=1000)] = 1
    """Lines of text that a client packs into one request, such as a prompt of several lines; the lengths of a request are the
    sums of its lines', which are drawn independently."""
    end_nodes: int = Field(default=1, ge=1, le=1_000_000)
    """End nodes that share the gateway; their requests together make up the arrivals."""
    characters_per_request: Annotated[float, Field(gt=0.0, le=1e6)] | None = None
    """Mean characters of the source of a request, for rates and costs by characters. Left out: of lengths counted by char,
    theirs (without blanks); else unknown."""
    repeats: RepeatsConfiguration | None = None
    """How often sentences come back, such as `{zipf: 1.1, over: 50000}`, or `{recorded: LOG}` with a column of texts or hashes.
    All requests of a sentence have the same lengths. Left out: each request is a new sentence."""
    deadline_ms: Annotated[float, Field(gt=0.0, le=1e9)] | None = None
    """Time from a request to its answer within which the answer is useful: `deadline_met_share` and `goodput_rps` of the
    summary count by it. It changes no decision."""
    clients: ClientsConfiguration | None = None
    """When clients give up, and try again, such as `{timeout_ms: 5000, retries: {most: 3, first_ms: 100}}`. Left out: they wait
    for every answer, and a request that is refused is not tried again."""

    @field_validator("arrivals", mode="before", json_schema_input_type=Arrivals | None)
    @classmethod
    def _back_to_back_if_null(cls, arrivals: Any) -> Any:
        return {"kind": "back_to_back"} if arrivals is None else arrivals

    @model_validator(mode="after")
    def _has_documents_that_arrive(self) -> Self:
        if self.documents is None:
            return self
        if self.lines_per_request > 1:
            raise misfit(("lines_per_request",), "sentences of documents are requests of one line (leave one of them out)")
        if getattr(self.arrivals, "discipline", "open") != "open":
            raise misfit(("documents",), "documents arrive by themselves (give arrivals such as {kind: poisson, rate_rps: 1})")
        if isinstance(self.arrivals, Recorded) and self.arrivals.lengths == "rank":
            what = "lengths: rank orders sentences, but each row of the log is a document (write independent)"
            raise misfit(("documents",), what)
        if isinstance(self.documents, CorpusDocuments) and not isinstance(self.lengths, TextLengths):
            raise misfit(("documents", "corpus"), "the lengths are of no text whose blank lines could separate documents")
        return self

    def read_documents(self, base: Path) -> DocumentSizes | None:
        """Return how many sentences documents have; None if arrivals are no documents. Raises `InputError`."""
        return None if self.documents is None else self.documents.read(base, self.text_file)

    @property
    def text_file(self) -> str:
        """Path of the text of the sources that lengths are counted on; empty if they are counted on none."""
        return self.lengths.files[0] if isinstance(self.lengths, TextLengths) else ""

    def read_repeats(self, base: Path) -> Repeats | None:
        """Return how often sentences come back; None if each request is a new one. Raises `ArrivalsError`."""
        if self.repeats is None:
            return None
        is_log_of_arrivals = (
            isinstance(self.repeats, RecordedRepeats)
            and isinstance(self.arrivals, Recorded)
            and base / self.repeats.recorded == base / self.arrivals.file
        )
        return replace(self.repeats.read(base), is_log_of_arrivals=is_log_of_arrivals)
