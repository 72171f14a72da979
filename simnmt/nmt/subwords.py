"""Text and tokens: subword vocabularies by sentencepiece, and replacement of unknown words in a translation (SHARP-01).

Where a decoder emits the unknown token, the source word to which the attention of that step points replaces it. Pieces are
written as by sentencepiece: normalised, with `▁` in place of a blank.
"""

from __future__ import annotations

import io
import re
import unicodedata
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from simnmt.base.errors import describe_error
from simnmt.base.files import MOST_MODEL_BYTES, read_bounded
from simnmt.nmt.errors import NmtError, TrainingError, need

SOURCE_TOKENIZER, TARGET_TOKENIZER = "source.model", "target.model"
"""Files of a trained model's folder."""
LONGEST_SOURCE = 512
"""Most tokens of a source for a model that takes any length; further tokens are not translated."""


class SourceEncoder(Protocol):
    """Converts texts to the source tokens of a model."""

    eos: int

    def encode(self, texts: Iterable[str]) -> list[list[int]]:
        """Return the token ids of each text, the end mark last."""


class Tokeniser(SourceEncoder, Protocol):
    """Converts texts to tokens of a model, and back."""

    size: int
    """Tokens of the vocabulary."""
    unk: int

    def decode(self, sentences: Sequence[Sequence[int]]) -> list[str]:
        """Return the text of each sentence, up to its end mark if it has one, without marks."""

    def cut(self, text: str) -> list[str]:
        """Return the pieces of a text as written: normalised, a blank as `▁`, without marks."""

    def pieces(self, tokens: Sequence[int]) -> list[str]:
        """Return the text of each token; empty for marks and for tokens beyond the vocabulary."""


class Subwords:
    """A sentencepiece model, which converts text to token ids and back."""

    def __init__(self, model: bytes) -> None:
        self._pieces = need("sentencepiece").SentencePieceProcessor(model_proto=model)
        self.model = model
        self.size: int = self._pieces.get_piece_size()
        self.eos: int = self._pieces.eos_id()
        self.unk: int = self._pieces.unk_id()

    @classmethod
    def read(cls, path: Path) -> Subwords:
        """Read a file; raises `NmtError` if it is not a sentencepiece model."""
        try:
            return cls(read_bounded(path, MOST_MODEL_BYTES))
        except (OSError, RuntimeError):
            remedy = "give the folder as simnmt nmt train wrote it"
            raise NmtError("no sentencepiece model", path=path, remedy=remedy) from None

    def encode(self, texts: Iterable[str]) -> list[list[int]]:
        """Return the token ids of each text, the end mark last."""
        encoded: list[list[int]] = self._pieces.encode(list(texts), out_type=int, add_eos=True, num_threads=1)
        return encoded

    def decode(self, sentences: Sequence[Sequence[int]]) -> list[str]:
        """Return the text of each sentence, up to its end mark if it has one, without marks."""
        kept = []
        for tokens in map(list, sentences):
            until_end = tokens[: tokens.index(self.eos)] if self.eos in tokens else tokens
            kept.append([token for token in until_end if token < self.size])
        return [text.strip() for text in self._pieces.decode(kept)] if kept else []

    def cut(self, text: str) -> list[str]:
        """Return the pieces of a text as written: normalised, a blank as `▁`, without the end mark."""
        pieces: list[str] = self._pieces.encode(text, out_type=str)
        return pieces

    def pieces(self, tokens: Sequence[int]) -> list[str]:
        """Return the text of each token; empty for marks and for tokens beyond the vocabulary."""
        return [
            "" if token >= self.size or self._pieces.is_control(token) else str(self._pieces.id_to_piece(token))
            for token in tokens
        ]


def cut_sources(sources: Iterable[list[int]], eos: int, positions: int | None) -> list[list[int]]:
    """Return the sources cut to `positions` tokens (None: `LONGEST_SOURCE`), end mark `eos` last; [] for an empty one."""
    most = positions or LONGEST_SOURCE
    cut = [source if len(source) <= most else [*source[: most - 1], eos] for source in sources]
    return [source if len(source) > 1 else [] for source in cut]


MOST_VOCABULARY_LINES = 1_000_000
"""Most lines from which a vocabulary is learnt, spread evenly over a longer text."""


