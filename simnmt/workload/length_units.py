"""Units of length: the tokens of a sentence (CNMT-07), and the conversion of lengths from one unit to another.

A unit is counted here (`word`, `mixed`, `char`) or by a sentencepiece model or a `tokenizer.json`, as by the translation models
that we calibrate. Tables and profiles may name further units, such as the subwords of an unavailable model: their lengths are
used unchanged, or converted by a stated fertility, since a plane in seconds per subword cannot be evaluated for words.
"""

from __future__ import annotations

import hashlib
import os
import re
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Discriminator, Field, Tag

from simnmt.base.configuration import Configuration
from simnmt.base.errors import describe_error
from simnmt.base.files import MOST_MODEL_BYTES, read_bounded
from simnmt.base.packages import install_command
from simnmt.base.suggestions import did_you_mean, format_list
from simnmt.workload import CorpusError
from simnmt.workload.length_table import LengthTable

Count = Callable[[str], int]
Side = Literal["src", "tgt"]
TokeniserKind = Literal["sentencepiece", "tokenizers"]
"""Libraries that count tokens: sentencepiece for its models, tokenizers for a `tokenizer.json` of Hugging Face.

A unit given as a text is the kind, a colon and a path; the name of a unit is the kind, a blank and the file's digest.
"""
KINDS: tuple[TokeniserKind, ...] = ("sentencepiece", "tokenizers")

_HAN = (
    "\u2e80-\u2fdf"  # radicals
    "\u3005\u3007\u3021-\u3029\u3038-\u303b"  # iteration mark, zero, Suzhou numerals
    "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003fffd"  # unified and compatibility ideographs
)
_CJK_PUNCTUATION = (
    "\u3001-\u3004\u3006\u3008-\u3020\u302a-\u3037\u303c-\u303f"  # symbols, marks
    "\ufe30-\ufe6b"  # vertical and small forms
    "\uff01-\uff0f\uff1a-\uff20\uff3b-\uff40\uff5b-\uff65\uffe0-\uffee"  # full-width marks
)
_MIXED_TOKEN = re.compile(f"[{_HAN}{_CJK_PUNCTUATION}]|[^\\s{_HAN}{_CJK_PUNCTUATION}]+")


def count_words(text: str) -> int:
    """Count the runs of characters between white space."""
    return len(text.split())


def count_mixed(text: str) -> int:
    """Count each Han character, each CJK punctuation mark, and each run of other non-blank characters.

    Quotation marks, dashes and ellipses that Chinese shares with Latin text (such as U+2018) belong to the runs.
    """
    return len(_MIXED_TOKEN.findall(text))


def count_characters(text: str) -> int:
    """Count the characters (code points) that are not blank."""
    return len("".join(text.split()))


UNITS: dict[str, Count] = {"word": count_words, "mixed": count_mixed, "char": count_characters}
"""Counting functions by the unit's name in files and on the command line."""


def unit_and_counter(unit: str, side: Side = "src") -> tuple[str, Count]:
    """Return (name, counting function) of a unit, given as a name of `UNITS`, `sentencepiece:PATH` or `tokenizers:PATH`.

    PATH may be the folder of a translation model, which may have a tokeniser for each `side`. Marks of the beginning or end of
    a text are not counted. Raises `CorpusError` for an unknown name, a file that is no such model, and a missing package.
    """
    if (path := _tokeniser_path(unit, side)) is not None:
        model = _read(path)
        load = _tokenizers_counter if _kind_of(model) == "tokenizers" else _sentencepiece_counter
        return unit_of_content(model), load(path, model)
    if unit not in UNITS:
        raise CorpusError(f"unknown unit {unit!r}", remedy=did_you_mean(unit, [*UNITS, *(f"{kind}:PATH" for kind in KINDS)]))
    return unit, UNITS[unit]


def source_and_target(units: str) -> tuple[str, str]:
    """Return the two units of `SRC:TGT`, or one unit for both sides; paths of tokenisers may contain colons."""
    parts = re.split(f":(?=(?:{'|'.join(UNITS)})$|(?:{'|'.join(KINDS)}):)", units, maxsplit=1)
    return parts[0], parts[-1]


