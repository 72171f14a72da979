"""Subword vocabularies: text to tokens and back, by sentencepiece."""

from __future__ import annotations

import io
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Protocol

from simnmt.base.errors import describe_error
from simnmt.base.files import MOST_MODEL_BYTES, read_bounded
from simnmt.nmt.errors import NmtError, TrainingError, need

SOURCE_TOKENIZER, TARGET_TOKENIZER = "source.model", "target.model"
"""Files of a trained model's folder."""
UNKNOWN = "⁇"
"""The text of an unknown word that is not replaced."""


class Tokeniser(Protocol):
    """Converts texts to tokens of a model, and back."""

    size: int
    eos: int

    def encode(self, texts: Iterable[str]) -> list[list[int]]:
        """Return the token ids of each text, the end mark last."""

    def decode(self, sentences: Sequence[Sequence[int]]) -> list[str]:
        """Return the text of each sentence, up to its end mark if it has one, without marks."""

    def cut(self, text: str) -> list[str]:
        """Return the pieces of a text as written: normalised, a blank as `▁`, without marks."""

    def pieces(self, tokens: Sequence[int]) -> list[str]:
        """Return the text of each token; empty for marks and for tokens beyond the vocabulary."""


def until_end(tokens: Sequence[int], eos: int) -> Sequence[int]:
    """Return the tokens before the end mark; all without one."""
    return tokens[: tokens.index(eos)] if eos in tokens else tokens


class Subwords:
    """A sentencepiece model; a `Tokeniser`."""

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
        encoded: list[list[int]] = self._pieces.encode(list(texts), out_type=int, add_eos=True, num_threads=1)
        return encoded

    def decode(self, sentences: Sequence[Sequence[int]]) -> list[str]:
        kept = [[token for token in until_end(tokens, self.eos) if token < self.size] for tokens in sentences]
        return [text.strip() for text in self._pieces.decode(kept)] if kept else []

    def cut(self, text: str) -> list[str]:
        pieces: list[str] = self._pieces.encode(text, out_type=str)
        return pieces

    def pieces(self, tokens: Sequence[int]) -> list[str]:
        is_mark = self._pieces.is_control
        return ["" if token >= self.size or is_mark(token) else str(self._pieces.id_to_piece(token)) for token in tokens]


MOST_VOCABULARY_LINES = 1_000_000
"""Most lines from which a vocabulary is learnt, spread evenly over a longer text."""


def learn_vocabulary(
    texts: Sequence[str], size: int, *, side: str, pad: int, eos: int, unk: int, start: int, at_most: bool = False
) -> bytes:
    """Learn a unigram model of exactly `size` pieces and return it serialised; the same lines give the same bytes.

    `side`: the name of the text in messages. The four ids are those of the marks; `start` may be `pad`. `at_most`: take fewer
    pieces where the text has no more.

    Raises `TrainingError` for a text that is too small or too varied for the size, and `NmtError` without sentencepiece.
    """
    model = io.BytesIO()
    try:
        need("sentencepiece").SentencePieceTrainer.train(
            sentence_iterator=iter(texts[:: -(-len(texts) // MOST_VOCABULARY_LINES)]),
            model_writer=model,
            model_type="unigram",
            vocab_size=size,
            character_coverage=0.9998,
            num_threads=1,  # more threads may change the order of sums, and so their last digits
            max_sentence_length=1 << 16,
            minloglevel=2,
            pad_id=pad,
            eos_id=eos,
            unk_id=unk,
            bos_id=-1 if start == pad else start,
            **({"hard_vocab_limit": False} if at_most else {}),
        )
    except (RuntimeError, OSError) as error:
        what, remedy = f"sentencepiece makes none: {describe_error(error)}", "look at the text, or give another --vocab"
        if most := re.search(r"value <= (\d+)", str(error)):
            what, remedy = "more than the text has pieces for", f"give --vocab {most[1]} or less, or more text"
        elif least := re.search(r"smaller than required_chars\. \d+ vs (\d+)", str(error)):
            what, remedy = "less than the text has characters", f"give --vocab {least[1]} or more"
        raise TrainingError(f"a vocabulary of {size:,} for the {side} text: {what}", remedy=remedy) from None
    return model.getvalue()
