"""The page of a plan in a browser: the answer, what it rests on, and every figure, for a rate and without one."""

from __future__ import annotations

from math import inf
from pathlib import Path
from typing import Any

import pytest

import simnmt
from simnmt.report.page_template import write_page
from simnmt.report.study_pages import render_plan
from tests.plans import queue_of


@pytest.mark.parametrize(
    "options",
    [{"precision": 0.5}, {"rate": 200.0, "vary": ["devices.gateway.workers=3:4"], "minimise": "latency"}],
)
def test_a_browser_shows_the_page_of_a_plan_without_complaint(open_page: Any, tmp_path: Path, options: dict[str, Any]) -> None:
    answer = simnmt.plan(queue_of(1, "exponential", requests=300), "mean_ms<=40", replications=2, **options)
    write_page(tmp_path / "plan.html", render_plan(answer))
    with open_page(tmp_path / "plan.html", viewport={"width": 400, "height": 800}) as opened:
        opened.unfold()
        assert opened.page.locator("#answer p").count() >= 2
        shown = opened.page.locator("#warnings li").all_inner_texts()
        assert len(shown) == len(answer.warnings) >= 1 and "give 400 requests or more" in shown[0]
        assert opened.page.evaluate("() => document.documentElement.scrollWidth") == 400
        assert not opened.problems


def test_a_candidate_that_loses_all_requests_is_on_the_page() -> None:
    scenario = queue_of(1, "exponential", requests=200)
    gateway = scenario["devices"]["gateway"]
    scenario["devices"]["cloud"] = {**gateway, "balancer": "least_work", "failures": {"mttf_s": 0.001, "mttr_s": 1e9}}
    scenario["policies"] = {"cloud": {}, "edge": {}}
    vary = ["devices.cloud.count=1,2"]
    plan = simnmt.plan(scenario, "mean_ms<=1000", rate=20.0, vary=vary, minimise="latency", replications=2)
    assert plan.choice.policy == "edge"
    assert any(plan.value(candidate) == inf for candidate in plan.simulated)
    assert "infinite" in render_plan(plan)
