"""The benchmark of users' policies sets two runs with the same decisions beside each other."""

from __future__ import annotations

import pytest

from benchmarks import users_policies


def test_both_policies_decide_alike_and_the_worst_discipline_decides_the_status(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    row = users_policies.measure("open loop", requests=300, rounds=2)
    assert [len(row["seconds"][name]) for name in ("shipped", "user")] == [2, 2]
    monkeypatch.setattr(users_policies, "measure", lambda arrivals, *_: row | {"median_kept": 0.6, "arrivals": arrivals})
    assert users_policies.main([]) == 1
    assert "open loop: " in capsys.readouterr().out
    monkeypatch.setattr(users_policies, "measure", lambda arrivals, *_: row | {"median_kept": 0.9, "arrivals": arrivals})
    assert users_policies.main(["--json"]) == 0
