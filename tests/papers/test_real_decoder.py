"""A small real decoder with and without the fused output layer."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch

from simnmt.nmt.models import LoadedModel, load_model
from simnmt.nmt.output_layer import BannedTokens
from simnmt.papers.fni import real_decoder
from simnmt.papers.fni.real_decoder import fused_speeds


@pytest.fixture
def model(tmp_path: Path) -> str:
    file = tmp_path / "tiny.yaml"
    file.write_text("{kind: gru, layers: 1, hidden: 16, embedding: 16, src_vocab: 60, tgt_vocab: 60}")
    return str(file)


def test_fused_and_plain_decoding_give_the_same_words_for_all_mixes_and_beams(model: str) -> None:
    seen: list[tuple[int, int]] = []
    rows = fused_speeds(model, 6, (1, 5), rounds=2, batch=3, progress=lambda done, of: seen.append((done, of)))
    assert [(row["set"], row["beam"]) for row in rows] == [
        ("europarl", 1), ("europarl", 5), ("opensubtitles", 1), ("opensubtitles", 5),
    ]  # fmt: skip
    assert seen[0] == (0, 4) and seen[-1] == (4, 4)
    for row in rows:
        assert len(row["plain_s"]) == len(row["ratios"]) == 2
        assert (row["batch"], row["vocab"], row["weights"]) == (3, 60, "random")
        assert (row["equal"], row["near_ties"], row["disagreements"]) == (6, 0, 0), "fusing is exact (FNI-11)"
        assert sum(row["shares"].values()) == pytest.approx(1.0) and 0.0 < row["output_share"] < 1.0
        assert row["layer_ratio"] > 0.0 and math.isfinite(row["ratio"])
        stages_s = sum(row[f"{stage}_s"] for stage in ("body", "product", "bias", "softmax", "search"))
        assert stages_s < 3 * max(row["plain_s"]), "stages over all steps are of the size of the whole"


def test_a_fused_layer_without_the_bias_is_detected(model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """FNI-11: with forced lengths such a fault could pass as the rounding of a random model."""

    def with_bias(name: str) -> LoadedModel:
        loaded = load_model(name)
        torch.nn.init.normal_(loaded.model.projection.bias)
        return loaded

    monkeypatch.setattr(real_decoder, "load_model", with_bias)
    assert all(row["equal"] == 6 for row in fused_speeds(model, 6, (1, 2), rounds=1, batch=3))
    monkeypatch.setattr(BannedTokens, "bias", property(lambda banned: torch.zeros_like(banned._bias)))
    assert all(row["disagreements"] > 0 for row in fused_speeds(model, 6, (1, 2), rounds=1, batch=3))
