"""Configuration of the unit in which a scenario counts lengths: a unit by name, or the tokens of a tokeniser's file."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Annotated, Any, ClassVar

from pydantic import AfterValidator, Discriminator, Field, Tag
from pydantic_core import PydanticCustomError

from simnmt.base.configuration import Configuration, InputFile
from simnmt.base.suggestions import did_you_mean
from simnmt.workload.length_units import TOKENISER_FILES, UNITS, Side, TokeniserKind, model_file, tokeniser_in


def refuse_unknown(noun: str, known: Collection[str]) -> AfterValidator:
    """Return the check that a name is one of the known ones."""

    def check(name: str) -> str:
        if name not in known:
            context = {"noun": noun, "name": name, "remedy": did_you_mean(name, known)}
            raise PydanticCustomError("unknown_name", "unknown {noun} {name} ({remedy})", context)
        return name

    return AfterValidator(check)


UnitName = Annotated[str, refuse_unknown("unit", UNITS), Field(json_schema_extra={"enum": list(UNITS)})]
FilePath = Annotated[str, InputFile(), Field(min_length=1)]


def _tokeniser_files(path: Path) -> list[Path]:
    """Return the tokenisers of both sides in a folder."""
    files = [tokeniser_in(path, side) for side in TOKENISER_FILES] if path.is_dir() else [path]
    return list(dict.fromkeys(file for file in files if file is not None))


TokeniserPath = Annotated[str, InputFile(files_of=_tokeniser_files), Field(min_length=1)]


class TokeniserUnit(Configuration):
    """Lengths in the tokens of a tokeniser, which a subclass names under its kind."""

    kind: ClassVar[TokeniserKind]
    """The library that counts, and the key of the path."""

    @property
    def path(self) -> str:
        """The named file or folder."""
        path: str = getattr(self, self.kind)
        return path

    def file(self, base: Path, side: Side) -> Path:
        """Return the tokeniser of one side. Raises `CorpusError` for a folder without one."""
        return model_file(base / self.path, side, self.kind)


class SentencePieceUnit(TokeniserUnit):
    """Lengths in the pieces of a sentencepiece model."""

    kind = "sentencepiece"
    sentencepiece: TokeniserPath
    """Path of the model, relative to the scenario file, or of a translation model's folder, which has one for each side."""


class TokenizersUnit(TokeniserUnit):
    """Lengths in the tokens of a tokenizer.json of Hugging Face."""

    kind = "tokenizers"
    tokenizers: TokeniserPath
    """Path of the tokenizer.json, relative to the scenario file, or of a folder that holds it."""


def _unit_tag(value: Any) -> str:
    if not isinstance(value, (dict, TokeniserUnit)):
        return "unit_by_name"
    named = value if isinstance(value, dict) else {value.kind: value.path}
    return "unit_of_tokenizer" if "tokenizers" in named else "unit_of_model"


# The tags are part of the location in pydantic's errors, but no keys of a scenario.
Unit = Annotated[
    Annotated[UnitName, Tag("unit_by_name")]
    | Annotated[SentencePieceUnit, Tag("unit_of_model")]
    | Annotated[TokenizersUnit, Tag("unit_of_tokenizer")],
    Discriminator(_unit_tag),
]