# --- tokenisers ---

_SHARED_FILES = ("sentencepiece.bpe.model", "spiece.model")
"""File names of the sentencepiece model of both sides in Hugging Face folders, such as those of NLLB and Pegasus."""
_SENTENCEPIECE_FILES: dict[Side, tuple[str, ...]] = {
    "src": ("source.model", "source.spm", *_SHARED_FILES),
    "tgt": ("target.model", "target.spm", *_SHARED_FILES),
}
"""File names of sentencepiece models in a folder of `simnmt nmt train`, and in Hugging Face folders."""


def _file_names(side: Side, kind: TokeniserKind | None) -> tuple[str, ...]:
    names = () if kind == "tokenizers" else _SENTENCEPIECE_FILES[side]
    return names if kind == "sentencepiece" else (*names, "tokenizer.json")


def tokeniser_in(folder: str | os.PathLike[str], side: Side, kind: TokeniserKind | None = None) -> Path | None:
    """Return the tokeniser of one side in a translation model's folder; None if it has none of the kind, or of any kind."""
    return next((path for name in _file_names(side, kind) if (path := Path(folder) / name).is_file()), None)


def tokenisers_in(path: Path) -> list[Path]:
    """Return the tokenisers of both sides in a folder; a file is its own."""
    sides: tuple[Side, Side] = ("src", "tgt")
    files = [tokeniser_in(path, side) for side in sides] if path.is_dir() else [path]
    return list(dict.fromkeys(file for file in files if file is not None))


def _tokeniser_path(unit: str, side: Side) -> Path | None:
    """Return the file of a unit given as a kind of tokeniser and a path to it or its folder; None for another unit."""
    for kind in KINDS:
        if unit.startswith(f"{kind}:"):
            path = Path(unit.removeprefix(f"{kind}:"))
            tokeniser = tokeniser_in(path, side, kind) if path.is_dir() else path
            if tokeniser is None:
                remedy = (
                    "name the folder of a translation model, or the file of its tokeniser: *.model, *.spm or tokenizer.json"
                )
                raise CorpusError(f"a folder without {' or '.join(_file_names(side, kind)[:2])}", path=path, remedy=remedy)
            return tokeniser
    return None


def unit_of(path: str | os.PathLike[str]) -> str:
    """Return the name of the unit of a tokeniser, from its content alone. Raises `CorpusError` for an unreadable file."""
    return unit_of_content(_read(Path(path)))


def unit_of_content(model: bytes) -> str:
    """Return the name of the unit of a tokeniser: its library and the first 12 hexadecimal digits of its SHA-256."""
    return f"{_kind_of(model)} {hashlib.sha256(model).hexdigest()[:12]}"


def _kind_of(model: bytes) -> TokeniserKind:
    return "tokenizers" if model[:64].lstrip().startswith(b"{") else "sentencepiece"


def _read(path: Path) -> bytes:
    try:
        return read_bounded(path, MOST_MODEL_BYTES)
    except FileNotFoundError:
        raise CorpusError("no such file", path=path, remedy="check the path of the tokeniser") from None
    except OSError as error:
        remedy = "give a sentencepiece model, usually named *.model or *.spm, or a tokenizer.json"
        raise CorpusError(f"cannot be read: {error.strerror or error}", path=path, remedy=remedy) from None


def _tokenizers_counter(path: Path, model: bytes) -> Count:
    try:
        from tokenizers import Tokenizer
    except ImportError:
        what = "lengths in tokens of a tokenizer.json need the package tokenizers"
        raise CorpusError(what, remedy=install_command("tokenizers")) from None
    try:
        tokenizer: Any = Tokenizer.from_str(model.decode("utf-8"))
    except Exception as error:  # the library raises bare exceptions
        remedy = "give the tokenizer.json that the library tokenizers wrote"
        raise CorpusError(f"no tokeniser: {describe_error(error)}", path=path, remedy=remedy) from None
    tokenizer.no_padding()
    tokenizer.no_truncation()
    return lambda text: len(tokenizer.encode(text, add_special_tokens=False).ids)


