"""What a scenario may say about its workload, and how the files it names become lengths."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Discriminator, Field, Tag, model_validator
from pydantic_core import PydanticCustomError

from simnmt.base import shipped_files
from simnmt.base.configuration import Configuration, EndOfSentence
from simnmt.base.suggestions import did_you_mean
from simnmt.workload.arrivals import Arrivals, BackToBack
from simnmt.workload.corpus import count_tokens, order_warning, read_corpus
from simnmt.workload.fertility import Fertility
from simnmt.workload.filters import FILTERS, RatioFilter, dropped_warning, keep
from simnmt.workload.length_table import LengthTable, read_table
from simnmt.workload.length_units import MODEL_PREFIX, TOKENISER_FILES, UNITS, Side, model_file, unit_of
from simnmt.workload.lognormal_lengths import MIXES, SENTENCES, LognormalLengths


def _refuse_unknown(noun: str, known: Collection[str]) -> AfterValidator:
    def check(name: str) -> str:
        if name not in known:
            context = {"noun": noun, "name": name, "remedy": did_you_mean(name, known)}
            raise PydanticCustomError("unknown_name", "unknown {noun} {name} ({remedy})", context)
        return name

    return AfterValidator(check)


def _at_name(name: str) -> str:
    if not name.startswith("@") or len(name) < 2:
        what = "{name} is no @name of a shipped length table (for a file of yours write a mapping, table: PATH)"
        raise PydanticCustomError("not_a_shipped_name", what, {"name": name})
    return name


UnitName = Annotated[str, _refuse_unknown("unit", UNITS), Field(json_schema_extra={"enum": list(UNITS)})]
FilterName = Annotated[str, _refuse_unknown("filter", FILTERS), Field(json_schema_extra={"enum": list(FILTERS)})]
FilePath = Annotated[str, Field(min_length=1)]
ShippedName = Annotated[str, AfterValidator(_at_name), Field(json_schema_extra={"pattern": "^@."})]


class SentencePieceUnit(Configuration):
    """Lengths in the pieces of a sentencepiece model."""

    sentencepiece: FilePath
    """Path of the model, relative to the scenario file, or of a translation model's folder, which has one for each side."""

    def file(self, base: Path, side: Side) -> Path:
        """Return the sentencepiece model of one side. Raises `CorpusError` for a folder without one."""
        return model_file(base / self.sentencepiece, side)


def _unit_form(value: Any) -> str:
    return "unit_of_model" if isinstance(value, (dict, SentencePieceUnit)) else "unit_by_name"


def _filter_form(value: Any) -> str:
    return "filter_with_parameters" if isinstance(value, (dict, RatioFilter)) else "filter_by_name"


# The tags stand in the location of pydantic's errors; they are no keys.
Unit = Annotated[
    Annotated[UnitName, Tag("unit_by_name")] | Annotated[SentencePieceUnit, Tag("unit_of_model")], Discriminator(_unit_form)
]
FilterConfiguration = Annotated[
    Annotated[FilterName, Tag("filter_by_name")] | Annotated[RatioFilter, Tag("filter_with_parameters")],
    Discriminator(_filter_form),
]


class _Counted(Configuration):
    """What may be said of any lengths."""

    fertility: Fertility | None = None
    """Tokens of the device profiles' unit per token counted here, where the two units differ; profiles that count in several
    units need a number for each by its name."""


class _Lengths(_Counted):
    """What may be said of any lengths from a file."""

    expect_ratio: Annotated[float, Field(gt=0.0, le=1000.0)] | None = None
    """Mean target over mean source tokens that you expect (no slope: the line does not pass through 0); left out, the shipped
    tables of the language pair tell. Lengths that look as if source and target were swapped are warned of."""
    filter_replay: bool = True
    """Whether requests are drawn from the pairs that the filter keeps; false: the filter decides what the policies fit on, and
    requests are drawn from all pairs but those with an empty side."""


class TableFile(_Lengths):
    """Lengths from a table of joint counts, as `simnmt corpus table` writes it."""

    table: FilePath
    """`@name` of a shipped table, or a path, relative to the scenario file."""
    end_of_sentence: EndOfSentence | None = None
    """Which lengths of the table count the end-of-sentence token; left out: as its header says, which is `none` by default."""
    filter: FilterConfiguration | None = None
    """Which further pairs are dropped; only by rules that look at lengths alone."""


