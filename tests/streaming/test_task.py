"""Tasks are read as GLUE writes them, and a bad line is named."""

from __future__ import annotations

from pathlib import Path

import pytest

from simnmt.streaming.encoder.task import Task, read_task
from simnmt.streaming.errors import StreamingError


def task_of(folder: Path, content: str | bytes, **told: object) -> Task:
    path = folder / "task.tsv"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return read_task(path, **told)  # type: ignore[arg-type]


def test_sentences_and_their_classes_in_order(tmp_path: Path) -> None:
    task = task_of(tmp_path, 'sentence\tlabel\na "good film\t1\nbad\t0\ngood\t1\n')
    assert task.texts == ('a "good film', "bad", "good")
    assert (task.labels.tolist(), task.label_names, task.majority) == ([1, 0, 1], ("0", "1"), pytest.approx(2 / 3))


def test_columns_are_found_by_name_and_pairs_stay_pairs(tmp_path: Path) -> None:
    task = task_of(tmp_path, "index\tlabel\tsentence1\tsentence2\r\n7\tnot\tone\tother\r\n8\tentailment\ta\tb\r\n")
    assert task.texts == (("one", "other"), ("a", "b"))
    assert (task.labels.tolist(), task.label_names) == ([1, 0], ("entailment", "not"))


def test_a_question_and_a_sentence_are_a_pair(tmp_path: Path) -> None:
    assert task_of(tmp_path, "question\tsentence\tlabel\nq\ts\t0\nr\tt\t1\n").texts[0] == ("q", "s")


def test_the_models_classes_decide_what_a_label_means(tmp_path: Path) -> None:
    names = ("entailment", "not_entailment")
    assert task_of(tmp_path, "sentence\tlabel\nx\tnot_entailment\n", label_names=names).labels.tolist() == [1]
    unnamed = ("LABEL_0", "LABEL_1", "LABEL_2")
    assert task_of(tmp_path, "sentence\tlabel\nx\t2\n", label_names=unnamed).labels.tolist() == [2]


def test_the_same_bytes_have_the_same_sum(tmp_path: Path) -> None:
    one = task_of(tmp_path, "sentence\tlabel\nx\t1\ny\t0\n").sha256
    assert one != task_of(tmp_path, "sentence\tlabel\nx\t0\ny\t0\nz\t1\n").sha256 and len(one) == 64


@pytest.mark.parametrize(
    ("content", "line", "said"),
    [
        (b"", None, "is empty"),
        (b"sentence\tlabel\n", None, "no example"),
        (b"text\tlabel\nx\t1\n", 1, "no column sentence"),
        (b"sentence\tclass\nx\t1\n", 1, "no column label"),
        (b"sentence\tlabel\nx\t1\ny\n", 3, "1 fields where the header has 2"),
        (b"sentence\tlabel\nx\t1\ny\tz\t0\n", 3, "3 fields"),
        (b"sentence\tlabel\nx\t1\n\t0\n", 3, "no text"),
        (b"sentence\tlabel\nx\t1\ny\t\n", 3, "no label"),
        (b"sentence\tlabel\nx\t1\n\xff\t0\n", 3, "not UTF-8"),
        (b"sentence\tlabel\nx\t1\ny\t1000000\n", 3, "1000001 classes"),
        (b"sentence\tlabel\nx\tyes\ny\tyes\n", None, "every label is yes"),
    ],
)
def test_a_bad_line_is_named_with_the_remedy(tmp_path: Path, content: bytes, line: int | None, said: str) -> None:
    with pytest.raises(StreamingError, match=said) as caught:
        task_of(tmp_path, content)
    assert (caught.value.line, caught.value.path) == (line, str(tmp_path / "task.tsv")) and caught.value.remedy


def test_a_label_that_the_model_has_no_class_for(tmp_path: Path) -> None:
    with pytest.raises(StreamingError, match="'2' is no class"):
        task_of(tmp_path, "sentence\tlabel\nx\t1\ny\t2\n", label_names=("0", "1"))


def test_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(StreamingError, match="cannot be read"):
        read_task(tmp_path / "none.tsv")
