"""Parallel text: two files, columns or JSON Lines become joint counts, or an error with its place."""

from __future__ import annotations

import gzip
import json
import os
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simnmt.workload import CorpusError
from simnmt.workload.corpus import Dropped, json_pairs, read_corpus
from simnmt.workload.length_table import LengthTable
from simnmt.workload.text_lines import TextLines

GERMAN = "das Haus ist alt\nja\n\nwir sehen den alten Mann\nja"
ENGLISH = "the house is old\nyes\nempty\nwe see the old man\nindeed so\n"


def written(folder: Path, name: str, content: str | bytes) -> Path:
    path = folder / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def read(source: Path, target: Path | None = None, **options: str) -> tuple[LengthTable, Dropped]:
    return read_corpus(source, target, **{"src_unit": "word", "tgt_unit": "word", **options})


def rows(table: LengthTable) -> list[tuple[int, int, int]]:
    return list(zip(table.src_len.tolist(), table.tgt_len.tolist(), table.count.tolist(), strict=True))


def test_two_files_become_joint_counts(tmp_path: Path) -> None:
    table, dropped = read(written(tmp_path, "de.txt", GERMAN), written(tmp_path, "en.txt", ENGLISH))
    assert rows(table) == [(1, 1, 1), (1, 2, 1), (4, 4, 1), (5, 5, 1)]
    assert dropped == Dropped("cnmt", 5, {"empty": 1, "too_long": 0, "ratio": 0})
    assert (table.name, table.source) == ("de-en", "de.txt and en.txt")
    assert table.filtered == "cnmt: 5 pairs read, 1 dropped (empty 1, too_long 0, ratio 0)"


def test_gzip_columns_rows_mark_and_crlf_give_the_same_table(tmp_path: Path) -> None:
    german, english = GERMAN.split("\n"), ENGLISH.split("\n")[:5]
    pairs = list(zip(german, english, strict=True))
    tsv = "".join(f"{de}\t{en}\n" for de, en in pairs)
    nested = "".join(json.dumps({"id": 1, "translation": {"de": de, "en": en}}) + "\n" for de, en in pairs)
    flat = "".join(json.dumps({"en": en, "de": de}, ensure_ascii=False) + "\n" for de, en in pairs)
    expected = rows(read(written(tmp_path, "de.txt", GERMAN), written(tmp_path, "en.txt", ENGLISH))[0])
    packed = [written(tmp_path, f"{n}.gz", gzip.compress(t.encode())) for n, t in (("d", GERMAN), ("e", ENGLISH))]
    marked = [
        written(tmp_path, name, b"\xef\xbb\xbf" + text.replace("\n", "\r\n").encode())
        for name, text in (("de_bom.txt", GERMAN), ("en_bom.txt", ENGLISH))
    ]
    assert rows(read(*packed)[0]) == expected == rows(read(*marked)[0])
    # Known by its content, not by its name.
    for content in (tsv.encode(), gzip.compress(tsv.encode())):
        assert rows(read(written(tmp_path, "pairs.bin", content))[0]) == expected
    for text in (nested, flat, "\ufeff" + flat, flat.rstrip("\n"), flat + "\n \n"):
        for content in (text.encode(), gzip.compress(text.encode())):
            table, _ = read(written(tmp_path, "rows.jsonl", content), keys=("de", "en"))
            assert (rows(table), table.name, table.source) == (expected, "de-en", "rows.jsonl")


@pytest.mark.skipif(not Path("/dev/fd").exists(), reason="the system has no /dev/fd")
@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_a_pipe_is_a_file_too(pack: Callable[[bytes], bytes]) -> None:
    """As in `simnmt corpus fit <(cut -f1 all.tsv) <(cut -f2 all.tsv)`: read once, never rewound."""
    reader, writer = os.pipe()
    try:
        os.write(writer, pack(b"a b\tc\n"))
        os.close(writer)
        assert rows(read(Path(f"/dev/fd/{reader}"))[0]) == [(2, 1, 1)]
    finally:
        os.close(reader)


def test_marks_quotes_and_other_line_breaks_mean_nothing(tmp_path: Path) -> None:
    """A form feed, U+2028 or an open quotation mark inside a sentence must not shift the pairs."""
    text = 'he said "so\tja "\na\x0cb\u2028c\x85d\te f\n'
    assert rows(read(written(tmp_path, "q.tsv", text))[0]) == [(3, 2, 1), (4, 2, 1)]
    path = written(tmp_path, "a.tsv", b"\xef\xbb\xbfab\tcd\n")
    assert rows(read(path, src_unit="char", tgt_unit="char")[0]) == [(2, 2, 1)]