class _Text(_Lengths):
    """What may be said of any text."""

    src_unit: Unit
    """What a source length counts."""
    tgt_unit: Unit
    """What a target length counts."""
    filter: FilterConfiguration = "cnmt"
    """Which pairs are dropped."""
    models: list[FilePath] = Field(default_factory=list)
    """Further sentencepiece models, or folders of translation models, in whose pieces profiles count; relative to the scenario
    file. The fertility between these and the workload's unit is counted on the text."""


class TextFiles(_Text):
    """Lengths from two text files, plain or gzip; line i of one is line i of the other, translated."""

    source: FilePath
    """Path, relative to the scenario file."""
    target: FilePath
    """Path, relative to the scenario file."""


class TsvFile(_Text):
    """Lengths from one text file with two tab-separated columns, source and target; plain or gzip."""

    tsv: FilePath
    """Path, relative to the scenario file."""


class JsonLinesFile(_Text):
    """Lengths from JSON Lines, plain or gzip: an object a line that holds the two texts, or has them under `translation`."""

    jsonl: FilePath
    """Path, relative to the scenario file."""
    src_key: Annotated[str, Field(min_length=1)]
    """Key of the source text, such as `de`."""
    tgt_key: Annotated[str, Field(min_length=1)]
    """Key of the target text, such as `en`."""


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
    end: Annotated[int, Field(ge=0, le=1000)] = 1
    """Tokens that every target has beside its text: the end symbol."""
    sentences: Annotated[int, Field(ge=1, le=1_000_000)] | None = None
    """Pairs of lengths that are drawn for the table; left out: those of the mix, 50,000 with moments of your own."""
    seed: Annotated[int, Field(ge=0, le=2**32 - 1)] = 0
    """Of the draw; the run's own seed deals out the table's pairs to requests."""

    @model_validator(mode="after")
    def _one_of_both(self) -> LognormalMix:
        moments = [self.src_mean, self.src_sd]
        if self.mix is not None and moments != [None, None]:
            what = "mix: {mix} has moments of its own (remove src_mean and src_sd, or mix)"
            raise PydanticCustomError("mix_and_moments", what, {"mix": self.mix})
        if self.mix is None and None in moments:
            raise PydanticCustomError("no_moments", "expected mix: europarl or mix: opensubtitles, or src_mean and src_sd")
        return self


class SyntheticLengths(_Counted):
    """Lengths that are drawn, of no text: log-normal sources, and targets that follow them."""

    lognormal: LognormalMix
    """Their moments."""


_FORMS = (
    (TableFile, "table_file", ("table",)),
    (TextFiles, "text_files", ("source", "target")),
    (TsvFile, "tsv_file", ("tsv",)),
    (JsonLinesFile, "json_lines_file", ("jsonl",)),
    (SyntheticLengths, "synthetic_lengths", ("lognormal",)),
)


def _form(value: Any) -> str | None:
    """The tag of the form that a value means to have, so that complaints are about that form alone."""
    if isinstance(value, str):
        return "shipped_table"
    for form, tag, keys in _FORMS:
        if isinstance(value, form) or (isinstance(value, dict) and any(key in value for key in keys)):
            return tag
    return None


LengthsConfiguration = Annotated[
    Annotated[ShippedName, Tag("shipped_table")]
    | Annotated[TableFile, Tag("table_file")]
    | Annotated[TextFiles, Tag("text_files")]
    | Annotated[TsvFile, Tag("tsv_file")]
    | Annotated[JsonLinesFile, Tag("json_lines_file")]
    | Annotated[SyntheticLengths, Tag("synthetic_lengths")],
    Discriminator(
        _form,
        custom_error_type="no_lengths",
        custom_error_message="expected the @name of a shipped table, or one of table, tsv, jsonl, source and target, lognormal",
    ),
]
"""Where lengths come from. The tags stand in the location of pydantic's errors; they are no keys."""

