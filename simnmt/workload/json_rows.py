"""Pairs of texts from JSON Lines: `{"translation": {"de": ..., "en": ...}}` or the two texts as keys of the row itself."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NoReturn

from simnmt.names import did_you_mean, format_list
from simnmt.workload.json_object import json_kind, json_object
from simnmt.workload.text_lines import TextLines

WRAPPER = "translation"
"""The key under which Hugging Face's data sets keep a row's texts by language."""


def json_pairs(lines: TextLines, src_key: str, tgt_key: str) -> Iterator[tuple[str, str]]:
    """(source, target) of each row, one JSON object a line; blank lines are passed over, other keys left alone.

    The keys are looked up under `translation` where the row has that key with an object, else in the row.

    Raises `CorpusError` with the line for what is no JSON object, for a missing key (naming those that are there),
    and for a value that is no text.
    """
    for line in lines:
        if not line.strip():
            continue
        row = _row(lines, line)
        inner = row.get(WRAPPER)
        if isinstance(inner, dict):
            row = inner
        try:
            src, tgt = row[src_key], row[tgt_key]
        except KeyError:
            _refuse_keys(lines, row, src_key if src_key not in row else tgt_key)
        if not (isinstance(src, str) and isinstance(tgt, str)):
            key, value = (tgt_key, tgt) if isinstance(src, str) else (src_key, src)
            raise lines.fault(f"{key} is {json_kind(value)}, not a text", remedy="name two keys whose values are texts")
        # JSON can spell half a character, which no text holds; only an escape can, so few lines need the look.
        if "\\u" in line and _has_surrogate(src + tgt):
            raise lines.fault("an escape that is half a character (\\ud800 to \\udfff)", remedy="write the file again as UTF-8")
        yield src, tgt


def text_keys(row: Mapping[str, Any]) -> list[str]:
    """Keys of a row under which texts stand, those inside `translation` where it has that."""
    inner = row.get(WRAPPER)
    return [key for key, value in (inner if isinstance(inner, dict) else row).items() if isinstance(value, str)]


def refuse_as_columns(lines: TextLines, line: str) -> NoReturn:
    """Say of a first line that it is a row of JSON Lines, and which keys it has.

    Raises `CorpusError`.
    """
    keys = text_keys(_row(lines, line))
    under = f" with texts under {_listed(keys)}" if keys else ""
    example = ":".join(keys[:2]) if len(keys) > 1 else "SRC:TGT"
    remedy = f"name the keys of source and target: --keys {example}, in a scenario jsonl with src_key and tgt_key"
    raise lines.fault(f"a row of JSON Lines{under}, not of columns", remedy=remedy)


def _row(lines: TextLines, line: str) -> dict[str, Any]:
    return json_object(line, lines.fault, first=lines.read == 1, wanted="an object with two texts")


def _refuse_keys(lines: TextLines, row: Mapping[str, Any], missing: str) -> NoReturn:
    texts = text_keys(row)
    if not texts:
        raise lines.fault(f"no key {missing!r}, and no text under any other", remedy="name the keys of the two texts")
    remedy = did_you_mean(missing, texts, "name the keys of the two texts")
    raise lines.fault(f"no key {missing!r}; texts stand under {_listed(texts)}", remedy=remedy)


def _listed(keys: Sequence[str]) -> str:
    return format_list((repr(key if len(key) <= 40 else key[:37] + "...") for key in keys), ",")


def _has_surrogate(text: str) -> bool:
    return any("\ud800" <= char <= "\udfff" for char in text)
