"""Text and tokens of a served model: by its subwords, or by words where a model has none."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Sequence
from pathlib import Path

from simnmt.base.errors import InputError
from simnmt.base.files import MOST_TEXT_BYTES, read_bounded
from simnmt.nmt.architecture import ARCHITECTURES, Architecture
from simnmt.nmt.pretrained_tokenizer import Languages, is_pretrained, open_tokenizer
from simnmt.nmt.sentence_decoder import Hypothesis
from simnmt.nmt.source_lines import LONGEST_SOURCE, LineCoder, SourceLine, load_subwords
from simnmt.nmt.subwords import SOURCE_TOKENIZER, Tokeniser
from simnmt.service.messages import ServiceError


class WordNumbers:
    """The tokeniser of a model with random weights, which has no subwords: each word has a token, by its checksum.

    Times depend on the architecture and on lengths alone, so such a model serves to measure; its translations are the numbers
    of its tokens.
    """

    def __init__(self, architecture: Architecture) -> None:
        self.size, self.eos = architecture.src_vocab, architecture.eos_token
        self._reserved = {architecture.pad_token, architecture.eos_token}
        self._other = next(token for token in range(self.size) if token not in self._reserved)

    def encode(self, texts: Iterable[str]) -> list[list[int]]:
        """Return the token ids of each text, the end mark last; none for a text without words."""
        return [[*map(self._token, words), self.eos] if words else [] for words in map(str.split, texts)]

    def decode(self, sentences: Sequence[Sequence[int]]) -> list[str]:
        """Return the numbers of the tokens of each sentence."""
        return [" ".join(self.pieces(tokens)) for tokens in sentences]

    def cut(self, text: str) -> list[str]:
        """Return the words of a text."""
        return text.split()

    def pieces(self, tokens: Sequence[int]) -> list[str]:
        """Return the number of each token."""
        return [f"w{token}" for token in tokens]

    def _token(self, word: str) -> int:
        token = zlib.crc32(word.encode()) % self.size
        return self._other if token in self._reserved else token


def is_of_hugging_face(model: str) -> bool:
    """Return whether a served model is a folder or id of Hugging Face, not a name, an architecture file or a trained folder."""
    return model not in ARCHITECTURES and is_pretrained(Path(model))


class TextCodec:
    """Converts texts to source lines, and target tokens to texts."""

    def __init__(self, model: str, architecture: Architecture, max_len: int | None, languages: Languages) -> None:
        """Raises `NmtError` for a folder without its tokenisers, and for languages that do not fit a model of Hugging Face.

        `model`: its name, folder or id; `max_len`: most target tokens, by default twice the source's and 10.
        """
        folder = Path(model)
        is_trained, is_of_hub = (folder / SOURCE_TOKENIZER).is_file(), is_of_hugging_face(model)
        self.has_subwords = is_trained or is_of_hub
        """False if the model has random weights, and translations mean nothing."""
        source: Tokeniser
        target: Tokeniser
        most = architecture.max_positions or LONGEST_SOURCE
        if is_of_hub:
            source = target = tokenizer = open_tokenizer(folder, architecture, languages)
            most -= tokenizer.after_start
        elif is_trained:
            source, target = load_subwords(folder)
        else:
            source = target = WordNumbers(architecture)
        self._coder = LineCoder(source, target, architecture.unk_token, most, max_len)

    def lines(self, texts: Sequence[str]) -> list[SourceLine]:
        """Return the source line of each text, without tokens for an empty text.

        Raises `ServiceError` for a text with more tokens than the model takes.
        """
        lines = self._coder.lines(texts)
        if any(line.cut for line in lines):
            most = self._coder.positions
            raise ServiceError(400, f"a text has more than the {most} tokens that the model takes; send it in parts")
        return lines

    def text(self, line: SourceLine, output: Hypothesis) -> str:
        """Return the text of an output."""
        return self._coder.translation(line, output).text


def read_texts(path: Path) -> list[str]:
    """Return the lines of a file that are not blank. Raises `InputError` for a file without any."""
    try:
        text = read_bounded(path, MOST_TEXT_BYTES).decode("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or "no UTF-8 text"
        raise InputError(f"cannot read the texts: {why}", path=path, remedy="name a text file") from None
    lines = [line.strip() for line in text.split("\n") if line.strip()]
    if not lines:
        raise InputError("holds no text", path=path, remedy="write one text a line")
    return lines