Lengths = str | TableFile | TextFiles | TsvFile | JsonLinesFile | SyntheticLengths
"""A `LengthsConfiguration` once read."""


class WorkloadConfiguration(Configuration):
    """What is to be translated, and when it is asked for."""

    lengths: LengthsConfiguration
    """`@name` of a shipped table of lengths, files of yours, or moments that lengths are drawn with."""
    arrivals: Arrivals = BackToBack()
    """When requests arrive."""
    end_nodes: int = Field(default=1, ge=1, le=1_000_000)
    """End nodes that share the gateway; their requests together make up the arrivals."""


def load_lengths(config: Lengths, base: Path) -> LengthTable:
    """The table that a configuration names, in the units it is counted in; relative paths start at the folder `base`.

    A stated fertility is not applied: only the device profiles say which unit is wanted (`fertility.convert_units`).

    Raises `CorpusError` for a file's fault, `InputError` for an unknown `@name`.
    """
    if isinstance(config, str | TableFile):
        table = read_table(_table_path(config if isinstance(config, str) else config.table, base))
        if isinstance(config, str):
            return table
        if config.end_of_sentence is not None:
            table = replace(table, end_of_sentence=config.end_of_sentence)
        return _filtered(table, config.filter)
    if isinstance(config, SyntheticLengths):
        return _drawn(config.lognormal)
    source, *others = (base / getattr(config, key) for key in _file_keys(config))
    return read_corpus(
        source,
        *others,
        keys=(config.src_key, config.tgt_key) if isinstance(config, JsonLinesFile) else None,
        src_unit=_asked(config.src_unit, base),
        tgt_unit=_asked(config.tgt_unit, base),
        filter=config.filter,
    )[0]


def load_replayed_outliers(config: Lengths, base: Path, kept: LengthTable) -> LengthTable | None:
    """Return the pairs that the filter drops and that requests are drawn from all the same (`filter_replay: false`).

    `kept`: what `load_lengths` returned. None where requests are drawn from the kept pairs alone, or the filter drops none.
    """
    if isinstance(config, str | SyntheticLengths) or config.filter_replay:
        return None
    unfiltered = None if isinstance(config, TableFile) else "none"
    return load_lengths(config.model_copy(update={"filter": unfiltered}), base).minus(kept)


def lengths_warnings(config: Lengths, table: LengthTable) -> tuple[str, ...]:
    """Return a line for each doubt about the lengths that `load_lengths` returned: a filter that dropped more than 5 % of the
    pairs, and languages that seem to be swapped. None for `@names` and lengths of no text."""
    if isinstance(config, str | SyntheticLengths):
        return ()
    warnings = (dropped_warning(table.filtered), order_warning(table, config.expect_ratio))
    return tuple(warning for warning in warnings if warning)


def fertility_of(config: Lengths) -> Fertility | None:
    """What is stated of the fertility; None where nothing is, as for a bare `@name`."""
    return None if isinstance(config, str) else config.fertility


def count_fertility(config: Lengths, base: Path, units: Mapping[Side, Collection[str]]) -> dict[Side, dict[str, float]]:
    """Count on the corpus, in one reading, how many tokens of other units a token of the workload makes on average.

    Args:
        config: what the workload says of its lengths.
        base: the folder at which relative paths start.
        units: by side, the units other than the workload's.

    Returns the numbers by side and unit, without units that cannot be counted: those of lengths without a text, and those that
    are neither one of `length_units.UNITS` nor of a sentencepiece model that `config` names. All pairs count, filter or not.

    Raises `CorpusError` as `load_lengths` does.
    """
    fertility: dict[Side, dict[str, float]] = {"src": {}, "tgt": {}}
    if not isinstance(config, _Text) or not any(units.values()):
        return fertility
    countable: dict[Side, dict[str, str]] = {
        side: {unit: _asked(form, base) for unit, form in _countable(config, base, side).items() if unit in units[side]}
        for side in fertility
    }
    if not any(countable.values()):
        return fertility
    workload_unit = {"src": _asked(config.src_unit, base), "tgt": _asked(config.tgt_unit, base)}
    paths = [base / getattr(config, key) for key in _file_keys(config)]
    keys = (config.src_key, config.tgt_key) if isinstance(config, JsonLinesFile) else None
    tokens = count_tokens(paths, {side: [workload_unit[side], *forms.values()] for side, forms in countable.items()}, keys)
    for side, forms in countable.items():
        in_workload_unit, *in_others = tokens[side]
        fertility[side] = {unit: total / in_workload_unit for unit, total in zip(forms, in_others, strict=True)}
    return fertility


