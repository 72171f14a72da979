"""The fused output layer in the real decoders: the same tokens and scores as the plain one (FNI-05, 06, 11)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from torch import Tensor

from simnmt.nmt import output_layer
from simnmt.nmt.agreement import agreement, decode_alone
from simnmt.nmt.decoder import decode
from simnmt.nmt.engine import Work
from simnmt.nmt.models import build_model
from simnmt.nmt.output_layer import FusedOutput, Output
from simnmt.nmt.recurrent_model import RecurrentModel
from simnmt.nmt.search import Search
from simnmt.nmt.sentence_decoder import Hypothesis
from simnmt.nmt.step_model import products_of
from simnmt.nmt.torch_engine import STAGES, stage_timer
from tests.campaigns.harness import deep
from tests.nmt.test_batched import BATCHERS
from tests.nmt.tiny import ARCHITECTURES, GRU, lively, sources, tiny_engine, together

LENGTHS = [3, 9, 5, 7, 4, 12, 2, 6]


def same(ones: Sequence[Hypothesis], others: Sequence[Hypothesis]) -> bool:
    """FNI-05: the tokens, and their scores to 1e-5."""
    assert [one.tokens for one in ones] == [other.tokens for other in others]
    assert [one.score for one in ones] == pytest.approx([other.score for other in others], abs=1e-5)
    return len({one.tokens for one in ones}) > 1


@pytest.fixture(params=[None, 7, deep(16)], ids=["whole", "blocks of 7", "blocks of 16"])
def blocks(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Products as a whole, and in blocks that do not divide the vocabulary."""
    monkeypatch.setattr(output_layer, "_block", lambda _: request.param)


@pytest.mark.parametrize("width", [1, 2, deep(5)])
@pytest.mark.parametrize("name", ARCHITECTURES)
@pytest.mark.usefixtures("blocks")
def test_a_fused_output_layer_gives_the_tokens_and_scores_of_the_plain_one(name: str, width: int) -> None:
    model = lively(name)
    alone, _, _ = sources(model.architecture, LENGTHS)
    for forced in (None, 6):
        plain, fused = (
            together(model, alone, Search(width, scored=True), output=Output(on), forced_len=forced, max_len=30)
            for on in (False, True)
        )
        assert same(plain, fused)
        if width == 1:
            unscored = together(model, alone, Search(), output=Output(True), forced_len=forced, max_len=30)
            assert [one.tokens for one in unscored] == [one.tokens for one in plain]


@pytest.mark.parametrize("name", ["gru", "bilstm", "marian"])
@pytest.mark.parametrize("width", [deep(1), 3])
def test_neither_fusing_nor_batching_changes_a_translation(name: str, width: int) -> None:
    """FNI-11: whatever is different is a near tie, and of these tiny models none is."""
    model = lively(name)
    alone, _, _ = sources(model.architecture, LENGTHS, seed=6)
    plainest = [decode_alone(model, source, width, 30) for source in alone]
    for batching in BATCHERS.values():
        for fused in (False, True):
            hypotheses = decode(model, alone, batching, search=Search(width), output=Output(fused), max_len=30).hypotheses
            compared = agreement(model, alone, plainest, hypotheses, beam=width, max_len=30)
            assert (compared.equal, compared.disagreements, compared.equal_tokens) == (len(alone), (), 1.0)
    assert len({one.tokens for one in plainest}) > 1


def test_an_engine_decodes_fused_on_request_and_records_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ran, project = list[int](), FusedOutput.project
    monkeypatch.setattr(FusedOutput, "project", lambda self, *given: ran.append(given[1]) or project(self, *given))
    for fused, steps in ((False, []), (True, [0] * 3 + [2] * 3)):
        engine = tiny_engine(tmp_path, "gru", fused=fused)
        assert engine.account.fused == fused
        for width in (1, 2):
            assert len(engine.run(Work(4, 3, batch=2, beam=width)).steps_s) == 3
        assert ran == steps


@pytest.mark.parametrize("width", [1, 2])
def test_the_stages_of_a_step_are_timed_separately(monkeypatch: pytest.MonkeyPatch, width: int) -> None:
    """FNI-01: a second of each part of the body, product, bias, softmax, search and fused pass, on a clock they alone move."""
    model, now_s = build_model(GRU, seed=1).eval(), [0.0]

    def slow(owner: Any, name: str, seconds: float) -> None:
        do = getattr(owner, name)

        def run(*given: Any, **named: Any) -> Any:
            now_s[0] += seconds
            return do(*given, **named)

        monkeypatch.setattr(owner, name, run)

    def slow_products(hidden: Tensor, block: int | None = None) -> Any:
        for part in products_of(model.projection, hidden, block):
            now_s[0] += 10.0
            yield part

    monkeypatch.setattr(output_layer, "_block", lambda _: 25)
    monkeypatch.setattr(model, "products", slow_products)
    slow(RecurrentModel, "body", 1.0)
    slow(model, "project", 30.0)
    slow(output_layer, "log_softmax_", 3.0)
    slow(output_layer, "largest", 4.0)
    slow(output_layer, "largest_sums", 5.0)
    slow(output_layer, "fused_best", 0.25)
    slow(output_layer, "fused_argmax", 0.25)
    slow(FusedOutput, "largest_sums", 0.5)
    timer = stage_timer(model, 3, width, clock=lambda: now_s[0])
    timer()
    softmax, search = (0.0, 4.0) if width == 1 else (3.0, 5.0)
    assert tuple(timer().values()) == (1.0, 10.0, 20.0, softmax, search, 20.0, 0.5 if width == 1 else 1.0)
    assert tuple(timer()) == STAGES
