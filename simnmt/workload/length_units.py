"""Units of length: the tokens of a sentence (CNMT-07).

A unit is counted here (`word`, `mixed`, `char`) or by a sentencepiece model or a `tokenizer.json`, as by the translation models
that we calibrate.
Tables and profiles may name further units, such as the subwords of an unavailable model: their lengths are used unchanged, or
converted by a stated fertility.
"""

from __future__ import annotations

import hashlib
import os
import re
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

from simnmt.base.errors import describe_error
from simnmt.base.files import MOST_MODEL_BYTES, read_bounded
from simnmt.base.packages import install_command
from simnmt.base.suggestions import did_you_mean, nearest
from simnmt.workload.errors import CorpusError

Count = Callable[[str], int]

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
    return sum(map(len, text.split()))


UNITS: dict[str, Count] = {"word": count_words, "mixed": count_mixed, "char": count_characters}
"""Counting functions by the unit's name in files and on the command line."""

TokeniserKind = Literal["sentencepiece", "tokenizers"]
"""Libraries that count tokens: sentencepiece for its models, tokenizers for a `tokenizer.json` of Hugging Face.

A unit given as a text is the kind, a colon and a path; the name of a unit is the kind, a blank and the file's digest.
"""
KINDS: tuple[TokeniserKind, ...] = ("sentencepiece", "tokenizers")

_NEAR_MISS = 0.8
"""Least likeness of a name that is taken for a slip of a known unit: mixd and words are, subword is not."""


def unit_and_counter(unit: str, side: Literal["src", "tgt"] = "src") -> tuple[str, Count]:
    """Return (name, counting function) of a unit, given as a name of `UNITS`, `sentencepiece:PATH` or `tokenizers:PATH`.

    PATH may be the folder of a translation model, which may have a sentencepiece model for each `side`.

    Raises `CorpusError` for an unknown name, and for a model that cannot be used.
    """
    if (path := _tokeniser_path(unit, side)) is not None:
        counter = TokeniserCounter(path)
        return counter.unit, counter
    if unit not in UNITS:
        raise CorpusError(f"unknown unit {unit!r}", remedy=did_you_mean(unit, [*UNITS, *(f"{kind}:PATH" for kind in KINDS)]))
    return unit, UNITS[unit]


def _tokeniser_path(unit: str, side: Side) -> Path | None:
    """Return the file of a unit given as a kind of tokeniser and a path; None for another unit."""
    for kind in KINDS:
        if unit.startswith(f"{kind}:"):
            return model_file(unit.removeprefix(f"{kind}:"), side, kind)
    return None


def source_and_target(units: str) -> tuple[str, str]:
    """Return the two units of `SRC:TGT`, or one unit for both sides; paths of models may contain colons.

    Raises `CorpusError` if a side has no unit.
    """
    model = f"(?:{'|'.join(KINDS)}):.+?"
    known = f"(?:{'|'.join(KINDS)}):.+|{'|'.join(UNITS)}"
    match = re.fullmatch(f"({model})(?::({known}))?", units) or re.fullmatch("([^:]*)(?::(.*))?", units)
    src, tgt = match.groups() if match else (units, None)
    if not src or tgt == "":
        raise CorpusError(f"no unit on one side of {units!r}", remedy="give SRC:TGT, or one unit for both sides")
    return src, src if tgt is None else tgt


def model_files(src_unit: str, tgt_unit: str) -> list[Path]:
    """Return the files of the tokenisers among two units. Raises `CorpusError` for a folder without one."""

    sides: list[tuple[str, Side]] = [(src_unit, "src"), (tgt_unit, "tgt")]
    return [path for unit, side in sides if (path := _tokeniser_path(unit, side)) is not None]


def check_unit(unit: str) -> str:
    """Return a valid name of a unit. Raises `CorpusError` for an empty or long name, and for a slip of a known one."""
    if not unit or len(unit) > 100 or not unit.isprintable():
        raise CorpusError(f"{unit[:20]!r} is no name of a unit", remedy="give a short text on one line, such as word")
    if unit not in UNITS and nearest(unit, UNITS, likeness=_NEAR_MISS) is not None:
        raise CorpusError(f"unknown unit {unit!r}", remedy=did_you_mean(unit, UNITS))
    return unit


