"""Unknown words in a translation, replaced through the attention: by a dictionary's word or the source word itself (SHARP-01).

Where a decoder emits the unknown token, its attention in that step says which source piece it was reading. Texts here are
pieces as sentencepiece writes them: normalised, with `▁` in place of a blank.
"""

from __future__ import annotations

import os
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from simnmt.nmt.errors import NmtError
from simnmt.workload.text_lines import TextLines

BLANK = "▁"
UNKNOWN = "⁇"
"""What stands for an unknown word that nothing replaces."""
MOST_ENTRIES = 5_000_000
"""Lines of a dictionary, so that a wrong file does not fill the memory."""


@dataclass(frozen=True, slots=True)
class TargetPiece:
    """One token of a translation."""

    text: str
    unknown: bool
    attended: int
    """The source position that its step looked at most."""


def read_dictionary(path: str | os.PathLike[str]) -> dict[str, str]:
    """Read a dictionary: a source word, a tab and its translation on each line, of which the first for a word counts.

    Raises `NmtError` with the line for one that is not so, and `CorpusError` for a file that cannot be read.
    """
    words: dict[str, str] = {}
    remedy = "give a source word, a tab and its translation on each line"
    for number, line in enumerate(TextLines(path), 1):
        if number > MOST_ENTRIES:
            raise NmtError(f"more than {MOST_ENTRIES:,} lines", path=path, remedy="give a smaller dictionary")
        if not line.strip():
            continue
        columns = [column.strip() for column in line.split("\t")]
        if len(columns) != 2:
            raise NmtError(f"{len(columns)} columns where a dictionary has 2", path=path, line=number, remedy=remedy)
        if not all(columns):
            raise NmtError("an empty column", path=path, line=number, remedy=remedy)
        if len(columns[0].split()) != 1:
            raise NmtError("the source column holds more than one word", path=path, line=number, remedy=remedy)
        words.setdefault(*columns)
    return words


def replace_unknown(target: Sequence[TargetPiece], source: Sequence[str], dictionary: Mapping[str, str]) -> tuple[str, int]:
    """Return the translation's text, and how many unknown tokens were replaced.

    An unknown token that makes a word of its own becomes the dictionary's translation of the source word attended to (looked
    up as it stands, then in lower case), or else that word, without punctuation around it. One that is a part of a word becomes
    the piece attended to. Neighbours that attend to the same word or piece give it once, those that attend to others and make
    words of their own have a blank between them. Where the attention points at the end of the source, `UNKNOWN` stays.
    """
    parts, replaced, last = list[str](), 0, ""
    for at, piece in enumerate(target):
        if not piece.unknown:
            parts.append(piece.text)
            last = ""
            continue
        alone = _stands_alone(target, at)
        between = BLANK if alone and at > 0 and target[at - 1].unknown else ""
        if piece.attended >= len(source):
            parts.append(between + UNKNOWN)
            last = ""
            continue
        if alone:
            word = _word(source, piece.attended)
            substitute = dictionary.get(word) or dictionary.get(word.lower()) or word
        else:
            substitute = source[piece.attended].strip(BLANK)
        replaced += 1
        if substitute != last:
            parts.append(between + substitute)
        last = substitute
    return " ".join("".join(parts).replace(BLANK, " ").split()), replaced


def _stands_alone(target: Sequence[TargetPiece], at: int) -> bool:
    """Whether no letter or digit of a known piece touches the run of unknown tokens around this one."""
    first = last = at
    while first > 0 and target[first - 1].unknown:
        first -= 1
    while last + 1 < len(target) and target[last + 1].unknown:
        last += 1
    before = target[first - 1].text[-1:] if first else ""
    after = target[last + 1].text[:1] if last + 1 < len(target) else ""
    return not before.isalnum() and not after.isalnum()


def _word(source: Sequence[str], at: int) -> str:
    """The word that a piece belongs to, without punctuation around it; all of it where it is nothing else."""
    begin = sum(len(piece) for piece in source[:at])
    text = "".join(source)
    begin += len(source[at]) - len(source[at].lstrip(BLANK)) if source[at].strip(BLANK) else 0
    # A bare blank before an unknown piece belongs to the word that it opens.
    begin = min(begin + (text[begin] == BLANK), len(text) - 1)
    start = text.rfind(BLANK, 0, begin + 1) + 1
    end = text.find(BLANK, begin)
    word = text[start : end if end >= 0 else len(text)]
    kept = [place for place, character in enumerate(word) if not unicodedata.category(character).startswith("P")]
    return word[kept[0] : kept[-1] + 1] if kept else word