def test_the_two_sides_can_have_different_units(tmp_path: Path) -> None:
    path = written(tmp_path, "enzh.tsv", "hello fine world\t你好，世界\n")
    assert rows(read(path, tgt_unit="mixed")[0]) == [(3, 5, 1)]
    assert rows(read(path, src_unit="char", tgt_unit="word", filter="none")[0]) == [(14, 1, 1)]


@given(st.lists(st.tuples(st.integers(1, 12), st.integers(1, 12)), min_size=1, max_size=40))
def test_the_table_holds_what_a_plain_loop_counts(tmp_path_factory: pytest.TempPathFactory, pairs) -> None:
    folder = tmp_path_factory.mktemp("corpus")
    source = written(folder, "s.txt", "".join("x " * n + "\n" for n, _ in pairs))
    target = written(folder, "t.txt", "".join("y " * m + "\n" for _, m in pairs))
    table, dropped = read(source, target, filter="none")
    assert rows(table) == [(n, m, pairs.count((n, m))) for n, m in sorted(set(pairs))]
    assert (dropped.pairs_read, dropped.pairs_dropped, table.pairs) == (len(pairs), 0, len(pairs))


def test_blank_lines_between_documents_are_no_pairs(tmp_path: Path) -> None:
    """News Commentary separates its documents by a blank line."""
    table, dropped = read(written(tmp_path, "nc.tsv", "Ja .\tYes .\n\nNein .\tNo .\n"), filter="none")
    assert (table.pairs, dropped.pairs_read) == (2, 2)


POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 298763648\n"
BAD_FILES = {
    "undecodable byte": (b"ok\tok\nna\xefve\tnaive\n", 2, 3, "iconv"),
    "undecodable byte after a mark": (b"\xef\xbb\xbf\xff\tcd\n", 1, 1, "iconv"),
    "truncated character": (b"ok\tok\nab\tab\xe4\xb8", 2, 6, "iconv"),
    "UTF-16": ("hallo\thello\n".encode("utf-16"), 1, 4, "-f UTF-16"),
    "UTF-16 without mark": ("hallo\thello\n".encode("utf-16-le"), 1, 2, "-f UTF-16"),
    "one column": (b"a\tb\nonly\n", 2, None, "one tab"),
    "one file of two": (b"ein Satz\nzwei\n", 1, None, "file of the translations"),
    "three columns": (b"a\tb\tc\n", 1, None, "cut -f1,2"),
    "JSON Lines without keys": (b'{"de": "a", "en": "b"}\n', 1, None, "--keys"),
    "NUL byte": (b"a\tb\na b\tc \0 d\n", 2, 7, "-f UTF-16"),
    "packed by xz": (b"\xfd7zXZ\0\0\0\n", None, None, "unxz"),
    "packed by zstd": (b"\x28\xb5\x2f\xfd\0\0", None, None, "unzstd"),
    "pointer of Git LFS": (POINTER, None, None, "git lfs pull"),
    "empty": (b"", None, None, "one sentence a line"),
    "all dropped": (b"a\t\n\tb\n", None, None, "line i of both sides"),
    "cut gzip": (gzip.compress(b"a b\tc d\n" * 9)[:-9], None, None, "compress it again"),
    "no gzip": (b"\x1f\x8bnonsense", None, None, "compress it again"),
    "damaged gzip": (gzip.compress(b"a\tb\n")[:10] + b"\xff" * 20, None, None, "compress it again"),
}


@pytest.mark.parametrize(("content", "line", "column", "remedy"), BAD_FILES.values(), ids=BAD_FILES)
def test_a_bad_file_is_named_with_place_and_remedy(
    tmp_path: Path, content: bytes, line: int | None, column: int | None, remedy: str
) -> None:
    path = written(tmp_path, "bad.tsv", content)
    with pytest.raises(CorpusError) as caught:
        read(path)
    error = caught.value
    assert (error.path, error.line, error.column, error.exit_status) == (str(path), line, column, 2)
    assert remedy in str(error.remedy) and "\n" not in str(error)


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize(("src_lines", "tgt_lines"), [(3, 5), (2, 0)])
def test_unequal_files_are_refused_with_both_counts(tmp_path: Path, src_lines: int, tgt_lines: int, packed: bool) -> None:
    source, target = (
        written(tmp_path, name, gzip.compress(b"word\n" * lines) if packed else b"word\n" * lines)
        for name, lines in (("a.txt", src_lines), ("b.txt", tgt_lines))
    )
    with pytest.raises(CorpusError, match=rf"a\.txt: {src_lines} lines, but .*b\.txt has {tgt_lines} "):
        read(source, target)


