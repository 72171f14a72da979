"""Text into the tokens of a model and back, by the sentencepiece model that lies beside it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from simnmt.files import MOST_MODEL_BYTES, read_bounded
from simnmt.nmt.errors import NmtError, need


class Subwords:
    """Text into token ids and back, by a sentencepiece model."""

    def __init__(self, model: bytes) -> None:
        self._pieces = need("sentencepiece").SentencePieceProcessor(model_proto=model)
        self.model = model
        self.size: int = self._pieces.get_piece_size()
        self.eos: int = self._pieces.eos_id()
        self.unk: int = self._pieces.unk_id()

    @classmethod
    def read(cls, path: Path) -> Subwords:
        """Raises `NmtError` for a file that is no sentencepiece model."""
        try:
            return cls(read_bounded(path, MOST_MODEL_BYTES))
        except (OSError, RuntimeError):
            remedy = "give the folder as simnmt nmt train wrote it"
            raise NmtError("no sentencepiece model", path=path, remedy=remedy) from None

    def encode(self, texts: Iterable[str]) -> list[list[int]]:
        """Token ids of each text, the end mark last."""
        encoded: list[list[int]] = self._pieces.encode(list(texts), out_type=int, add_eos=True, num_threads=1)
        return encoded

    def decode(self, sentences: Sequence[Sequence[int]]) -> list[str]:
        """The text of each sentence, up to its end mark if it has one; marks give nothing."""
        kept = [[token for token in self._until_end(sentence) if token < self.size] for sentence in sentences]
        return [text.strip() for text in self._pieces.decode(kept)] if kept else []

    def cut(self, text: str) -> list[str]:
        """The pieces of a text as they are written, normalised, a blank as `▁`; without the end mark."""
        pieces: list[str] = self._pieces.encode(text, out_type=str)
        return pieces

    def pieces(self, tokens: Sequence[int]) -> list[str]:
        """How each token is written; empty for marks and for what the vocabulary lacks."""
        return [
            "" if token >= self.size or self._pieces.is_control(token) else str(self._pieces.id_to_piece(token))
            for token in tokens
        ]

    def _until_end(self, sentence: Sequence[int]) -> Sequence[int]:
        tokens = list(sentence)
        return tokens[: tokens.index(self.eos)] if self.eos in tokens else tokens
