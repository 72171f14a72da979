"""Text and tokens of a served model: by its subwords, or by words where a model has none."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Sequence
from pathlib import Path

from simnmt.nmt.architecture import Architecture
from simnmt.nmt.source_lines import SourceLine, load_subwords
from simnmt.nmt.subwords import LONGEST_SOURCE, SOURCE_TOKENIZER, SourceEncoder, TextWriter


class WordNumbers:
    """A source encoder for a model with random weights, which has no subwords: each word has a token, by its checksum.

    Times depend on the architecture and on lengths alone, so such a model serves to measure; its translations are the numbers
    of its tokens.
    """

    def __init__(self, architecture: Architecture) -> None:
        self.eos = architecture.eos_token
        self._vocab, self._reserved = architecture.src_vocab, {architecture.pad_token, architecture.eos_token}
        self._other = next(token for token in range(self._vocab) if token not in self._reserved)

    def encode(self, texts: Iterable[str]) -> list[list[int]]:
        """Return the token ids of each text, the end mark last; none for a text without words."""
        return [[*map(self._token, words), self.eos] if words else [] for words in map(str.split, texts)]

    def _token(self, word: str) -> int:
        token = zlib.crc32(word.encode()) % self._vocab
        return self._other if token in self._reserved else token


class TextCodec:
    """Converts texts to source lines, and target tokens to texts."""

    def __init__(self, model: str, architecture: Architecture, max_len: int | None) -> None:
        """`model`: its name or folder; `max_len`: most target tokens, by default twice the source's and 10."""
        folder = Path(model)
        self.has_subwords = (folder / SOURCE_TOKENIZER).is_file()
        """False if the model has random weights, and translations mean nothing."""
        self._positions, self._max_len = architecture.max_positions, max_len
        self._source: SourceEncoder
        self._writer: TextWriter | None = None
        if self.has_subwords:
            source, target = load_subwords(folder)
            self._source = source
            self._writer = TextWriter(source, target, architecture.unk_token)
        else:
            self._source = WordNumbers(architecture)

    def lines(self, texts: Sequence[str]) -> list[SourceLine]:
        """Return the source line of each text, cut to what the model takes; without tokens for an empty text."""
        return SourceLine.encode(texts, self._source, self._max_len, self._positions or LONGEST_SOURCE)

    def text(self, line: SourceLine, tokens: Sequence[int]) -> str:
        """Return the translation with these target tokens."""
        if self._writer is None:
            return " ".join(f"w{token}" for token in tokens)
        return line.translation(self._writer, tokens, None, None, 0).text
