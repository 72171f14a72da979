"""`simnmt nmt score`, as a user meets it: models with several decoders, files of other systems, and what is refused."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from simnmt.nmt.scoring import load_metrics
from simnmt.workload.quality import SCORES, STATISTICS, read_scores
from tests.command_line import Command, assert_one_line
from tests.nmt import toy_language

SHAPE = "--heldout 20 --batch-tokens 200 --threads 1 --steps 3"
SCORE = ("nmt", "score", "--text", "few.one", "--references", "few.other", "--threads", "1")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("score")
    toy_language.write(place, 300)
    for name, shape in (("gru", toy_language.GRU), ("transformer", toy_language.TRANSFORMER)):
        (place / f"{name}.json").write_text(shape.model_dump_json())
    pairs = toy_language.pairs(30, seed=5)
    (place / "few.one").write_text("".join(f"{one}\n" for one, _ in pairs) + "\n")
    (place / "few.other").write_text("".join(f"{other}\n" for _, other in pairs) + "\n")
    (place / "worse.txt").write_text("".join(f"{other.split()[0]} nine\n" for _, other in pairs) + "\n")
    return place


@pytest.fixture
def here(made: Path, monkeypatch: pytest.MonkeyPatch, simnmt: Command) -> Path:
    monkeypatch.chdir(made)
    for name in ("gru", "transformer"):
        if not Path(name).exists():
            train = ("nmt", "train", "--src", "one.txt", "--tgt", "other.txt", "--model", f"{name}.json", *SHAPE.split())
            assert simnmt(*train, "--out", name).status == 0
    return made


def test_models_and_files_are_scored_by_sentence_as_sacrebleu_scores_their_translations(here: Path, simnmt: Command) -> None:
    done = simnmt(*SCORE, "gru", "gru=again", "--hypotheses", "worse.txt=worse", "--beam", "2", "--out", "a.parquet", "--json")
    assert done.status == 0 and (not done.err or "stopped at their greatest length" in done.err), done.err
    summary = json.loads(done.out)
    assert [system["model"] for system in summary["systems"]] == ["worse", "gru-beam2", "again"]
    assert summary["chrf"].startswith("nrefs:1|case:mixed") and "tok:13a" in summary["bleu"]
    references = Path("few.other").read_text().split("\n")[:31]
    translate = ("nmt", "translate", "--model", "gru", "--threads", "1", "few.one", "--beam", "2", "--json")
    rows = [json.loads(line) for line in simnmt(*translate).out.splitlines()]
    texts = {"worse": Path("worse.txt").read_text().split("\n")[:31], "gru-beam2": [row["text"] for row in rows]}
    for system in summary["systems"][:2]:
        scores = read_scores(here / "a.parquet", system["model"])
        for name, metric in load_metrics().items():
            expected = metric.corpus_score(texts[system["model"]], [references]).score
            assert system[name] == pytest.approx(expected, rel=1e-9)
            assert float(SCORES[name](scores.statistics.sum(axis=0).astype(float))) == pytest.approx(expected, rel=1e-9)
            assert system[f"{name}_low"] <= system[name] <= system[f"{name}_high"]
    model = read_scores(here / "a.parquet", "gru-beam2").features
    assert model["output_len"].tolist() == [row["tgt_len"] for row in rows]
    expected_sums = [np.nan if row["score"] is None else row["score"] * (row["tgt_len"] + row["ended"]) for row in rows]
    np.testing.assert_allclose(model["logprob"], expected_sums)
    assert model["src_words"].tolist() == [len(line.split()) for line in Path("few.one").read_text().split("\n")[:31]]
    assert np.isnan(read_scores(here / "a.parquet", "worse").features["logprob"]).all()
    table = pq.read_table("a.parquet")
    assert table.num_rows == 3 * 31 and {*STATISTICS} <= {*table.schema.names}


def test_the_text_of_a_score_has_a_row_for_each_system(here: Path, simnmt: Command) -> None:
    done = simnmt(*SCORE, "--hypotheses", "worse.txt", "--hypotheses", "few.other=reference", "--out", "b.parquet")
    assert (done.status, done.err) == (0, "")
    head, _, worse, reference, place = done.out.splitlines()
    assert head.split() == ["model", "sentences", "chrF", "BLEU"] and place == "scores: b.parquet"
    assert worse.startswith("worse.txt ") and reference.startswith("reference ") and "100" in reference
    assert simnmt(*SCORE, "--hypotheses", "worse.txt", "--out", "b.parquet").status == 2, "it exists already"
    pairs = zip(Path("few.one").read_text().splitlines(), Path("few.other").read_text().splitlines(), strict=True)
    Path("few.tsv").write_text("".join(f"{one}\t{other}\n" for one, other in pairs if one))
    Path("fewer.txt").write_text("nine\n" * 30)
    columns = ("nmt", "score", "--text", "few.tsv", "--hypotheses", "fewer.txt", "--out", "c.parquet")
    assert simnmt(*columns).status == 0 and pq.read_table("c.parquet").num_rows == 30


def test_transformers_are_scored_in_the_compute_types_of_ctranslate2(here: Path, simnmt: Command) -> None:
    pytest.importorskip("ctranslate2")
    for name, more in (("float", ()), ("same", ("--compute-type", "float32")), ("int8", ("--compute-type", "int8"))):
        assert simnmt(*SCORE, "transformer=x", *more, "--out", f"{name}.parquet").status == 0
    plain, same = (pq.read_table(f"{name}.parquet")["output_hash"].to_pylist() for name in ("float", "same"))
    assert plain == same
    logprobs = {name: read_scores(here / f"{name}.parquet").features["logprob"] for name in ("float", "same", "int8")}
    np.testing.assert_allclose(logprobs["same"], logprobs["float"], atol=1e-3)
    np.testing.assert_array_equal(np.isnan(logprobs["int8"]), np.isnan(logprobs["float"]))


@pytest.mark.parametrize(
    ("arguments", "what"),
    [
        ("--hypotheses one.txt --out d.parquet", "one.txt: 300 lines, but the text has 31 sentences"),
        ("--hypotheses worse.txt=x --hypotheses few.other=x --out d.parquet", "two systems are called x"),
        ("--hypotheses worse.txt --tokenize sjis --out d.parquet", "--tokenize: "),
        ("--hypotheses worse.txt --references one.txt --out d.parquet", "few.one: 31 lines, but one.txt has 300"),
        ("--hypotheses worse.txt --keys de:en --out d.parquet", "keys are for one file of JSON Lines, not for two files"),
        ("gru --compute-type int8 --sharp exact --out d.parquet", "CTranslate2, which translates with a compute type"),
        ("gru --compute-type int8 --out d.parquet", "CTranslate2 runs no "),
        ("gru --sharp exact --out d.parquet", "gru: the sharp decoder runs no "),
        ("nothing --out d.parquet", "nothing: "),
        ("--hypotheses worse.txt --out worse.txt", "worse.txt would replace what is read"),
        ("--out d.parquet", "give models, or translations of another system"),
        ("--hypotheses worse.txt --out absent/d.parquet", "absent/d.parquet"),
    ],
)
def test_what_cannot_be_scored_is_refused_in_one_line(arguments: str, what: str, here: Path, simnmt: Command) -> None:
    done = simnmt(*SCORE, *shlex.split(arguments))
    assert done.status == 2 and what in done.err, done.err
    assert_one_line(done.err)
    assert not Path("d.parquet").exists()
