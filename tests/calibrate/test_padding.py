"""What a recurrent encoder pays for padding: a known share is found again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from simnmt.calibrate.batch_corrections import mixed_encodings, padding_share
from simnmt.calibrate.fits import fit_grid
from simnmt.calibrate.settings import Settings
from simnmt.nmt.errors import OutOfMemory
from simnmt.profile.blocks import EncoderBlock, StepBlock
from tests.calibrate.engines import FakeEngine

SETTINGS = Settings("gru")


def token_s(batch: int) -> float:
    return 0.0001 + 2e-5 * batch


CELLS = [(batch, src_len, 0.001 + src_len * token_s(batch)) for batch in (1, 8, 32) for src_len in (4, 12, 100)]
STEP, ENCODER = fit_grid(StepBlock, [1, 8, 32], [0, 0, 0], [1.0, 2.0, 3.0]), fit_grid(EncoderBlock, *zip(*CELLS, strict=True))


class Encoding(FakeEngine):
    """Pays a share of the padding; what each token of the source costs is summed one by one."""

    def __init__(self, share: float, kind: str = "gru", most_batch: int = 99) -> None:
        super().__init__(architecture={"kind": kind})
        self._share, self._most = share, most_batch

    def encoding_s(self, src_lens: Sequence[int]) -> float:
        if len(src_lens) > self._most:
            raise OutOfMemory("no room")
        packed_s = sum(token_s(sum(each >= at for each in src_lens)) for at in range(1, max(src_lens) + 1))
        padded_s = max(src_lens) * token_s(len(src_lens))
        return 0.001 + packed_s + self._share * (padded_s - packed_s)


@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
def test_the_share_of_the_padding_that_is_paid_is_found(share: float) -> None:
    mixed = mixed_encodings(Encoding(share), SETTINGS, 64)
    assert [len(src_lens) for src_lens, _ in mixed] == [8, 32]
    assert padding_share(mixed, STEP, ENCODER) == pytest.approx(share, abs=1e-9)


def test_noise_makes_no_share_below_nothing_or_above_all() -> None:
    mixed = mixed_encodings(Encoding(0.0), SETTINGS, 64)
    for factor, share in ((0.5, 0.0), (9.0, 1.0)):
        assert padding_share([(each, factor * seconds) for each, seconds in mixed], STEP, ENCODER) == share


@pytest.mark.parametrize("engine", [FakeEngine(), Encoding(0.3, kind="transformer"), Encoding(0.3, most_batch=4)])
def test_where_nothing_is_packed_or_fits_no_share_is_known(engine: Any) -> None:
    assert padding_share(mixed_encodings(engine, SETTINGS, 64), STEP, ENCODER) is None


def test_small_batches_and_short_sources_are_kept_to() -> None:
    found = mixed_encodings(Encoding(0.3), Settings("gru", max_src_len=20), 8)
    assert [(len(src_lens), max(src_lens)) for src_lens, _ in found] == [(8, 20)]
