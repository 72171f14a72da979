"""Corpora as JSON Lines."""

from __future__ import annotations

import gzip
import json
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simnmt.workload.corpus import json_pairs, read_corpus
from simnmt.workload.errors import CorpusError
from simnmt.workload.text_lines import TextLines

PAIRS = [
    ("das Haus ist alt", "the house is old"),
    ('er sagte "so\tja"', "he said so"),
    ("", "empty"),
    ("naïve\u2028Zeile", "你好"),
]


def written(folder: Path, content: str | bytes, name: str = "rows.jsonl") -> Path:
    path = folder / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def read(path: Path, src_key: str = "de", tgt_key: str = "en") -> list[tuple[str, str]]:
    return list(json_pairs(TextLines(path), src_key, tgt_key))


def test_rows_of_either_form_give_their_texts(tmp_path: Path) -> None:
    nested = "".join(json.dumps({"id": 1, "translation": {"de": de, "en": en}}) + "\n" for de, en in PAIRS)
    flat = "".join(json.dumps({"en": en, "de": de, "score": 0.5}, ensure_ascii=False) + "\n" for de, en in PAIRS)
    for text in (nested, flat, nested.replace("\n", "\r\n"), "\ufeff" + flat, flat.rstrip("\n"), flat + "\n \n"):
        assert read(written(tmp_path, text)) == PAIRS
        assert read(written(tmp_path, gzip.compress(text.encode()))) == PAIRS
    assert read(written(tmp_path, nested), "en", "de") == [(en, de) for de, en in PAIRS]


def test_a_row_may_have_any_two_keys_even_one_called_translation(tmp_path: Path) -> None:
    path = written(tmp_path, json.dumps({"source": "a b", "translation": "c"}) + "\n")
    assert read(path, "source", "translation") == [("a b", "c")]


def test_a_corpus_of_json_lines_is_that_of_its_columns(tmp_path: Path) -> None:
    pairs = [("a b c", "d e"), ("a", "b"), ("a b c", "d e")]
    rows = written(tmp_path, "".join(json.dumps({"de": de, "en": en}) + "\n" for de, en in pairs))
    columns = written(tmp_path, "".join(f"{de}\t{en}\n" for de, en in pairs), "a.tsv")
    (one, dropped), (other, _) = (
        read_corpus(path, keys=keys, src_unit="word", tgt_unit="word") for path, keys in ((rows, ("de", "en")), (columns, None))
    )
    for key in ("src_len", "tgt_len", "count"):
        assert getattr(one, key).tolist() == getattr(other, key).tolist()
    assert (one.name, one.source, dropped.pairs_read) == ("de-en", "rows.jsonl", 3)


BAD_ROWS = [
    (
        "a missing key",
        '{"de": "a", "en": "b"}\n{"de": "a", "fr": "b"}\n',
        r":2: no key 'en'; there are texts under 'de', 'fr' \(",
    ),
    ("a missing inner key", '{"translation": {"fr": "a", "en": "b"}}', r":1: no key 'de'; there are texts under 'fr', 'en' \("),
    ("no texts at all", '{"id": 3}', r":1: no key 'de', and no text under any other \(name the keys"),
    ("a near miss", '{"de": "a", "eng": "b"}', r":1: no key 'en'; there are texts under 'de', 'eng' \(did you mean eng\?\)"),
    ("null", '{"de": "a", "en": null}', r":1: en is null, not a text \(name two keys whose values are texts\)"),
    ("a number", '{"de": 7, "en": "b"}', r":1: de is a number, not a text \("),
    ("a list of texts", '{"de": "a", "en": ["b"]}', r":1: en is a list, not a text \("),
    ("a row that is a list", '["a", "b"]', r":1: a list, not an object with two texts \(write each row on a line .* jq -c"),
    ("a bare text", '"a"', r":1: a text, not an object with two texts \(write one JSON object a line\)"),
    ("no JSON", '{"de": "a", "en": "b"}\nplain text\n', r":2:1: no JSON: Expecting value \(write one JSON object a line\)"),
    ("a cut row", '{"de": "a", "en": "b', r":1:19: no JSON: .* \(write one JSON object a line\)"),
    ("JSON over many lines", '{\n"de": "a",\n"en": "b"}', r":1:2: no JSON: .* \(it looks like one JSON text over many lines"),
    ("a long number", '{"de": "a", "en": "b", "n": ' + "9" * 5000 + "}", r":1: no JSON that can be read: a number too long \("),
    ("deep nesting", '{"de": ' + "[" * 100_000 + "]" * 100_000 + "}", r":1: nested too deeply to be a row \("),
    ("half a character", r'{"de": "a", "en": "\ud83d"}', r":1: an escape that is half a character .* \(write the file again"),
    ("a long row", '{"de": "a", "en": "' + "b" * 2**20 + '"}', r":1: a line of more than 1,048,576 bytes \("),
    ("no UTF-8", b'{"de": "a", "en": "\xe9"}', r":1:20: byte 0xe9 is not UTF-8 \("),
]


@pytest.mark.parametrize(("content", "message"), [case[1:] for case in BAD_ROWS], ids=[case[0] for case in BAD_ROWS])
def test_a_bad_row_is_named_with_its_line_and_the_remedy(tmp_path: Path, content: str | bytes, message: str) -> None:
    path = written(tmp_path, content)
    with pytest.raises(CorpusError, match=f"^{re.escape(str(path))}{message}") as caught:
        read(path)
    assert "\n" not in str(caught.value) and len(str(caught.value)) < 400


@given(st.dictionaries(st.text(max_size=3), st.none() | st.text(max_size=3) | st.integers() | st.lists(st.text(max_size=2))))
def test_whatever_a_row_holds_there_is_a_pair_or_one_clear_line(tmp_path_factory: pytest.TempPathFactory, row) -> None:
    path = written(tmp_path_factory.getbasetemp(), json.dumps(row))
    try:
        ((src, tgt),) = read(path, "a", "b")
        assert (src, tgt) == (row["a"], row["b"])
    except CorpusError as error:
        assert str(error).startswith(f"{path}:1: ") and "\n" not in str(error)
