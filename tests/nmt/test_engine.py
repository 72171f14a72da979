"""Engines: what they say they ran, how they time it, and what they refuse."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from simnmt.batching import mini
from simnmt.nmt.decoder import Decoder
from simnmt.nmt.engine import Work
from simnmt.nmt.errors import NmtError, OutOfMemory, within_memory
from simnmt.nmt.models import Loaded, build_model
from simnmt.nmt.search import Search
from simnmt.nmt.sentence_decoder import BatchDecoder, DecodeRequest, Hypothesis
from simnmt.nmt.step_model import has_half_weights
from simnmt.profile.decoder_settings import DecoderSettings
from tests.nmt.tiny import ARCHITECTURES, lively, sources, stepwise, tiny_engine


@pytest.mark.parametrize("name", ["bilstm", "gru", "marian"])
@pytest.mark.parametrize("work", [Work(5, 7), Work(3, 4, batch=3, beam=2)], ids=str)
def test_torch_times_the_encoder_and_each_step(tmp_path: Path, name: str, work: Work) -> None:
    timing = tiny_engine(tmp_path, name).run(work)
    assert len(timing.steps_s) == work.tgt_len
    assert min(timing.encode_s, *timing.steps_s) > 0
    assert timing.encode_s + sum(timing.steps_s) <= timing.total_s


@pytest.mark.skipif(not has_half_weights(), reason="half-precision weights need FBGEMM, which torch has on x86 alone")
@pytest.mark.parametrize("name", ARCHITECTURES)
def test_float16_weights_change_logits_only_by_rounding(name: str) -> None:
    architecture = ARCHITECTURES[name]
    whole, halved = build_model(architecture).eval(), build_model(architecture).eval()
    halved.halve()
    _, src, lengths = sources(architecture, [3, 9, 5, 7])
    with torch.inference_mode():
        fed = torch.tensor([[5, 6, 7]] * 8)
        logits = [model.project(stepwise(model, src, lengths, fed, 2)[:, -1]) for model in (whole, halved)]
    assert not torch.equal(*logits)
    assert torch.allclose(*logits, atol=3e-3)


def test_threads_are_set_for_each_run(tmp_path: Path) -> None:
    before = torch.get_num_threads()
    try:
        one, two = tiny_engine(tmp_path, "gru", threads=1), tiny_engine(tmp_path, "gru", threads=2)
        two.run(Work(2, 2))
        assert torch.get_num_threads() == 2
        one.run(Work(2, 2))
        assert torch.get_num_threads() == 1
    finally:
        torch.set_num_threads(before)


def test_an_engine_reports_too_little_memory_and_stays_usable(tmp_path: Path) -> None:
    """A real failure of torch's allocator: logits of 2**46 rows ask for more than a processor addresses."""
    engine = tiny_engine(tmp_path, "gru")
    with pytest.raises(OutOfMemory):
        within_memory("cpu", lambda: torch.empty((2**46, 50)))
    with pytest.raises(OutOfMemory):
        engine.run(Work(2, 2, batch=2, beam=2**46))
    assert engine.run(Work(2, 2)).total_s > 0


@pytest.mark.parametrize(
    ("options", "place"),
    [
        ({"backend": "onnx"}, "onnx"),
        ({"threads": 0}, "0 threads"),
        ({"compute_type": "float64", "backend": "ctranslate2"}, "float64"),
        ({"fused": True, "backend": "ctranslate2"}, "fused"),
        ({"decoder": DecoderSettings()}, "decoder"),
        ({"name": "gru", "backend": "sharp"}, "gru"),
    ],
    ids=str,
)
def test_unsupported_requests_are_refused(tmp_path: Path, options: dict[str, object], place: str) -> None:
    with pytest.raises(NmtError, match=place):
        tiny_engine(tmp_path, **options)


@pytest.mark.parametrize("compute_type", ["float32", "int8"])
def test_ctranslate2_times_only_the_whole_work(tmp_path: Path, compute_type: str) -> None:
    engine = tiny_engine(tmp_path, backend="ctranslate2", compute_type=compute_type)
    timing = engine.run(Work(5, 7, batch=2, beam=3))
    assert timing.total_s > 0
    assert (timing.encode_s, timing.steps_s) == (None, None)
    assert engine.account.compute_type.startswith(compute_type)
    assert engine.account.versions.keys() == {"ctranslate2"}


def decoded(decoder: BatchDecoder, requests: list[DecodeRequest]) -> list[Hypothesis]:
    for key, request in enumerate(requests):
        decoder.arrive(key, request)
    done: dict[int, Hypothesis] = {}
    while decoder.busy:
        done.update(decoder.act()[1])
    return [done[key] for key in range(len(requests))]


@pytest.mark.parametrize("beam", [1, 4])
@pytest.mark.parametrize("name", ["marian", "own tokens"])
def test_ctranslate2_gives_the_log_probabilities_of_torch(name: str, beam: int) -> None:
    """Of sentences that end, and of such that are stopped before."""
    from simnmt.nmt.ctranslate2_engine import CTranslate2Engine

    model, batching = lively(name), mini(12)
    alone = sources(model.architecture, [3, 9, 5, 7, 4, 8] * 2)[0]
    requests = [DecodeRequest(source, max_len=14 if row < 6 else 2) for row, source in enumerate(alone)]
    engine = CTranslate2Engine(Loaded(name, model, model.architecture, "random"), "cpu", 1, "float32", 0)
    theirs = decoded(engine.sentence_decoder(batching, beam, scored=True), requests)
    ours = decoded(Decoder(model, batching, Search(beam, scored=True)), requests)
    scored = [pair for pair in zip(theirs, ours, strict=True) if pair[0].score is not None]
    assert len(scored) == 12 if beam == 1 else 6 <= len(scored) < 12, "a beam has no score of what it found beyond the limit"
    assert len({len(one.tokens) for one, _ in scored}) > 2
    for one, other in scored:
        assert one.tokens == other.tokens and one.score == pytest.approx(other.score, abs=1e-3)
    assert all(one.score is None for one in decoded(engine.sentence_decoder(batching, beam), requests))
