"""`simnmt nmt translate` with the sharp decoder: models, ensembles, unknown words, refusals (SHARP-01, 14)."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import torch

from simnmt.kernels.beam_search import SharpTranslation
from simnmt.nmt.architecture import AttentionalArchitecture
from simnmt.nmt.checkpoint import save_checkpoint
from simnmt.nmt.models import build_model
from simnmt.nmt.sharp_translator import SharpTranslator, load_sharp
from simnmt.nmt.source_lines import Translation, load_subwords
from simnmt.nmt.subwords import SOURCE_TOKENIZER, TARGET_TOKENIZER, learn_vocabulary
from tests.command_line import Command
from tests.kernels.implementations import needs_compiled
from tests.nmt import toy_language

VOCAB, UNKNOWN = 36, 1
SMALL = AttentionalArchitecture(
    kind="attentional", hidden=16, embedding=8, source_layers=2, source_hidden=8, src_vocab=VOCAB, tgt_vocab=VOCAB
)
LINES = [source for source, _ in toy_language.pairs(6)]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folders as training writes them, of models that have learnt nothing: `a` and `b` share subwords, `c` has others."""
    made = tmp_path_factory.mktemp("sharp")
    marks = {"pad": 0, "unk": UNKNOWN, "start": 2, "eos": 3}
    texts = [text for pair in toy_language.pairs(300) for text in pair]
    for seed, name in enumerate("abc"):
        save_checkpoint(made / name, build_model(SMALL, seed=seed), SMALL)
        learnt = learn_vocabulary(texts if name != "c" else texts[:150], VOCAB, side="whole", **marks)
        for tokenizer in (SOURCE_TOKENIZER, TARGET_TOKENIZER):
            (made / name / tokenizer).write_bytes(learnt)
    (made / "in.txt").write_text("".join(f"{line}\n" for line in [LINES[0], "", *LINES[1:]]))
    return made


def translated(simnmt: Command, place: Path, *options: str) -> list[dict[str, Any]]:
    models = [str(place / word) if word in ("a", "b") else word for word in options]
    done = simnmt("nmt", "translate", str(place / "in.txt"), "--json", "--max-len", "9", *models)
    assert done.status == 0, done.err
    return [json.loads(line) for line in done.out.splitlines()]


def test_the_exact_sharp_decoder_finds_what_torch_finds_greedily(simnmt: Command, place: Path) -> None:
    torch_lines = translated(simnmt, place, "--model", "a", "--threads", "1")
    sharp_lines = translated(simnmt, place, "--model", "a", "--sharp", "exact")
    assert len(sharp_lines) == 7 and (sharp_lines[1]["text"], sharp_lines[1]["src_len"]) == ("", 0)
    for ours, theirs in zip(sharp_lines, torch_lines, strict=True):
        assert {**ours, "score": None} == {**theirs, "score": None}
        if ours["score"] is not None:
            assert ours["score"] == pytest.approx(theirs["score"], abs=1e-4)


@needs_compiled
def test_sharp_14_an_ensemble_of_one_model_twice_says_the_same_and_of_two_something_else(simnmt: Command, place: Path) -> None:
    alone = translated(simnmt, place, "--model", "a", "--sharp", "exact")
    twice = translated(simnmt, place, "--model", "a", "--model", "a")
    assert [line["text"] for line in twice] == [line["text"] for line in alone]
    both = translated(simnmt, place, "--model", "a", "--model", "b")
    assert [line["score"] for line in both] != [line["score"] for line in alone]
    fast = translated(simnmt, place, "--model", "a", "--model", "b", "--sharp", "fast")
    assert [line["text"] for line in fast] == [line["text"] for line in both]
    scores = [(line["score"], exact["score"]) for line, exact in zip(fast, both, strict=True) if exact["score"] is not None]
    assert all(ours == pytest.approx(theirs, abs=0.01) for ours, theirs in scores)
    assert any(ours != theirs for ours, theirs in scores), "16-bit products round"


@needs_compiled
def test_weights_that_16_bit_products_clip_are_warned_of_in_one_line(simnmt: Command, place: Path) -> None:
    model = build_model(SMALL, seed=0)
    with torch.no_grad():
        model.projection.weight[5, :2] = 3.0
        model.encoder.weight_hh_l1_reverse[0, 0] = -1.5
    save_checkpoint(place / "wide", model, SMALL)
    for tokenizer in (SOURCE_TOKENIZER, TARGET_TOKENIZER):
        (place / "wide" / tokenizer).write_bytes((place / "a" / tokenizer).read_bytes())
    warnings = {}
    for name, technique in (("wide", "fast"), ("wide", "exact"), ("a", "fast")):
        done = simnmt("nmt", "translate", str(place / "in.txt"), "--model", str(place / name), "--sharp", technique)
        assert done.status == 0
        warnings[name, technique] = [line for line in done.err.splitlines() if line.startswith("simnmt: warning: ")]
    [warning] = warnings.pop(("wide", "fast"))
    message = r"simnmt: warning: 3 of [\d,]+ weights \(0\.\d+ %\) lie beyond \[-1, 1\], where 16-bit products clip them: .*"
    assert re.fullmatch(message, warning)
    assert not any(warnings.values())


def test_sharp_01_unknown_words_are_replaced_where_the_decoder_looked(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The decoder is held to the unknown token, looking at `un`, then at a sign that no vocabulary has, then at the end."""
    folder = place / "a"
    _, stream = load_sharp([folder])
    pieces = load_subwords(folder)[0].cut("un ☃")

    def line_of(at: int) -> Translation:
        held = SharpTranslation((UNKNOWN,), -0.5, (at,), 2, 1.0, stopped_early=True)
        monkeypatch.setattr(SharpTranslator, "decode", lambda *_, **__: held)
        return next(stream(["un ☃"]))

    assert (line_of(0).text, line_of(0).replaced) == ("un", 1)
    snow = line_of(next(at for at, piece in enumerate(pieces) if "☃" in piece))
    assert (snow.text, snow.replaced) == ("☃", 1)
    assert line_of(len(pieces)).text == "⁇", "the end of the source"
