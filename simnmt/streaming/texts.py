"""Texts that a classifier reads: tasks (examples with their classes), and tokenizers."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simnmt.base.files import MOST_TEXT_BYTES, read_bounded
from simnmt.nmt.errors import need
from simnmt.nmt.subwords import learn_vocabulary
from simnmt.streaming.errors import StreamingError

Text = str | tuple[str, str]

TEXT_COLUMNS = (
    ("sentence",),
    ("sentence1", "sentence2"),
    ("question", "sentence"),
    ("question1", "question2"),
    ("premise", "hypothesis"),
)
"""Names of the columns of text, as in GLUE; the longest complete tuple counts."""
LABEL_COLUMN = "label"
MOST_CLASSES = 1000


@dataclass(frozen=True, slots=True, eq=False)
class Task:
    """Examples in the order of the file."""

    path: str
    texts: tuple[Text, ...]
    labels: NDArray[np.int64]
    """Class of each example, an index into `label_names`."""
    label_names: tuple[str, ...]
    sha256: str

    def __len__(self) -> int:
        return len(self.texts)

    @property
    def majority(self) -> float:
        """Share of the commonest class: the accuracy of a constant answer."""
        return float(np.bincount(self.labels).max() / len(self))

    def shared_texts(self, other: Task) -> int:
        """Return how many examples have a text of `other`, with any label."""
        known = set(other.texts)
        return sum(text in known for text in self.texts)


def read_task(path: str | os.PathLike[str], *, label_names: Sequence[str] | None = None) -> Task:
    """Return the task in a file of tab-separated lines with a header, unquoted; raises `StreamingError` with the line.

    `label_names`: names of the model's classes, in their order; names such as `LABEL_0` mean numbers. None to take the labels
    in the file: 0 to the greatest if all are whole numbers, else in alphabetical order.
    """

    fault = partial(StreamingError, path=path)
    try:
        content = read_bounded(path, MOST_TEXT_BYTES, pipes=True)
        lines = content.decode("utf-8-sig").removesuffix("\n").split("\n")
    except OSError as error:
        raise fault(f"cannot be read: {error.strerror or error}") from None
    except UnicodeDecodeError as error:
        raise fault("not UTF-8", line=content.count(b"\n", 0, error.start) + 1, remedy="convert the file to UTF-8") from None
    header, *rows = [line.removesuffix("\r").split("\t") for line in lines]
    columns = max((names for names in TEXT_COLUMNS if set(names) <= set(header)), key=len, default=())
    if not columns or LABEL_COLUMN not in header or not rows:
        what = "no column sentence" if not columns else "no column label, or no example below the header"
        remedy = "begin the file with a header: sentence<TAB>label, or sentence1<TAB>sentence2<TAB>label"
        raise fault(what, line=1, remedy=remedy)
    places = [header.index(name) for name in (*columns, LABEL_COLUMN)]
    texts: list[Text] = []
    labels: list[str] = []
    for number, row in enumerate(rows, start=2):
        if len(row) != len(header):
            remedy = "separate the columns by one tab"
            raise fault(f"{len(row)} fields where the header has {len(header)}", line=number, remedy=remedy)
        *parts, label = (row[place].strip() for place in places)
        if not label or not all(parts):
            raise fault("no text, or no label", line=number, remedy="leave the line out")
        texts.append((parts[0], parts[1]) if len(parts) == 2 else parts[0])
        labels.append(label)
    names = _names_of(labels, path) if label_names is None else tuple(label_names)
    classes = {name: index for index, name in enumerate(names)}
    if all(name == f"LABEL_{index}" for index, name in enumerate(names)):
        classes |= {str(index): index for index in range(len(names))}
    for number, label in enumerate(labels, start=2):
        if label not in classes:
            known = f"known: {', '.join(names[:6])}"
            raise fault(f"the label {label!r} is no class of the model", line=number, remedy=known)
    indices = np.array([classes[label] for label in labels], np.int64)
    return Task(os.fspath(path), tuple(texts), indices, names, hashlib.sha256(content).hexdigest())


def _names_of(labels: Sequence[str], path: str | os.PathLike[str]) -> tuple[str, ...]:
    names = tuple(sorted(set(labels)))
    if all(label.isascii() and label.isdigit() and str(int(label)) == label for label in names):
        names = tuple(map(str, range(min(max(map(int, names)), MOST_CLASSES) + 1)))
    if not 2 <= len(names) <= MOST_CLASSES:
        remedy = f"give 2 to {MOST_CLASSES:,} classes, numbered from 0 without gaps if by numbers"
        raise StreamingError(f"number of classes: {len(names):,}", path=path, remedy=remedy)
    return names


PADDING, UNKNOWN, BEGIN, END = 0, 1, 2, 3
"""First tokens of every vocabulary of simnmt."""
PIECES_FILE, TOKENIZER_FILE = "tokenizer.model", "tokenizer.json"
"""Files of the sentencepiece model of our encoders, and of the tokenizer of a published one."""


class Pieces:
    """A sentencepiece vocabulary: a mark at the beginning, and one between the texts of a pair."""

    def __init__(self, model: bytes) -> None:
        """Load a sentencepiece model; raises `StreamingError` for other bytes."""
        try:
            self._pieces = need("sentencepiece").SentencePieceProcessor(model_proto=model)
        except RuntimeError:
            raise StreamingError("no sentencepiece model", path=PIECES_FILE, remedy="train or shard the model again") from None
        self.files: Mapping[str, bytes] = {PIECES_FILE: model}
        self.size: int = self._pieces.get_piece_size()

    def encode(self, texts: Sequence[Text], length: int) -> list[list[int]]:
        """Return the tokens of each text or pair, at most `length`."""
        encoded = []
        for text in texts:
            first, *rest = (text,) if isinstance(text, str) else text
            tokens = [BEGIN, *self._pieces.encode(first, out_type=int)]
            for part in rest:
                tokens += [END, *self._pieces.encode(part, out_type=int)]
            encoded.append(tokens[:length])
        return encoded


def learn_pieces(texts: Sequence[Text], size: int) -> Pieces:
    """Return a unigram vocabulary of at most `size` pieces, fewer where the text has no more.

    The same lines give the same bytes. Raises `TrainingError` for a size that does not hold the text's characters.
    """
    lines = [part for text in texts for part in ((text,) if isinstance(text, str) else text)]
    marks = {"pad": PADDING, "unk": UNKNOWN, "start": BEGIN, "eos": END}
    return Pieces(learn_vocabulary(lines, size, side="task's", at_most=True, **marks))


class HuggingFaceTokenizer:
    """The tokenizer of a published model, in the format of the library `tokenizers`; see `Pieces`."""

    def __init__(self, content: bytes) -> None:
        """Load a `tokenizer.json`; raises `StreamingError` for other bytes."""
        try:
            self._tokenizer: Any = need("tokenizers").Tokenizer.from_str(content.decode())
        except Exception:  # the library has no class of errors
            raise StreamingError("no tokenizer", path=TOKENIZER_FILE, remedy="shard the model again") from None
        self._tokenizer.no_padding()

    def encode(self, texts: Sequence[Text], length: int) -> list[list[int]]:
        self._tokenizer.enable_truncation(length)
        return [encoding.ids for encoding in self._tokenizer.encode_batch(list(texts))]
