"""The benchmarks of the fused output layer do what they say, on tiny models."""

from __future__ import annotations

import json
from pathlib import Path
from time import perf_counter
from types import SimpleNamespace

import pytest

torch = pytest.importorskip("torch", reason="the extra packages of simnmt[models] are not installed")

from benchmarks import fused_agreement, fused_decoding  # noqa: E402
from simnmt.batching import mini  # noqa: E402
from simnmt.calibrate.decoder_speeds import watched  # noqa: E402
from simnmt.kernels.projection_timing import clock_of  # noqa: E402
from simnmt.nmt.models import build_model  # noqa: E402
from simnmt.nmt.slot_decoder import decode_batched  # noqa: E402
from tests.nmt.tiny import GRU  # noqa: E402


@pytest.mark.parametrize("beam", [1, 2])
def test_shares_sum_to_one_and_amdahl_stands_beside_the_measured_ratio(
    beam: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """FNI-17, XP-07."""
    (tmp_path / "tiny.json").write_text(GRU.model_dump_json())
    asked = ["--model", str(tmp_path / "tiny.json"), "--sentences", "12", "--batch", "4", "--rounds", "1"]
    fused_decoding.main([*asked, "--mix", "opensubtitles", "--beam", str(beam), "--json"])
    (row,) = json.loads(capsys.readouterr().out)["results"]
    assert sum(row["shares"].values()) == pytest.approx(1.0)
    assert sum(row["fused_shares"].values()) == pytest.approx(1.0)
    assert min(row["shares"][name] for name in ("encode", "body", "project", "search")) > 0.0
    assert (row["shares"]["softmax"] > 0.0) == (beam > 1)
    assert row["fused_shares"]["fused_product"] > 0.0 and row["fused_shares"]["project"] == 0.0
    assert row["ratio"] == pytest.approx(row["plain_s"][0] / row["fused_s"][0])
    assert row["predicted"] == pytest.approx(1 / (1 - row["layer_share"] * (1 - 1 / row["layer_ratio"])))
    assert row["differing"] == 0


def test_two_threads_are_compared_with_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "tiny.json").write_text(GRU.model_copy(update={"tgt_vocab": 20_000}).model_dump_json())
    asked = ["--two-threads", "--model", str(tmp_path / "tiny.json"), "--batch", "8", "--rounds", "1", "--steps", "3"]
    before = torch.get_num_threads()
    fused_decoding.main([*asked, "--json", "--threads", str(before)])
    (row,) = json.loads(capsys.readouterr().out)["results"]
    assert torch.get_num_threads() == before
    assert (row["rows"], row["steps"], row["tokens_equal"]) == (40, 3, True)
    for threads in ("one_s", "two_s"):
        (kernels_s,), (fused_best_s,), (products_s,), (step_s,) = row[threads].values()
        assert 0.0 < kernels_s < fused_best_s
        assert products_s > 0.0 and fused_best_s + products_s < step_s
    assert row["ratios"]["kernels"] == pytest.approx(row["one_s"]["kernels"][0] / row["two_s"]["kernels"][0])
    assert row["reached"] == (row["ratios"]["kernels"] >= 1.6)


def test_a_watched_decoder_says_the_same_and_is_left_as_it_was() -> None:
    model = build_model(GRU, seed=2).eval()
    sources = [[5, 6, 7, GRU.eos_token], [8, GRU.eos_token]]
    before = decode_batched(model, sources, mini(2), beam=2, max_len=4)
    with watched(model) as seconds:
        during = decode_batched(model, sources, mini(2), beam=2, max_len=4)
    told = dict(seconds)
    assert [one.tokens for one in during.hypotheses] == [one.tokens for one in before.hypotheses]
    assert {name for name, taken_s in told.items() if taken_s} == {"body", "project", "softmax", "search"}
    decode_batched(model, sources, mini(2), beam=2, max_len=4, fused=True)
    assert seconds == told


def test_of_a_gpu_the_clock_waits_for_what_it_was_given(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its launches return at once: without waiting, whatever reads tokens would be charged for all that was launched before."""
    model = build_model(GRU, seed=2).eval()
    assert clock_of(model.device) is perf_counter
    events: list[str] = []
    gpu = SimpleNamespace(device=torch.device("cuda"))
    monkeypatch.setattr(torch.cuda, "synchronize", lambda _: events.append("waited"))
    clock_of(gpu.device)()
    assert events == ["waited"]

    def clock() -> float:
        events.append("asked")
        return float(len(events))

    with watched(model, clock) as seconds:
        decode_batched(model, [[5, GRU.eos_token]], mini(1), max_len=2)
    assert events.count("asked") > 4 and all(taken_s == int(taken_s) for taken_s in seconds.values())


def test_a_difference_without_a_near_tie_is_listed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """FNI-11: a fused layer that forgets the bias is found out."""
    pytest.importorskip("sentencepiece", reason="the optional package sentencepiece is not installed")
    from simnmt.nmt.step_model import MaskedBias
    from simnmt.nmt.subwords import Subwords, learn_vocabulary
    from simnmt.nmt.translation import Translator
    from tests.nmt import toy_language

    texts = [text for pair in toy_language.pairs(200) for text in pair]
    words = Subwords(learn_vocabulary(texts, 40, side="whole", pad=0, unk=1, start=2, eos=3))
    model = build_model(GRU.model_copy(update={"src_vocab": 40, "tgt_vocab": 40}), seed=4).eval()
    torch.nn.init.normal_(model.projection.bias)
    monkeypatch.setattr(Translator, "load", lambda *_, **__: Translator(model, words, words))
    (tmp_path / "text").write_text("un deux\nneuf\n\ntrois un\n")
    asked = ["--model", "any", "--text", str(tmp_path / "text"), "--beam", "2", "--json"]
    fused_agreement.main(asked)
    rows = json.loads(capsys.readouterr().out)["results"]
    assert [(row["fused"], row["top_up"]) for row in rows] == [(False, False), (False, True), (True, False), (True, True)]
    assert all(row["equal"] == row["sentences"] == 3 and not row["disagreements"] for row in rows)
    monkeypatch.setattr(MaskedBias, "now", lambda masked: torch.zeros_like(masked._bias))
    fused_agreement.main(asked)
    rows = json.loads(capsys.readouterr().out)["results"]
    assert [len(row["disagreements"]) > 0 for row in rows] == [False, False, True, True]
