"""A real decoder with the fused output layer and without it."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from simnmt.calibrate.errors import CalibrationError
from simnmt.calibrate.fused_speeds import fused_speeds

TINY = """
kind: gru
layers: 1
hidden: 16
embedding: 16
src_vocab: 60
tgt_vocab: 60
"""


@pytest.fixture
def model(tmp_path: Path) -> str:
    file = tmp_path / "tiny.yaml"
    file.write_text(TINY)
    return str(file)


def test_both_mixes_and_beams_are_decoded_both_ways_to_the_same_words(model: str) -> None:
    seen: list[tuple[int, int]] = []
    found = fused_speeds(model, 6, (1, 5), rounds=2, batch=3, progress=lambda done, of: seen.append((done, of)))
    assert [(each.test_set, each.beam) for each in found] == [
        ("europarl", 1), ("europarl", 5), ("opensubtitles", 1), ("opensubtitles", 5),
    ]  # fmt: skip
    assert seen[0] == (0, 4) and seen[-1] == (4, 4)
    for each in found:
        assert len(each.plain_s) == len(each.fused_s) == 2 and each.batch == 3 and each.vocab == 60
        assert each.differing == 0, "fusing is exact (FNI-11)"
        assert each.layer_s > 0.0 and each.fused_layer_s > 0.0 and math.isfinite(each.ratio)
        assert each.layer_s + each.stages_s["body"] < 3 * max(each.plain_s), (
            "stages over all steps are of the size of the whole"
        )


def test_no_sentence_is_refused(model: str) -> None:
    with pytest.raises(CalibrationError, match="0 sentences"):
        fused_speeds(model, 0, (1,))
