"""Lines of text to translate, as source tokens with the limit of their outputs, and their translations; needs no torch.

Where the sharp decoder emits the unknown token, the source word to which that step attends most replaces it (SHARP-01).
Pieces are written as by sentencepiece: normalised, with `▁` in place of a blank.
"""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import groupby
from pathlib import Path

from simnmt.nmt.errors import NmtError
from simnmt.nmt.sentence_decoder import Hypothesis
from simnmt.nmt.subwords import SOURCE_TOKENIZER, TARGET_TOKENIZER, UNKNOWN, Subwords, Tokeniser

BLANK = "▁"
LONGEST_SOURCE = 512
"""Most tokens of a source for a model that takes any length; further tokens are not translated."""


@dataclass(frozen=True, slots=True)
class Translation:
    """The translation of one line; empty for an empty line."""

    text: str = ""
    src_len: int = 0
    """Source tokens, the end mark included; 0 for an empty line."""
    tgt_len: int = 0
    """Target tokens, without the end mark."""
    score: float | None = None
    """Natural log-probability divided by the length; None for an empty line."""
    cut: bool = False
    """Whether the source was longer than the model takes, so that only its beginning was translated."""
    ended: bool = True
    """Whether the model ended the sentence, not the limit on its length."""
    steps: int = 0
    """Decode steps taken: greedy search takes one per token and one for the end mark; a beam runs on beyond its best."""
    replaced: int = 0
    """Unknown tokens replaced by means of the attention."""
    unknown: int = 0
    """Unknown tokens that stay, as `⁇` in the text."""

    def as_json(self) -> str:
        """Return every field, as a JSON object on one line."""
        return json.dumps(asdict(self), ensure_ascii=False)


@dataclass(frozen=True, slots=True)
class SourceLine:
    """A line to translate."""

    text: str
    ids: list[int]
    """Tokens, the end mark last, cut to what the model takes; none for an empty line."""
    cut: bool
    """Whether `ids` is only the beginning of the line."""
    most: int
    """Most target tokens."""


@dataclass(frozen=True, slots=True)
class LineCoder:
    """The conversion of lines to source tokens, and of target tokens to text."""

    source: Tokeniser
    target: Tokeniser
    unk_token: int
    positions: int | None = None
    """The longest source, and the most target tokens; None: sources of `LONGEST_SOURCE`, targets of any length."""
    max_len: int | None = None
    """Most target tokens, by default twice the source's and 10."""

    def lines(self, texts: Sequence[str]) -> list[SourceLine]:
        """Encode lines of text."""
        most, lines = self.positions or LONGEST_SOURCE, []
        for text, whole in zip(texts, self.source.encode(texts), strict=True):
            cut = len(whole) > most
            ids = [*whole[: most - 1], self.source.eos] if cut else whole if len(whole) > 1 else []
            lines.append(SourceLine(text, ids, cut, target_limit(len(ids), self.max_len, self.positions)))
        return lines

    def translation(self, line: SourceLine, hypothesis: Hypothesis) -> Translation:
        """Return the translation of a line; its unknown tokens stay if the decoder did not keep what they attend to."""
        tokens = hypothesis.tokens
        unknown, replaced = tokens.count(self.unk_token), 0
        if not unknown or not hypothesis.attended:
            text = self.target.decode([tokens])[0]
        else:
            pieces = zip(self.target.pieces(tokens), tokens, hypothesis.attended, strict=True)
            target = [place if token == self.unk_token else piece for piece, token, place in pieces]
            text, replaced = replace_unknown(target, self.source.cut(line.text)[: len(line.ids) - 1])
        score, ended = hypothesis.score, len(tokens) < line.most
        counts = hypothesis.steps, replaced, unknown - replaced
        return Translation(text, len(line.ids), len(tokens), score, line.cut, ended, *counts)


def target_limit(src_len: int, max_len: int | None, positions: int | None) -> int:
    """Return the most target tokens: `max_len`, by default twice the source's and 10, but not more than `positions`."""
    most = max_len or 2 * src_len + 10
    return most if positions is None else min(most, positions)


def replace_unknown(target: Sequence[str | int], source: Sequence[str]) -> tuple[str, int]:
    """Return the translation's text, and how many unknown tokens were replaced.

    An unknown token that is a whole word becomes the attended source word, without punctuation around it; one that is a part
    of a word becomes the attended piece. Neighbouring unknown tokens that attend to the same word or piece give it once; those
    that attend to several give one each, even if these are equal. Whole words are separated by blanks. If the attention points
    to the end of the source, `UNKNOWN` stays.

    Args:
        target: the piece of each known token, and the attended source position of each unknown one.
        source: pieces, without the end mark.
    """
    runs = [(is_unknown, list(run)) for is_unknown, run in groupby(target, lambda piece: isinstance(piece, int))]
    parts, replaced = list[str](), 0
    for at, (is_unknown, run) in enumerate(runs):
        if not is_unknown:
            parts += map(str, run)
            continue
        before = str(runs[at - 1][1][-1]) if at else ""
        after = str(runs[at + 1][1][0]) if at + 1 < len(runs) else ""
        whole_words = not (before[-1:].isalnum() or after[:1].isalnum())
        substitutes = [_substitute(source, int(place), whole_words) for place in run]
        replaced += sum(begin is not None for begin, _ in substitutes)
        earlier = [None, *(begin for begin, _ in substitutes)]
        texts = [text for (begin, text), last in zip(substitutes, earlier, strict=False) if begin is None or begin != last]
        parts.append((BLANK if whole_words else "").join(texts))
    return " ".join("".join(parts).replace(BLANK, " ").split()), replaced


def _substitute(source: Sequence[str], at: int, whole_word: bool) -> tuple[int | None, str]:
    """Return the word that contains a piece, or the piece alone, with its begin; None and `UNKNOWN` for the end of the source.

    Punctuation around the word is removed, unless the word is nothing else.
    """
    if at >= len(source):
        return None, UNKNOWN
    piece = source[at].strip(BLANK)
    if not whole_word:
        return at, piece
    text = "".join(source)
    begin = sum(map(len, source[:at])) + (len(source[at]) - len(source[at].lstrip(BLANK)) if piece else 0)
    # A single blank before an unknown piece belongs to the next word.
    begin = min(begin + (text[begin] == BLANK), len(text) - 1)
    start = text.rfind(BLANK, 0, begin + 1) + 1
    word = text[start:].partition(BLANK)[0] if text[begin] != BLANK else ""
    kept = [place for place, character in enumerate(word) if not unicodedata.category(character).startswith("P")]
    return start, word[kept[0] : kept[-1] + 1] if kept else word


def load_subwords(folder: Path) -> tuple[Subwords, Subwords]:
    """Load the source and target subwords of a trained model; raises `NmtError` for another folder."""
    for name in (SOURCE_TOKENIZER, TARGET_TOKENIZER):
        if not (folder / name).is_file():
            what = f"no trained model: {name} is missing" if folder.is_dir() else "no such folder"
            raise NmtError(what, path=folder, remedy="give the --out of simnmt nmt train, or a folder or id of Hugging Face")
    return Subwords.read(folder / SOURCE_TOKENIZER), Subwords.read(folder / TARGET_TOKENIZER)
