"""The closed-form border agrees with the rule it stands for."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from simnmt.policies import GATEWAY, CNmt, threshold
from simnmt.profile.execution_plane import ExecutionPlane
from simnmt.workload.length_regression import LengthRegression

PER_TOKEN = st.floats(0.0, 0.02)
PLANES = st.builds(ExecutionPlane, PER_TOKEN, PER_TOKEN, st.floats(0.0, 0.1))
SRC_LEN = np.arange(1, 401)


@settings(derandomize=True, deadline=None, max_examples=150)
@given(PLANES, PLANES, st.floats(-0.5, 2.0), st.floats(-20.0, 20.0), st.floats(0.0, 0.5))
def test_the_border_parts_lengths_as_the_rule_does(
    gateway: ExecutionPlane, cloud: ExecutionPlane, slope: float, offset: float, transfer_s: float
) -> None:
    border = threshold(gateway, cloud, slope, offset, transfer_s)
    decide = CNmt((gateway, cloud), LengthRegression(slope, offset).predict).prepare(SRC_LEN)
    kept = np.array([decide(request, (0.0, transfer_s)) == GATEWAY for request in range(len(SRC_LEN))])
    if border.kept in ("always", "never"):
        assert math.isnan(border.src_len)
        expected = np.full(len(SRC_LEN), border.kept == "always")
    elif border.kept in ("up to", "from"):
        beyond = SRC_LEN - border.src_len
        expected = beyond <= 0 if border.kept == "up to" else beyond >= 0
    else:
        between = (border.src_len <= SRC_LEN) & (border.upper >= SRC_LEN)
        expected = between if border.kept == "between" else ~between
    # Where both sides differ by less than rounding, either answer is right.
    tgt_len = np.maximum(slope * SRC_LEN + offset, 1.0)
    margin_s = gateway.seconds(SRC_LEN, tgt_len) - cloud.seconds(SRC_LEN, tgt_len) - transfer_s
    clear = np.abs(margin_s) > 1e-12
    assume(clear.any())
    assert (kept == expected)[clear].all()


def test_a_gateway_that_is_faster_per_token_keeps_the_long_sentences() -> None:
    gateway, cloud = ExecutionPlane(0.001, 0.001, 0.100), ExecutionPlane(0.001, 0.003, 0.0)
    border = threshold(gateway, cloud, 1.0, 0.0, 0.040)
    assert border.kept == "from"
    assert border.src_len == 30.0
    decide = CNmt((gateway, cloud), LengthRegression(1.0, 0.0).predict).prepare(np.array([29, 31]))
    assert [decide(request, (0.0, 0.040)) for request in (0, 1)] == [1, 0]


def test_the_border_knows_that_no_predicted_length_is_below_one() -> None:
    """The line alone, with predicted lengths down to -9, would place it at 116 / 11 tokens."""
    gateway, cloud = ExecutionPlane(0.001, 0.010, 0.0), ExecutionPlane(0.0, 0.0, 0.0)
    border = threshold(gateway, cloud, 1.0, -10.0, 0.016)
    assert (border.kept, border.src_len) == ("up to", pytest.approx(6.0))
    assert threshold(gateway, cloud, 1.0, -10.0, 0.0105).kept == "never"
    # The gateway reads faster and writes slower: it keeps what is long enough to read and short enough to write.
    reader = ExecutionPlane(0.0, 0.010, 0.050)
    border = threshold(reader, ExecutionPlane(0.001, 0.0, 0.0), 1.0, -20.0, 0.050)
    assert border.kept == "between"
    assert (border.src_len, border.upper) == (pytest.approx(10.0), pytest.approx(200.0 / 9.0))