Side = Literal["src", "tgt"]
_SHARED_FILES = ("sentencepiece.bpe.model", "spiece.model")
"""File names of the sentencepiece model of both sides in Hugging Face folders, such as those of NLLB and Pegasus."""
TOKENISER_FILES: dict[Side, tuple[str, ...]] = {
    "src": ("source.model", "source.spm", *_SHARED_FILES),
    "tgt": ("target.model", "target.spm", *_SHARED_FILES),
}
"""File names of sentencepiece models in a folder of `simnmt nmt train`, and in Hugging Face folders."""
TOKENIZERS_FILE = "tokenizer.json"
"""File name of a tokeniser of the library tokenizers in a Hugging Face folder."""


def tokeniser_in(folder: str | os.PathLike[str], side: Side, kind: TokeniserKind | None = None) -> Path | None:
    """Return the tokeniser of one side in a translation model's folder, of `kind`; None if there is none.

    `kind`: None takes a sentencepiece model before a `tokenizer.json`.
    """
    names = () if kind == "tokenizers" else TOKENISER_FILES[side]
    names += () if kind == "sentencepiece" else (TOKENIZERS_FILE,)
    return next((path for name in names if (path := Path(folder) / name).is_file()), None)


def model_file(path: str | os.PathLike[str], side: Side, kind: TokeniserKind | None = None) -> Path:
    """Return the tokeniser that a user named by its file or by the folder of a translation model; `kind`: see `tokeniser_in`.

    Raises `CorpusError` for a folder without one.
    """
    if not Path(path).is_dir():
        return Path(path)
    tokeniser = tokeniser_in(path, side, kind)
    if tokeniser is None and kind == "tokenizers":
        raise CorpusError(f"a folder without {TOKENIZERS_FILE}", path=path, remedy="name it, or the folder that holds it")
    if tokeniser is None:
        what = f"a folder without {' or '.join(TOKENISER_FILES[side][:2])}"
        remedy = "name a sentencepiece model, or the folder of a translation model that simnmt nmt train wrote"
        if kind is not None and (Path(path) / TOKENIZERS_FILE).is_file():
            remedy = f"it has a {TOKENIZERS_FILE}: give tokenizers instead of sentencepiece"
        raise CorpusError(what, path=path, remedy=remedy)
    return tokeniser


def unit_of(path: str | os.PathLike[str]) -> str:
    """Return the name of the unit of a tokeniser, which depends only on the content of the file.

    No package is needed. Raises `CorpusError` for a file that cannot be read.
    """
    return unit_of_content(_read(Path(path)))


def unit_of_content(model: bytes) -> str:
    """Return the name of the unit of a tokeniser from the content of its file."""
    return f"{_kind_of(model)} {hashlib.sha256(model).hexdigest()[:12]}"


def _kind_of(model: bytes) -> TokeniserKind:
    return "tokenizers" if model[:64].lstrip().startswith(b"{") else "sentencepiece"


class TokeniserCounter:
    """A counting function of the tokens of a text, without marks of its beginning or end.

    `unit` names the tokeniser by its library and the first 12 hexadecimal digits of its SHA-256, so that tables and profiles of
    the same model agree, wherever the file is. A pickled counter holds the path and loads the model again.

    Raises `CorpusError` if the package `sentencepiece` or `tokenizers` is not installed, and for a file that is no such model
    or, after pickling, another model.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        model = _read(self.path)
        self.unit = unit_of_content(model)
        """Name of the unit."""
        load = _tokenizers_counter if _kind_of(model) == "tokenizers" else _sentencepiece_counter
        self._count = load(self.path, model)

    def __call__(self, text: str) -> int:
        """Count the tokens of the text."""
        return self._count(text)

    def __reduce__(self) -> tuple[Any, ...]:
        return _reload, (str(self.path), self.unit)


def _reload(path: str, unit: str) -> TokeniserCounter:
    counter = TokeniserCounter(path)
    if counter.unit != unit:
        raise CorpusError(f"the model is now {counter.unit}, it was {unit}", path=path, remedy="leave it alone during a run")
    return counter


def _read(path: Path) -> bytes:
    remedy = "give a sentencepiece model, usually named *.model or *.spm, or a tokenizer.json"
    try:
        return read_bounded(path, MOST_MODEL_BYTES)
    except FileNotFoundError:
        raise CorpusError("no such file", path=path, remedy="check the path of the tokeniser") from None
    except OSError as error:
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
