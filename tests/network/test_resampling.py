from __future__ import annotations

import numpy as np
import pytest

from simnmt.network.errors import TraceError
from simnmt.network.traces.readings import Readings, Trace, mended
from simnmt.network.traces.resampling import resample
from simnmt.network.traces.summary import autocorrelation


def trace(samples: int = 2_000) -> Trace:
    """An autocorrelated RTT each two seconds, of which runs of ten are lost."""
    steps = np.random.default_rng(3).normal(size=samples)
    wander = np.convolve(steps, 0.9 ** np.arange(60))[:samples]
    rtt_s = np.where(np.arange(samples) % 200 < 10, np.nan, 0.05 + 0.002 * np.exp(0.3 * wander))
    return mended(Readings("rtt", 2.0 * np.arange(samples), rtt_s, "measured", "a test"))


def test_quantiles_losses_and_autocorrelation_are_those_of_the_trace() -> None:
    measured = trace()
    drawn = resample(measured, 200_000.0, seed=1)
    assert (len(drawn.value), drawn.kind, drawn.time_s[1]) == (100_000, "synthetic", pytest.approx(2.0, rel=0.01))
    quantiles = [np.quantile(series.value[~series.lost], [0.1, 0.5, 0.9, 0.99]) for series in (measured, drawn)]
    np.testing.assert_allclose(quantiles[1], quantiles[0], rtol=0.01)
    assert drawn.lost.mean() == pytest.approx(measured.lost.mean(), abs=0.01)
    assert autocorrelation(drawn, 1) == pytest.approx(autocorrelation(measured, 1), abs=0.05)


def test_one_seed_gives_one_trace_and_no_trace_begins_with_a_loss() -> None:
    measured = trace()
    first = [resample(measured, 600.0, seed) for seed in range(30)]
    assert not any(drawn.lost[0] for drawn in first)
    assert resample(measured, 600.0, 7).value.tolist() == first[7].value.tolist()
    assert first[7].value.tolist() != first[8].value.tolist()


def test_a_block_of_one_sample_forgets_its_neighbours() -> None:
    alone = resample(trace(), 100_000.0, seed=1, block_s=0.001)
    assert autocorrelation(alone, 1) == pytest.approx(0.0, abs=0.03)


@pytest.mark.parametrize("duration_s", [0.0, -1.0, 1e12, float("nan")])
def test_a_length_that_cannot_be_drawn_is_refused(duration_s: float) -> None:
    with pytest.raises(TraceError):
        resample(trace(), duration_s, seed=1)