def _sentencepiece_counter(path: Path, model: bytes) -> Count:
    with warnings.catch_warnings():
        # Its bindings warn of their own types on newer Pythons.
        warnings.simplefilter("ignore", DeprecationWarning)
        try:
            from sentencepiece import SentencePieceProcessor
        except ImportError:
            what = "lengths in pieces of a sentencepiece model need the package sentencepiece"
            raise CorpusError(what, remedy=install_command("sentencepiece")) from None
    try:
        processor = SentencePieceProcessor(model_proto=model)
        usable = processor.get_piece_size() > 0
    except (RuntimeError, OSError, ValueError):
        usable = False
    if not usable:
        remedy = "give the .model file that its training wrote, not the .vocab beside it"
        raise CorpusError("no sentencepiece model", path=path, remedy=remedy)
    return lambda text: len(processor.encode(text))


# --- conversion by a stated fertility ---

Factor = Annotated[float, Field(gt=0.0, le=100.0)]
Factors = Annotated[
    Annotated[dict[str, Factor], Field(min_length=1), Tag("by_unit")] | Annotated[Factor, Tag("one_factor")],
    Discriminator(lambda value: "by_unit" if isinstance(value, dict) else "one_factor"),
]
"""One number for the only unit of the device profiles, or a number for each of their units by name."""


class Fertility(Configuration):
    """Mean tokens of the device profiles' unit, or of each such unit by name, per token of the workload's unit."""

    src: Factors | None = None
    """Fertility of the source side; left out if both units are the same."""
    tgt: Factors | None = None
    """Fertility of the target side; left out if both units are the same."""

    def factor(self, side: Side, unit: str) -> float | None:
        """Return the mean tokens of a unit per token of the workload; None if not stated."""
        stated = self.src if side == "src" else self.tgt
        return stated.get(unit) if isinstance(stated, dict) else stated

    def check(self, side: Side, unit: str, profile_units: Sequence[str]) -> None:
        """Raise `CorpusError` for one number of a workload in `unit` where device profiles count in several others."""
        stated = self.src if side == "src" else self.tgt
        foreign = [other for other in profile_units if other != unit]
        if isinstance(stated, float) and len(foreign) > 1:
            what = f"fertility.{side} is one number, but the profiles count by {format_list(foreign)}"
            numbers = ", ".join(f"{other}: NUMBER" for other in foreign)
            raise CorpusError(what, remedy=f"state one for each: {side}: {{{numbers}}}")


def counting_remedy(side: str, wanted: str) -> str:
    """Return the remedy for a side of a workload that is not counted in a profile's unit `wanted`."""
    if wanted in UNITS:
        return f"count the text by {wanted}"
    if (kind := wanted.partition(" ")[0]) in KINDS:
        return f"name the folder of the model, {side}_unit: {{{kind}: FOLDER}}, beside the text"
    return "calibrate a model's folder, whose tokeniser names the unit"


def convert_units(table: LengthTable, fertility: Fertility, src_unit: str, tgt_unit: str) -> LengthTable:
    """Return the table with lengths in these units of a device profile; the table itself if it has them already.

    Raises `CorpusError` for a side with different units and no fertility, and for a fertility though the units are the same.
    """
    factors: list[float] = []
    units: dict[Side, tuple[str, str]] = {"src": (table.src_unit, src_unit), "tgt": (table.tgt_unit, tgt_unit)}
    for side, (unit, wanted) in units.items():
        stated = fertility.factor(side, wanted)
        if unit != wanted and stated is None:
            what = f"{side} lengths of {table.name} are counted by {unit}, the profile's by {wanted}"
            remedy = f"{counting_remedy(side, wanted)}, or state fertility.{side}: {wanted} per {unit}"
            raise CorpusError(what, remedy=remedy)
        if unit == wanted and stated not in (None, 1.0):
            what = f"fertility.{side} is {stated:g}, but table {table.name} and the profile both count it by {unit}"
            raise CorpusError(what, remedy="leave it out")
        factors.append(stated or 1.0)
    is_same = (table.src_unit, table.tgt_unit) == (src_unit, tgt_unit)
    return table if is_same else table.with_fertility(factors[0], factors[1], src_unit, tgt_unit)
