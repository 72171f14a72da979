"""Lines of text to translate, as source tokens with the limit of their outputs, and their translations; needs no torch.

Where the sharp decoder emits the unknown token, the source word to which that step attends most replaces it (SHARP-01).
Pieces are written as by sentencepiece: normalised, with `▁` in place of a blank.
"""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from math import nan
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

    @property
    def logprob(self) -> float:
        """The natural log-probability, of the end mark too; NaN without scores."""
        return nan if self.score is None else self.score * (self.tgt_len + self.ended)

    def as_json(self) -> str:
        return json.dumps(asdict(self), ensure_ascii=False)


@dataclass(frozen=True, slots=True)
class SourceLine:
    """A line to translate."""

    text: str
    ids: list[int]
    """Tokens, the end mark last, cut to what the model takes; none for an empty line."""
    cut: bool
    most: int
    lines: int = 1
    """Lines of the text, all of which a decoder-only model translates with one prompt."""


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
        most, lines = self.positions or LONGEST_SOURCE, []
        for text, whole in zip(texts, self.source.encode(texts), strict=True):
            cut = len(whole) > most
            ids = [*whole[: most - 1], self.source.eos] if cut else whole if len(whole) > 1 else []
            limit, count = target_limit(len(ids), self.max_len, self.positions), text.strip().count("\n") + 1
            lines.append(SourceLine(text, ids, cut, limit, count))
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
    """Return the translation's text, and how many unknown tokens were replaced by the source word that they attend to.

    Neighbouring unknown tokens that attend to the same word give it once. A blank separates a word from letters beside it. If
    the attention points to the end of the source, `UNKNOWN` stays.

    Args:
        target: the piece of each known token, and the attended source position of each unknown one.
        source: pieces, without the end mark.
    """
    text, replaced = "", 0
    before: int | None = None
    """Begin of the word that the piece before attends to."""
    after_unknown = False
    for piece in target:
        is_unknown = isinstance(piece, int)
        begin, added = _attended_word(source, piece) if isinstance(piece, int) else (None, piece)
        replaced += begin is not None
        if begin is None or begin != before:
            beside = (is_unknown and after_unknown) or (text[-1:].isalnum() and added[:1].isalnum())
            text += f" {added}" if beside and (is_unknown or after_unknown) else added
        before, after_unknown = begin, is_unknown
    return " ".join(text.replace(BLANK, " ").split()), replaced


def _attended_word(source: Sequence[str], at: int) -> tuple[int | None, str]:
    """Return the word that contains a piece, with its begin; None and `UNKNOWN` for the end of the source.

    Punctuation around the word is removed, unless the word is nothing else.
    """
    if at >= len(source):
        return None, UNKNOWN
    text, piece = "".join(source), source[at]
    # Blanks before a piece, or alone, belong to the next word.
    begin = text.rfind(BLANK, 0, sum(map(len, source[: at + 1])) - len(piece.lstrip(BLANK))) + 1
    word = text[begin:].partition(BLANK)[0]
    kept = [place for place, character in enumerate(word) if not unicodedata.category(character).startswith("P")]
    return begin, word[kept[0] : kept[-1] + 1] if kept else word


def load_subwords(folder: Path) -> tuple[Subwords, Subwords]:
    """Load the source and target subwords of a trained model; raises `NmtError` for another folder."""
    for name in (SOURCE_TOKENIZER, TARGET_TOKENIZER):
        if not (folder / name).is_file():
            what = f"no trained model: {name} is missing" if folder.is_dir() else "no such folder"
            raise NmtError(what, path=folder, remedy="give the --out of simnmt nmt train, or a folder or id of Hugging Face")
    return Subwords.read(folder / SOURCE_TOKENIZER), Subwords.read(folder / TARGET_TOKENIZER)
