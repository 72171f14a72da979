"""Numbers at the ends of what a float holds: a result without NaN, or one line; never a traceback or a warning."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from simnmt.report.page_template import significant
from tests.campaigns.harness import run_cases
from tests.command_line import assert_one_line

SMALL = ("--requests", "50", "--replications", "1", "--out", "run", "--json")


def test_a_subnormal_number_is_typeset() -> None:
    assert significant(5e-324) == f"{significant(4.941)}\u202f\u00b7\u202f10\u207b\u00b3\u00b2\u2074"
    assert significant(2.5e-310).startswith("2.5\u202f")


@pytest.mark.parametrize("command", ["run small.yaml", "run small.yaml --set networks.office.rtt=office.csv"])
def test_one_round_trip_of_a_lifetime_is_refused_by_its_cell(folder: Path, simnmt: Callable[..., Any], command: str) -> None:
    with (folder / "office.csv").open("a") as file:
        file.write("200,1e300\n")
    done = simnmt(*command.split())
    assert (done.status, done.out) == (2, "")
    assert_one_line(done.err)
    assert "office.csv:42:5: rtt_ms" in done.err


EXTREMES = [
    5e-324, 1e-310, 1e-300, 1e-30, 1e-9, 0.0, -0.0, -1.0, 0.5, 1.0, 2.0**31, 2.0**53 + 2, 1e9, 1e18, 1e300, 1.7e308, 10**18,
]  # fmt: skip
KEYS = {
    "seed", "fit.share", "fit.inferences", "devices.cloud.outside_range_share", "devices.cloud.count", "devices.cloud.workers",
    "workloads.news.end_nodes", "networks.office.uplink_mbps", "networks.office.downlink_mbps", "networks.office.pace_s",
    "networks.office.rtt.constant_ms", "policies.cnmt.len_offset", "policies.cnmt.len_slope", "slo.p95_ms",
    "workloads.news.arrivals.poisson",
}  # fmt: skip
SET_AS = {
    "networks.office.rtt.constant_ms": 'networks.office.rtt={{"constant_ms":{}}}',
    "slo.p95_ms": 'slo={{"p95_ms":{}}}',
    "workloads.news.arrivals.poisson": 'workloads.news.arrivals={{"kind":"poisson","rate_rps":{}}}',
}


def test_extreme_numbers_give_a_result_or_one_line(folder: Path, simnmt: Callable[..., Any]) -> None:
    whole = {name: (folder / name).read_text() for name in ("cloud.json", "office.csv")}

    def check(generator: random.Random) -> None:
        for name, content in whole.items():
            (folder / name).write_text(content)
        shutil.rmtree(folder / "run", ignore_errors=True)
        options: list[str] = []
        number = generator.choice(EXTREMES)
        place = generator.choice(["key", "key", "profile", "series"])
        if place == "key":
            key = generator.choice(sorted(KEYS))
            shown = repr(
                int(number) if generator.random() < 0.5 and float(number).is_integer() and abs(number) < 1e19 else number
            )
            options = ["--set", SET_AS.get(key, f"{key}={{}}").format(shown)]
        elif place == "profile":
            profile = json.loads(whole["cloud.json"])
            execution = profile["execution"]
            holder = generator.choice([execution, execution["plane"]])
            holder[generator.choice([key for key, value in holder.items() if isinstance(value, float)])] = number
            (folder / "cloud.json").write_text(json.dumps(profile))
        else:
            column = generator.choice(["time", "rtt"])
            row = f"{number!r},70" if column == "time" else f"200,{number!r}"
            (folder / "office.csv").write_text(f"{whole['office.csv']}{row}\n")
        done = simnmt("run", "small.yaml", *options, *SMALL)
        assert done.status in (0, 2), (options, done)
        if done.status == 2:
            assert_one_line(done.err)
        else:
            assert all(line.startswith("simnmt: warning: ") for line in done.err.splitlines()), (options, done.err)
            assert "Warning" not in done.err, (options, done.err)
            for text in (done.out, (folder / "run" / "summary.json").read_text()):
                json.loads(text, parse_constant=pytest.fail)

    run_cases("numeric extremes", 25, check)