def learn_vocabulary(texts: Sequence[str], size: int, *, side: str, pad: int, eos: int, unk: int, start: int) -> bytes:
    """Learn a unigram model of exactly `size` pieces and return it serialised; the same lines give the same bytes.

    `side`: the name of the text in messages. The four ids are those of the marks; `start` may be `pad`.

    Raises `TrainingError` for a text that is too small or too varied for the size, and `NmtError` without sentencepiece.
    """
    trainer = need("sentencepiece").SentencePieceTrainer
    step = -(-len(texts) // MOST_VOCABULARY_LINES)
    model = io.BytesIO()
    marks = {"pad_id": pad, "eos_id": eos, "unk_id": unk, "bos_id": -1 if start == pad else start}
    try:
        trainer.train(
            sentence_iterator=iter(texts[::step]),
            model_writer=model,
            model_type="unigram",
            vocab_size=size,
            character_coverage=0.9998,
            num_threads=1,  # more threads may change the order of sums, and so their last digits
            max_sentence_length=1 << 16,
            minloglevel=2,
            **marks,
        )
    except (RuntimeError, OSError) as error:
        raise _sentencepiece_error(error, size, side) from None
    return model.getvalue()


def fewest_pieces(error: Exception) -> int | None:
    """Return the smallest vocabulary that sentencepiece accepts, from its refusal of a smaller one; None for other errors.

    The figure is at the end of a message that names a line of the library's source and may be long.
    """
    least = re.search(r"smaller than required_chars\. \d+ vs (\d+)", str(error))
    return None if least is None else int(least[1])


def _sentencepiece_error(error: Exception, size: int, side: str) -> TrainingError:
    """Translate an error of sentencepiece, which names a line of its source, to a message with a remedy."""
    if most := re.search(r"value <= (\d+)", str(error)):
        what = f"a vocabulary of {size:,} is more than the {side} text has pieces for"
        return TrainingError(what, remedy=f"give --vocab {most[1]} or less, or more text")
    if (least := fewest_pieces(error)) is not None:
        what = f"a vocabulary of {size:,} is less than the {side} text has characters"
        return TrainingError(what, remedy=f"give --vocab {least} or more")
    what = f"sentencepiece makes no vocabulary of {size:,} from the {side} text: {describe_error(error)}"
    return TrainingError(what, remedy="look at the text, or give another --vocab")


BLANK = "▁"
UNKNOWN = "⁇"
"""The text of an unknown word that is not replaced."""


@dataclass(frozen=True, slots=True)
class TargetPiece:
    """One token of a translation."""

    text: str
    unknown: bool
    attended: int
    """The source position to which its step attends most."""


@dataclass(frozen=True, slots=True)
class WrittenText:
    """The text of a translation."""

    text: str
    replaced: int = 0
    """Unknown tokens that were replaced."""
    unknown: int = 0
    """Unknown tokens that are `UNKNOWN` in the text."""


@dataclass(frozen=True, slots=True)
class TextWriter:
    """The conversion of the tokens of a translation to text, with unknown tokens replaced by means of the attention."""

    source: Tokeniser
    target: Tokeniser
    unk_token: int
    keep: bool = False
    """Whether `UNKNOWN` is written for each unknown token."""

    def write(
        self, line: str, src_len: int, tokens: Sequence[int], attended: Callable[[], Sequence[int]] | None
    ) -> WrittenText:
        """Return the text of a translation.

        Args:
            line: the source text.
            src_len: source tokens that were read, the end mark included.
            tokens: target tokens, without the end mark.
            attended: returns the source position to which the step of each token attends most; called only if a token is
                unknown. None for a model without attention, whose unknown tokens stay.
        """
        unknown = sum(token == self.unk_token for token in tokens)
        if not unknown or self.keep or attended is None:
            return WrittenText(self.target.decode([tokens])[0], 0, unknown)
        places = zip(self.target.pieces(tokens), tokens, attended(), strict=True)
        target = [TargetPiece(text, token == self.unk_token, place) for text, token, place in places]
        text, replaced = replace_unknown(target, self.source.cut(line)[: src_len - 1])
        return WrittenText(text, replaced, unknown - replaced)


def replace_unknown(target: Sequence[TargetPiece], source: Sequence[str]) -> tuple[str, int]:
    """Return the translation's text, and how many unknown tokens were replaced.

    An unknown token that is a whole word becomes the attended source word, without punctuation around it; one that is a part
    of a word becomes the attended piece. Neighbouring unknown tokens that attend to the same word or piece give it once; those
    that attend to several give one each, even if these are equal. Whole words are separated by blanks. If the attention points
    to the end of the source, `UNKNOWN` stays.
    """
    parts, replaced = list[str](), 0
    last: int | None = None  # begin of the word or piece that replaced the token before
    for at, piece in enumerate(target):
        if not piece.unknown:
            parts.append(piece.text)
            last = None
            continue
        alone = _stands_alone(target, at)
        between = BLANK if alone and at > 0 and target[at - 1].unknown else ""
        if piece.attended >= len(source):
            parts.append(between + UNKNOWN)
            last = None
            continue
        if alone:
            place, substitute = _word(source, piece.attended)
        else:
            place, substitute = piece.attended, source[piece.attended].strip(BLANK)
        replaced += 1
        if place != last:
            parts.append(between + substitute)
        last = place
    return " ".join("".join(parts).replace(BLANK, " ").split()), replaced


def _stands_alone(target: Sequence[TargetPiece], at: int) -> bool:
    """Return whether no letter or digit of a known piece touches the run of unknown tokens around this one."""
    first = last = at
    while first > 0 and target[first - 1].unknown:
        first -= 1
    while last + 1 < len(target) and target[last + 1].unknown:
        last += 1
    before = target[first - 1].text[-1:] if first else ""
    after = target[last + 1].text[:1] if last + 1 < len(target) else ""
    return not before.isalnum() and not after.isalnum()


def _word(source: Sequence[str], at: int) -> tuple[int, str]:
    """Return the begin of the word that contains a piece, in characters, and the word.

    Punctuation around the word is removed, unless the word is nothing else.
    """
    begin = sum(len(piece) for piece in source[:at])
    text = "".join(source)
    begin += len(source[at]) - len(source[at].lstrip(BLANK)) if source[at].strip(BLANK) else 0
    # A single blank before an unknown piece belongs to the next word.
    begin = min(begin + (text[begin] == BLANK), len(text) - 1)
    start = text.rfind(BLANK, 0, begin + 1) + 1
    end = text.find(BLANK, begin)
    word = text[start : end if end >= 0 else len(text)]
    kept = [place for place, character in enumerate(word) if not unicodedata.category(character).startswith("P")]
    return start, word[kept[0] : kept[-1] + 1] if kept else word