def _countable(config: _Text, base: Path, side: Side) -> dict[str, str | SentencePieceUnit]:
    """Return the units in which a side of the text can be counted, by name."""
    named = [unit for unit in (config.src_unit, config.tgt_unit) if isinstance(unit, SentencePieceUnit)]
    named += [SentencePieceUnit(sentencepiece=model) for model in config.models]
    return {**{unit: unit for unit in UNITS}, **{unit_of(unit.file(base, side)): unit for unit in named}}


def named_inputs(config: Lengths, base: Path) -> dict[str, Path]:
    """The files that `load_lengths` reads, in its order, models of units last; by the name of each, an `@name` or its path.

    Raises `InputError` for an unknown `@name`.
    """
    if isinstance(config, str | TableFile):
        table = config if isinstance(config, str) else config.table
        path = _table_path(table, base)
        return {table if _is_shipped(table) else str(path): path}
    if isinstance(config, SyntheticLengths):
        return {}
    files = [getattr(config, key) for key in _file_keys(config)]
    paths = [base / file for file in files]
    sides: tuple[tuple[Side, str | SentencePieceUnit], ...] = (("src", config.src_unit), ("tgt", config.tgt_unit))
    paths += [unit.file(base, side) for side, unit in sides if isinstance(unit, SentencePieceUnit)]
    paths += [model_file(base / model, side) for model in config.models for side in TOKENISER_FILES]
    return {str(path): path for path in paths}


def resolved(config: Lengths, base: Path) -> Lengths:
    """The same configuration with absolute paths; an `@name` stays, since it means the same everywhere."""
    if isinstance(config, str | SyntheticLengths):
        return config
    changed: dict[str, object] = {}
    for key in _file_keys(config):
        file = getattr(config, key)
        shipped_table = isinstance(config, TableFile) and _is_shipped(file)
        changed[key] = file if shipped_table else os.path.realpath(base / file)
    for key in ("src_unit", "tgt_unit"):
        unit = getattr(config, key, None)
        if isinstance(unit, SentencePieceUnit):
            changed[key] = SentencePieceUnit(sentencepiece=os.path.realpath(base / unit.sentencepiece))
    if isinstance(config, _Text):
        changed["models"] = [os.path.realpath(base / model) for model in config.models]
    return config.model_copy(update=changed)


def _file_keys(config: TableFile | TextFiles | TsvFile | JsonLinesFile) -> tuple[str, ...]:
    return next(keys for form, _, keys in _FORMS if isinstance(config, form))


def _drawn(mix: LognormalMix) -> LengthTable:
    if mix.mix is not None:
        lengths, sentences, name = MIXES[mix.mix], SENTENCES[mix.mix], f"lognormal-{mix.mix}"
        lengths = replace(lengths, spread=mix.spread, end=mix.end)
    else:
        assert mix.src_mean is not None and mix.src_sd is not None
        lengths, sentences, name = LognormalLengths(mix.src_mean, mix.src_sd, mix.spread, mix.end), 50_000, "lognormal"
    return lengths.table(mix.sentences or sentences, mix.seed, name)


def _is_shipped(table: str) -> bool:
    return table.startswith("@")


def _table_path(table: str, base: Path) -> Path:
    return shipped_files.find("traces/lengths", table) if _is_shipped(table) else base / table


def _asked(unit: str | SentencePieceUnit, base: Path) -> str:
    """A unit as `read_corpus` takes it."""
    return unit if isinstance(unit, str) else f"{MODEL_PREFIX}{base / unit.sentencepiece}"


def _filtered(table: LengthTable, by: str | RatioFilter | None) -> LengthTable:
    if by is None:
        return table
    kept, dropped = keep(by, table.src_len, table.tgt_len, table.count, per_word=table.tokens_per_word)
    return table.only(kept, str(dropped))
