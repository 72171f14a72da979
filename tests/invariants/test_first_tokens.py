"""The time to the first token is known where requests are decoded step by step, and nowhere else."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import simnmt

MakeScenario = Callable[..., dict[str, Any]]


def test_first_tokens_are_known_where_every_device_that_a_policy_uses_batches(make_batched: MakeScenario) -> None:
    scenario = make_batched({"kind": "top_up", "size": 8}, policies={"cloud": {}, "edge": {}}, requests=600)
    result = simnmt.run(scenario | {"metrics": ["first_token_p80_ms"], "replications": 1})
    by_policy = result.rows.set_index("policy")
    log = result.cells[0].logs["cloud"]
    without_tokens = (log["tgt_len"] == 0) & np.isnan(log["first_token_s"])
    first_s = np.where(without_tokens, log["latency_s"], log["first_token_s"] + log["t_tx_s"])
    assert by_policy.mean_first_token_s["cloud"] == pytest.approx(first_s.mean())
    assert by_policy.p80_first_token_s["cloud"] == pytest.approx(np.quantile(first_s, 0.8))
    assert (first_s <= log["latency_s"] + 1e-12).all() and first_s.mean() < 0.9 * log["latency_s"].mean()
    assert np.isnan(by_policy.mean_first_token_s["edge"])
    assert result.meets("cloud: first_token_p95_ms<=1e6")
    with pytest.raises(simnmt.InputError):
        result.meets("edge: first_token_ms<=1")
    limited = scenario | {"slo": {"first_token_p95_ms": 1e6}}
    with pytest.raises(simnmt.InputError, match=r"slo\.first_token_p95_ms: "):
        simnmt.run(limited)
    alone = simnmt.run(limited | {"policies": {"cloud": {}}})
    assert alone.recommendations[0]["slo_met"]
