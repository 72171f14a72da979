"""What a scenario may say about its workload, and how the files it names become lengths."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, Discriminator, Field, Tag
from pydantic_core import PydanticCustomError

from simnmt import shipped
from simnmt.configuration import Configuration
from simnmt.workload.arrivals import Arrivals, BackToBack
from simnmt.workload.corpus import read_corpus
from simnmt.workload.counting import UNITS
from simnmt.workload.errors import nearest
from simnmt.workload.filters import FILTERS
from simnmt.workload.length_table import LengthTable, read_table


def _known_unit(unit: str) -> str:
    if unit not in UNITS:
        raise PydanticCustomError(
            "unknown_unit", "unknown unit {unit} ({remedy})", {"unit": unit, "remedy": nearest(unit, UNITS)}
        )
    return unit


def _known_filter(name: str) -> str:
    if name not in FILTERS:
        remedy = nearest(name, FILTERS)
        raise PydanticCustomError("unknown_filter", "unknown filter {name} ({remedy})", {"name": name, "remedy": remedy})
    return name


def _at_name(name: str) -> str:
    if not name.startswith("@") or len(name) < 2:
        what = "{name} is no @name of a shipped length table (for a file of yours write a mapping, table: PATH)"
        raise PydanticCustomError("not_a_shipped_name", what, {"name": name})
    return name


Unit = Annotated[str, AfterValidator(_known_unit), Field(json_schema_extra={"enum": list(UNITS)})]
FilterName = Annotated[str, AfterValidator(_known_filter), Field(json_schema_extra={"enum": list(FILTERS)})]
FilePath = Annotated[str, Field(min_length=1)]
ShippedName = Annotated[str, AfterValidator(_at_name), Field(json_schema_extra={"pattern": "^@."})]


class TableFile(Configuration):
    """Lengths from a table of joint counts, as `simnmt corpus table` writes it."""

    table: FilePath
    """Path, relative to the scenario file."""


class TextFiles(Configuration):
    """Lengths from two text files, plain or gzip; line i of one is line i of the other, translated."""

    source: FilePath
    """Path, relative to the scenario file."""
    target: FilePath
    """Path, relative to the scenario file."""
    src_unit: Unit
    """What a source length counts."""
    tgt_unit: Unit
    """What a target length counts."""
    filter: FilterName = "cnmt"
    """Which pairs are dropped."""


class TsvFile(Configuration):
    """Lengths from one text file with two tab-separated columns, source and target; plain or gzip."""

    tsv: FilePath
    """Path, relative to the scenario file."""
    src_unit: Unit
    """What a source length counts."""
    tgt_unit: Unit
    """What a target length counts."""
    filter: FilterName = "cnmt"
    """Which pairs are dropped."""


def _form(value: Any) -> str | None:
    """The tag of the form that a value means to have, so that complaints are about that form alone."""
    if isinstance(value, str):
        return "shipped_table"
    for form, tag, keys in (
        (TableFile, "table_file", ("table",)),
        (TextFiles, "text_files", ("source", "target")),
        (TsvFile, "tsv_file", ("tsv",)),
    ):
        if isinstance(value, form) or (isinstance(value, dict) and any(key in value for key in keys)):
            return tag
    return None


LengthsConfiguration = Annotated[
    Annotated[ShippedName, Tag("shipped_table")]
    | Annotated[TableFile, Tag("table_file")]
    | Annotated[TextFiles, Tag("text_files")]
    | Annotated[TsvFile, Tag("tsv_file")],
    Discriminator(
        _form,
        custom_error_type="no_lengths",
        custom_error_message="expected the @name of a shipped table, or one of table, tsv, source and target",
    ),
]
"""Where lengths come from. The tags stand in the location of pydantic's errors; they are no keys."""

Lengths = str | TableFile | TextFiles | TsvFile
"""A `LengthsConfiguration` once read."""


class WorkloadConfiguration(Configuration):
    """What is to be translated, and when it is asked for."""

    lengths: LengthsConfiguration
    """`@name` of a shipped table of lengths, or files of yours."""
    arrivals: Arrivals = BackToBack()
    """When requests arrive."""
    end_nodes: int = Field(default=1, ge=1, le=1_000_000)
    """End nodes that share the gateway; their requests together make up the arrivals."""


def load_lengths(config: Lengths, base: Path) -> LengthTable:
    """The table that a configuration names; relative paths start at the folder `base`.

    Raises `CorpusError` for a file's fault, `InputError` for an unknown `@name`.
    """
    if isinstance(config, TextFiles):
        source, target = input_paths(config, base)
        return read_corpus(source, target, src_unit=config.src_unit, tgt_unit=config.tgt_unit, filter=config.filter)[0]
    (path,) = input_paths(config, base)
    if isinstance(config, TsvFile):
        return read_corpus(path, src_unit=config.src_unit, tgt_unit=config.tgt_unit, filter=config.filter)[0]
    return read_table(path)


def input_paths(config: Lengths, base: Path) -> list[Path]:
    """The files that `load_lengths` reads, in its order; a shipped one too.

    Raises `InputError` for an unknown `@name`.
    """
    if isinstance(config, str):
        return [shipped.find("traces/lengths", config)]
    return [base / getattr(config, key) for key in _path_keys(config)]


def resolved(config: Lengths, base: Path) -> Lengths:
    """The same configuration with absolute paths; an `@name` stays, since it means the same everywhere."""
    if isinstance(config, str):
        return config
    return config.model_copy(update={key: str((base / getattr(config, key)).resolve()) for key in _path_keys(config)})


def _path_keys(config: TableFile | TextFiles | TsvFile) -> list[str]:
    return [key for key in ("table", "source", "target", "tsv") if key in type(config).model_fields]