@pytest.mark.parametrize("device", ["/dev/zero", "/dev/tty"])
def test_a_device_is_refused_at_once(tmp_path: Path, device: str) -> None:
    """Some never end."""
    if not Path(device).exists():
        pytest.skip(f"the system has no {device}")
    with pytest.raises(CorpusError, match=rf"^{device}: .* a device"):
        read(Path(device))
    (tmp_path / "link").symlink_to(device)
    with pytest.raises(CorpusError, match=r"link: .* a device"):
        read(written(tmp_path, "a.txt", "a\n"), tmp_path / "link")


def test_a_line_without_end_does_not_fill_the_memory(tmp_path: Path) -> None:
    path = written(tmp_path, "bomb.tsv", gzip.compress(b" " * (64 << 20), compresslevel=1))
    tracemalloc.start()
    try:
        with pytest.raises(CorpusError, match="a line of more than"):
            read(path)
        assert tracemalloc.get_traced_memory()[1] < 8 << 20
    finally:
        tracemalloc.stop()


# --- rows of JSON Lines ---


def read_rows(path: Path, src_key: str = "de", tgt_key: str = "en") -> list[tuple[str, str]]:
    return list(json_pairs(TextLines(path), src_key, tgt_key))


def test_a_row_may_have_any_two_keys_even_one_called_translation(tmp_path: Path) -> None:
    path = written(tmp_path, "rows.jsonl", json.dumps({"source": "a b\u2028你", "translation": "c"}) + "\n")
    assert read_rows(path, "source", "translation") == [("a b\u2028你", "c")]
    assert read_rows(path, "translation", "source") == [("c", "a b\u2028你")]


BAD_ROWS = {
    "a missing key": ('{"de": "a", "en": "b"}\n{"de": "a", "fr": "b"}\n', 2, None, "known: de, fr"),
    "a missing inner key": ('{"translation": {"fr": "a", "en": "b"}}', 1, None, "known: fr, en"),
    "a near miss": ('{"de": "a", "eng": "b"}', 1, None, "did you mean eng"),
    "null": ('{"de": "a", "en": null}', 1, None, "known: de"),
    "a list of texts": ('{"de": "a", "en": ["b"]}', 1, None, "known: de"),
    "a row that is a list": ('["a", "b"]', 1, None, "jq -c"),
    "a bare text": ('"a"', 1, None, "one JSON object a line"),
    "no JSON": ('{"de": "a", "en": "b"}\nplain text\n', 2, 1, "one JSON object a line"),
    "a cut row": ('{"de": "a", "en": "b', 1, 19, "one JSON object a line"),
    "JSON over many lines": ('{\n"de": "a",\n"en": "b"}', 1, 2, "jq -c"),
    "a long number": ('{"de": "a", "en": "b", "n": ' + "9" * 5000 + "}", 1, None, "one JSON object a line"),
    "deep nesting": ('{"de": ' + "[" * 100_000 + "]" * 100_000 + "}", 1, None, "one JSON object a line"),
    "half a character": (r'{"de": "a", "en": "\ud83d"}', 1, None, "as UTF-8"),
    "a long row": ('{"de": "a", "en": "' + "b" * 2**20 + '"}', 1, None, "one sentence a line"),
}


@pytest.mark.parametrize(("content", "line", "column", "remedy"), BAD_ROWS.values(), ids=BAD_ROWS)
def test_a_bad_row_is_named_with_its_line_and_the_remedy(
    tmp_path: Path, content: str, line: int, column: int | None, remedy: str
) -> None:
    path = written(tmp_path, "rows.jsonl", content)
    with pytest.raises(CorpusError) as caught:
        read_rows(path)
    assert (caught.value.path, caught.value.line, caught.value.column) == (str(path), line, column)
    assert remedy in str(caught.value.remedy) and "\n" not in str(caught.value) and len(str(caught.value)) < 400
