"""False alarms and detection of `simnmt live watch` over many made-up logs: `make check-deep` takes 1,000 of each kind."""

from __future__ import annotations

import numpy as np
import pytest

from simnmt.live.cusum import SHIFT, LevelTest
from tests.campaigns.harness import SCALE, SEED
from tests.live.made_log import Box, log_factors

LOGS = round(10 * SCALE**2)
"""Of each kind: 1,000 at a scale of 10."""
REQUESTS, CHANGE, WITHIN = 2_000, 700, 500
KINDS = [
    Box(sd, tails, wander_sd, wander_requests)
    for sd in (0.1, 0.15, 0.2, 0.25)
    for tails in ("lognormal", "t3", "outliers")
    for wander_sd, wander_requests in ((0.02, 20.0), (0.025, 30.0), (0.03, 40.0))
]
FALSE_ALARMS = 0.01
FOUND = 0.9


def most(share: float, cases: int) -> float:
    """Return the most that a share may be measured as, three standard errors above it."""
    return share + 3.0 * np.sqrt(share * (1.0 - share) / cases)


def rates(box: Box, logs: int, seed: int) -> tuple[float, float]:
    """Return the share of logs with a false alarm, and of changes detected within 500 requests."""
    false_alarms = detected = 0
    for number in range(logs):
        values = log_factors(np.random.default_rng((seed, number)), REQUESTS, box)
        false_alarms += next(LevelTest().feed(values), None) is not None
        values[CHANGE:] += SHIFT
        first = next(LevelTest().feed(values[: CHANGE + WITHIN]), None)
        detected += first is not None and first.alarm >= CHANGE and first.sign > 0
    return false_alarms / logs, detected / logs


@pytest.mark.parametrize("box", KINDS, ids=str)
def test_slowdowns_are_found_and_false_alarms_are_rare(box: Box) -> None:
    false_alarms, detected = rates(box, LOGS, SEED)
    assert false_alarms <= most(FALSE_ALARMS, LOGS)
    assert 1.0 - detected <= most(1.0 - FOUND, LOGS)
