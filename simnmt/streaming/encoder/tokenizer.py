"""Tokenizers of encoders: sentencepiece for our own encoders, the model's own tokenizer for those of `transformers`."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from simnmt.base.errors import describe_error
from simnmt.nmt.errors import need
from simnmt.nmt.subwords import fewest_pieces
from simnmt.streaming.encoder.task import Text
from simnmt.streaming.errors import StreamingError

if TYPE_CHECKING:  # a live server's front converts texts without torch
    from torch import Tensor

PADDING, UNKNOWN, BEGIN, END = 0, 1, 2, 3
"""First tokens of every vocabulary of simnmt."""
PIECES_FILE = "tokenizer.model"
"""File of the sentencepiece model of our encoders."""


class Tokenizer(Protocol):
    """A converter of texts into token ids with marks."""

    padding: int
    files: Mapping[str, bytes]
    """Contents of its files by name, from which `tokenizer_from` builds it again."""

    def encode(self, texts: Sequence[Text], length: int) -> list[list[int]]:
        """Return the tokens of each text or pair, at most `length`."""
        ...


class Pieces:
    """A sentencepiece vocabulary: a mark at the beginning, and one between the texts of a pair."""

    padding = PADDING

    def __init__(self, model: bytes) -> None:
        """Load a sentencepiece model; raises `StreamingError` for other bytes."""
        try:
            self._pieces = need("sentencepiece").SentencePieceProcessor(model_proto=model)
        except RuntimeError:
            raise StreamingError("no sentencepiece model", path=PIECES_FILE, remedy="train or shard the model again") from None
        self.files: Mapping[str, bytes] = {PIECES_FILE: model}
        self.size: int = self._pieces.get_piece_size()

    def encode(self, texts: Sequence[Text], length: int) -> list[list[int]]:
        """See `Tokenizer`."""
        firsts = self._of([text if isinstance(text, str) else text[0] for text in texts])
        pairs = [text[1] for text in texts if not isinstance(text, str)]
        if not pairs:
            return [[BEGIN, *tokens][:length] for tokens in firsts]
        return [[BEGIN, *first, END, *second][:length] for first, second in zip(firsts, self._of(pairs), strict=True)]

    def _of(self, texts: list[str]) -> list[list[int]]:
        encoded: list[list[int]] = self._pieces.encode(texts, out_type=int, num_threads=1)
        return encoded


class HuggingFaceTokenizer:
    """The tokenizer of a model of `transformers`, loaded without network access and without code of the folder."""

    def __init__(self, files: Mapping[str, bytes]) -> None:
        """Build the tokenizer from the contents of its files; raises `StreamingError` if they are unusable."""
        self.files: Mapping[str, bytes] = dict(files)
        auto = need("transformers").AutoTokenizer
        with tempfile.TemporaryDirectory() as folder:
            for name in TOKENIZER_FILES:  # no other: an unknown name may point elsewhere
                if name in files:
                    (Path(folder) / name).write_bytes(files[name])
            try:
                self._tokenizer: Any = auto.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
            except Exception as error:  # many kinds of errors
                what = f"no usable tokenizer: {describe_error(error)}"
                raise StreamingError(what, remedy="give its files beside the model's") from None
        self.padding: int = self._tokenizer.pad_token_id or 0
        self.separator: int | None = self._tokenizer.sep_token_id
        """The mark after each text."""

    def encode(self, texts: Sequence[Text], length: int) -> list[list[int]]:
        """See `Tokenizer`."""
        firsts = [text if isinstance(text, str) else text[0] for text in texts]
        seconds = [text[1] for text in texts if not isinstance(text, str)] or None
        encoded: list[list[int]] = self._tokenizer(firsts, seconds, truncation=True, max_length=length)["input_ids"]
        return encoded


TOKENIZER_FILES = (
    "tokenizer.json",
    "tokenizer_config.json",
    "vocab.txt",
    "vocab.json",
    "merges.txt",
    "special_tokens_map.json",
    "sentencepiece.bpe.model",
    "config.json",
)
"""Files of a tokenizer of `transformers`."""


def tokenizer_from(files: Mapping[str, bytes]) -> Tokenizer | None:
    """Return the tokenizer of `files`; None without files. Raises `StreamingError`."""
    if PIECES_FILE in files:
        return Pieces(files[PIECES_FILE])
    return HuggingFaceTokenizer(files) if files else None


def padded(token_ids: Sequence[Sequence[int]], padding: int, length: int | None = None) -> tuple[Tensor, Tensor]:
    """Return token ids [b, l] and mask [b, l], True at tokens, padded to `length` or the longest text."""
    import torch

    longest = max(len(tokens) for tokens in token_ids) if length is None else length
    ids = torch.full((len(token_ids), longest), padding, dtype=torch.long)
    mask = torch.zeros((len(token_ids), longest), dtype=torch.bool)
    for row, tokens in enumerate(token_ids):
        ids[row, : len(tokens)] = torch.as_tensor(tokens, dtype=torch.long)
        mask[row, : len(tokens)] = True
    return ids, mask


def learn_pieces(texts: Sequence[Text], size: int) -> Pieces:
    """Return a unigram vocabulary of at most `size` pieces, fewer where the text has no more.

    The same lines give the same bytes. Raises `StreamingError` for a size that does not hold the text's characters.
    """
    import io

    lines = [part for text in texts for part in ((text,) if isinstance(text, str) else text)]
    model = io.BytesIO()
    try:
        need("sentencepiece").SentencePieceTrainer.train(
            sentence_iterator=iter(lines),
            model_writer=model,
            model_type="unigram",
            vocab_size=size,
            hard_vocab_limit=False,
            character_coverage=0.9998,
            num_threads=1,  # with more, the order of sums and so their last digits may differ
            minloglevel=2,
            pad_id=PADDING,
            unk_id=UNKNOWN,
            bos_id=BEGIN,
            eos_id=END,
        )
    except (RuntimeError, OSError) as error:
        least = fewest_pieces(error)
        if least is not None:
            what = f"a vocabulary of {size:,} is less than the text has characters"
            raise StreamingError(what, remedy=f"give --vocab {least} or more") from None
        what = f"no vocabulary of {size:,} pieces: {describe_error(error)}"
        raise StreamingError(what, remedy="give another --vocab, or more text") from None
    return Pieces(model.getvalue())
