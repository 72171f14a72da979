"""Classification task: a file of tab-separated lines, each a text or a pair of texts and its class, as in GLUE."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from simnmt.base.files import MOST_TEXT_BYTES, read_bounded
from simnmt.streaming.errors import StreamingError

Text = str | tuple[str, str]

TEXT_COLUMNS = (
    ("sentence",),
    ("sentence1", "sentence2"),
    ("question", "sentence"),
    ("question1", "question2"),
    ("premise", "hypothesis"),
)
"""Names of the columns of text; the longest complete tuple counts."""
LABEL_COLUMN = "label"


@dataclass(frozen=True, slots=True, eq=False)
class Task:
    """Examples in the order of the file."""

    path: str
    texts: tuple[Text, ...]
    """Pairs if the file has two columns of text."""
    labels: NDArray[np.int64]
    """Class of each example, an index into `label_names`."""
    label_names: tuple[str, ...]
    sha256: str
    """Digest of the file."""

    def __len__(self) -> int:
        return len(self.texts)

    @property
    def majority(self) -> float:
        """Share of the commonest class: the accuracy of a constant answer."""
        return float(np.bincount(self.labels).max() / len(self))


def read_task(path: str | os.PathLike[str], *, label_names: Sequence[str] | None = None) -> Task:
    """Return the task in a file with a header line and without quoting; raises `StreamingError` with the line.

    Args:
        label_names: names of the model's classes, in their order; names such as `LABEL_0` mean numbers. None to take the
            labels in the file: 0 to the greatest if all are whole numbers, else in alphabetical order.
    """
    try:
        content = read_bounded(path, MOST_TEXT_BYTES, pipes=True)
    except OSError as error:
        raise StreamingError(f"cannot be read: {error.strerror or error}", path=path, remedy="name a file of a task") from None
    lines = [line.removesuffix(b"\r") for line in content.split(b"\n")]
    if lines and not lines[-1]:
        lines.pop()
    rows = [_decoded(line, number, path) for number, line in enumerate(lines, start=1)]
    if not rows:
        raise StreamingError("is empty", path=path, remedy=_HEADER_REMEDY)
    columns, label_column = _columns(rows[0], path)
    texts: list[Text] = []
    named: list[tuple[int, str]] = []
    for number, row in enumerate(rows[1:], start=2):
        if len(row) != len(rows[0]):
            what = f"{len(row)} fields where the header has {len(rows[0])}"
            raise StreamingError(what, path=path, line=number, remedy="separate the columns by one tab, and quote nothing")
        parts = [row[column].strip() for column in columns]
        if not all(parts):
            raise StreamingError("no text", path=path, line=number, remedy="leave the line out")
        texts.append((parts[0], parts[1]) if len(parts) == 2 else parts[0])
        named.append((number, row[label_column].strip()))
    if not texts:
        raise StreamingError("no example below the header", path=path, remedy="give one line an example")
    names = tuple(label_names) if label_names is not None else _names(named, path)
    classes = {name: index for index, name in enumerate(names)}
    if all(name == f"LABEL_{index}" for index, name in enumerate(names)):
        classes |= {str(index): index for index in range(len(names))}
    labels = np.empty(len(named), np.int64)
    for at, (number, label) in enumerate(named):
        if label not in classes:
            known, what = ", ".join(names[:6]) + ", ..." * (len(names) > 6), f"the label {label!r} is no class of the model"
            raise StreamingError(what, path=path, line=number, remedy=f"known: {known}")
        labels[at] = classes[label]
    return Task(os.fspath(path), tuple(texts), labels, names, hashlib.sha256(content).hexdigest())


def _decoded(line: bytes, number: int, path: str | os.PathLike[str]) -> list[str]:
    try:
        return line.decode("utf-8-sig" if number == 1 else "utf-8").split("\t")
    except UnicodeDecodeError:
        raise StreamingError("not UTF-8", path=path, line=number, remedy="convert the file to UTF-8") from None


_HEADER_REMEDY = "begin the file with a header: sentence<TAB>label, or sentence1<TAB>sentence2<TAB>label"


def _columns(header: Sequence[str], path: str | os.PathLike[str]) -> tuple[list[int], int]:
    fitting = [names for names in TEXT_COLUMNS if all(name in header for name in names)]
    if not fitting or LABEL_COLUMN not in header:
        missing = "label" if fitting else "sentence"
        raise StreamingError(f"the header has no column {missing}", path=path, line=1, remedy=_HEADER_REMEDY)
    return [list(header).index(name) for name in max(fitting, key=len)], list(header).index(LABEL_COLUMN)


def _names(named: Sequence[tuple[int, str]], path: str | os.PathLike[str]) -> tuple[str, ...]:
    for number, label in named:
        if not label:
            raise StreamingError("no label", path=path, line=number, remedy="give every example its class")
    seen = {label for _, label in named}
    if all(label.isascii() and label.isdigit() and str(int(label)) == label for label in seen):
        greatest = max(int(label) for label in seen)
        if greatest >= 1000:
            number = next(number for number, label in named if int(label) == greatest)
            what = f"the label {greatest} would make {greatest + 1} classes"
            raise StreamingError(what, path=path, line=number, remedy="number the classes from 0 without gaps")
        names = tuple(str(index) for index in range(greatest + 1))
    else:
        names = tuple(sorted(seen))
    if len(names) < 2:
        what = f"every label is {names[0]}: there is nothing to tell apart"
        raise StreamingError(what, path=path, remedy="give examples of two classes")
    return names


def shared_texts(one: Task, other: Task) -> int:
    """Return how many examples of `one` have a text of `other`, with any label."""
    known = set(other.texts)
    return sum(text in known for text in one.texts)
