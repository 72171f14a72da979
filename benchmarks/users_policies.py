"""What a policy in Python costs beside the same rule shipped: `python -m benchmarks.users_policies`.

Both run in the SimPy world, in turn, and make the same decisions: C-NMT as it is shipped, and C-NMT as a user would write it.
The figure is the ratio of the processor time of whole runs, requests drawn and summaries made included: how much of the SimPy
world's speed a policy in Python keeps.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from statistics import median
from typing import Any

import numpy as np

import simnmt

BAR = 0.7
"""Least share of the SimPy world's speed (issue 21)."""


class CNmtInPython:
    """C-NMT for two targets, with `decide` in Python."""

    def __init__(self, knowledge: Any) -> None:
        self.knowledge = knowledge

    def prepare(self, src_len: Any) -> Any:
        tgt_len = self.knowledge.lengths.predict(src_len)
        here_s, there_s = (plane.seconds(src_len, tgt_len).tolist() for plane in self.knowledge.planes)

        def decide(request: int, delay_s: Any) -> int:
            return 0 if here_s[request] + delay_s[0] <= there_s[request] + delay_s[1] else 1

        return decide


ARRIVALS: dict[str, dict[str, Any]] = {
    "back to back": {"kind": "back_to_back"},
    "open loop": {"kind": "poisson", "rate_rps": 4.0},
}


def scenario(arrivals: str, policies: dict[str, Any], requests: int) -> dict[str, Any]:
    """Return the scenario of a run."""
    return {
        "version": 1,
        "name": "users policies",
        "requests": requests,
        "replications": 1,
        "workloads": {"de-en": {"lengths": "@de-en-news", "arrivals": ARRIVALS[arrivals]}},
        "networks": {"cp1": {"rtt": "@cp1"}},
        "devices": {"gateway": {"profile": "@tx2-bilstm"}, "cloud": {"profile": "@titan-xp-bilstm"}},
        "policies": policies,
    }


def measure(arrivals: str, requests: int, rounds: int) -> dict[str, Any]:
    """Return the processor seconds of both runs, a pair per round, and the share of speed that is kept."""
    runs = {"shipped": {"cnmt": {}}, "user": {"mine": CNmtInPython}}
    seconds: dict[str, list[float]] = {name: [] for name in runs}
    targets: dict[str, Any] = {}
    for number in range(rounds + 1):
        for name in runs if number % 2 else reversed(runs):
            begin_s = time.process_time()
            result = simnmt.run(scenario(arrivals, runs[name], requests), jobs=1, engine="simpy")
            if number:  # the first pair warms up
                seconds[name].append(time.process_time() - begin_s)
            (log,) = result.cells[0].logs.values()
            targets[name] = np.array(log["target"][:])
    assert (targets["shipped"] == targets["user"]).all(), "the two do not decide alike"
    kept = [shipped_s / user_s for shipped_s, user_s in zip(*seconds.values(), strict=True)]
    return {"arrivals": arrivals, "requests": requests, "seconds": seconds, "kept": kept, "median_kept": median(kept)}


def main(arguments: list[str] | None = None) -> int:
    """Print a line per discipline; return 1 if one keeps less than the bar."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(arguments)
    rows = [measure(arrivals, options.requests, options.rounds) for arrivals in ARRIVALS]
    if options.json:
        print(json.dumps(rows))
        return int(any(row["median_kept"] < BAR for row in rows))
    for row in rows:
        user_us, shipped_us = (1e6 * median(row["seconds"][name]) / row["requests"] for name in ("user", "shipped"))
        spread = f"{min(row['kept']):.2f} to {max(row['kept']):.2f}"
        print(
            f"{row['arrivals']}: {user_us:.2f} us a request in Python, {shipped_us:.2f} us shipped: "
            f"keeps {row['median_kept']:.2f} of the speed (rounds: {spread}; bar {BAR})"
        )
    return int(any(row["median_kept"] < BAR for row in rows))


if __name__ == "__main__":
    sys.exit(main())
