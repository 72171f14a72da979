"""The sharp decoder behind the engine's face."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from simnmt.calibrate.profile_assembly import engine_block
from simnmt.kernels.packed_products import Clipping
from simnmt.nmt import sharp_engine
from simnmt.nmt.engine import Work
from simnmt.nmt.engines import load_engine
from simnmt.nmt.errors import NmtError
from simnmt.nmt.models import load_model
from simnmt.nmt.sharp_engine import SharpEngine
from simnmt.profile.decoder_settings import DecoderSettings
from tests.nmt.tiny import ARCHITECTURES


def loaded(tmp_path: Path, name: str = "sharp", **how: object) -> SharpEngine:
    path = tmp_path / f"{name}.json"
    path.write_text(ARCHITECTURES[name].model_dump_json(), encoding="utf-8")
    engine = load_engine(str(path), **{"backend": "sharp", **how})  # type: ignore[arg-type]
    assert isinstance(engine, SharpEngine)
    return engine


def test_the_sharp_engine_runs_and_names_its_settings(tmp_path: Path) -> None:
    engine = loaded(tmp_path, threads=2)
    timing = engine.run(Work(7, 5, batch=2, beam=3))
    assert timing.encode_s is not None
    assert 0 < timing.encode_s < timing.total_s
    assert timing.steps_s is None
    account = engine.account
    assert (account.backend, account.compute_type, account.device, account.threads) == ("sharp", "float32", "cpu", 1)
    assert account.decoder is not None
    assert account.decoder["candidates"] == 500
    assert "beam" not in account.decoder, "which is the work's"
    assert account.versions["kernels"] in ("avx512", "avx2", "portable", "numpy")


@pytest.mark.parametrize("beam", [1, 4])
def test_every_technique_and_length_runs(tmp_path: Path, beam: int) -> None:
    """Also lengths beyond what the decoder was first given room for, and a candidate list within the vocabulary."""
    settings = DecoderSettings(
        gemm="int16",
        embeddings="frequent",
        frequent_words=20,
        attention="precomputed",
        activations="polynomial",
        merge=True,
        candidates=12,
    )
    engine = loaded(tmp_path, decoder=settings)
    for src_len, tgt_len in ((1, 1), (200, 3), (3, 300), (5, 2)):
        assert engine.run(Work(src_len, tgt_len, beam=beam)).total_s > 0
    assert engine.account.compute_type == "int16"


def test_compiled_kernels_time_the_stages_of_a_step(tmp_path: Path) -> None:
    engine = loaded(tmp_path)
    settings = DecoderSettings(beam=3, gemm="float32", candidates=20)
    if engine.account.versions["kernels"] == "numpy":
        with pytest.raises(NmtError, match="compiled kernels alone"):
            engine.stages_s(settings, src_len=6, tgt_len=4)
        return
    stages = engine.stages_s(settings, src_len=6, tgt_len=4)
    assert min(stages.body_s, stages.product_s, stages.search_s) > 0


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ({"name": "gru"}, "the sharp decoder runs no gru model (use the torch backend, or sharp, sharp-s1 to sharp-s7)"),
        (
            {"backend": "torch", "decoder": DecoderSettings()},
            "a decoder's settings are of the sharp backend, not of torch (leave decoder out)",
        ),
    ],
)
def test_requests_that_the_sharp_engine_does_not_support_are_refused_in_one_line(
    tmp_path: Path, how: dict[str, object], message: str
) -> None:
    with pytest.raises(NmtError) as caught:
        loaded(tmp_path, **how)  # type: ignore[arg-type]
    assert str(caught.value) == message


def test_weights_that_16_bit_products_would_clip_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of both sides of the model; they stand in the profile, whose doubts warn of them."""
    none = loaded(tmp_path).account.clipping
    assert none is not None and none.clipped == 0 and none.weights > 1_000

    def load_wide(*arguments: object, **options: object) -> object:
        wide = load_model(*arguments, **options)  # type: ignore[arg-type]
        with torch.no_grad():
            wide.model.bottom.keys.weight[0, :2] = -1.5
            wide.model.encoder.weight_ih_l0[0, 0] = 2.0
        return wide

    monkeypatch.setattr(sharp_engine, "load_model", load_wide)
    account = loaded(tmp_path, compute_type="int16").account
    assert account.clipping == Clipping(3, none.weights)
    block = engine_block(account, 1)
    assert (block.clipped_weights, block.product_weights) == (3, none.weights)
