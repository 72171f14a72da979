"""A third-party load tool beside simnmt's own generator and the simulation, on headline cells of a validation (CNMT-12):

    python -m benchmarks.load_tools VALIDATION [--rate 6] [--seconds 15] [--rounds 3] [--policy edge ...]

VALIDATION is the folder of a `simnmt validate` run, whose profiles and engines are used. `hey` (Debian's package) sends one
text with a forced length: four workers, each by a ticker of its own, so that four requests arrive at once. The own generator
sends the same bursts. Both take turns round by round, on a testbed that stays up; the simulation has the profiles, at the pace
of the box by its reference executions. Latencies are means over all requests of a tool.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simnmt.base.text_tables import format_table
from simnmt.live.cell_comparison import Cell
from simnmt.live.cell_run import LiveTestbed
from simnmt.live.deployment import ReplayedRequests
from simnmt.live.drawn_paces import BoxPaces
from simnmt.live.matched_simulation import predicted_costs, simulate_matched, slowed
from simnmt.live.protocol import ALONE, Bench, Protocol
from simnmt.live.service_measurement import measure_in_service
from simnmt.service.load_logs import read_load_log
from simnmt.service.messages import FORCED_LENGTH

WORKERS = 4
SRC_LEN, TGT_LEN = 9, 9
"""Tokens of the text, its end mark included."""


def bursts(rate_rps: float, seconds: float) -> ReplayedRequests:
    """Return requests of one length that arrive by fours."""
    turns = max(round(rate_rps * seconds / WORKERS), 1)
    offsets_s = np.repeat(np.arange(1, turns + 1) * WORKERS / rate_rps, WORKERS)
    count = len(offsets_s)
    lengths = np.full(count, SRC_LEN), np.full(count, TGT_LEN)
    return ReplayedRequests(offsets_s, *lengths, [text()] * count, np.zeros(count, np.int32), None)


def text() -> str:
    """Return a text of as many words as tokens beside the end mark."""
    return " ".join(["wort"] * (SRC_LEN - 1))


def run_hey(url: str, rate_rps: float, seconds: float) -> NDArray[np.float64]:
    """Let hey send the bursts; return the latencies, seconds."""
    body = json.dumps({"q": text(), "source": "de", "target": "en"})
    command = ["hey", "-o", "csv", "-z", f"{seconds:g}s", "-c", str(WORKERS), "-q", f"{rate_rps / WORKERS:g}", "-m", "POST"]
    command += ["-T", "application/json", "-H", f"{FORCED_LENGTH}: {TGT_LEN}", "-d", body, f"{url}/translate"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "hey.csv"
        path.write_text(done.stdout, encoding="utf-8")
        requests = read_load_log(path).requests
    assert requests is not None
    if not (requests.status == 200).all():
        sys.exit(f"hey was not answered: status {sorted(set(requests.status.tolist()))}")
    return requests.latency_s


def main() -> None:
    """Print the means by tool and policy."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("validation", type=Path)
    parser.add_argument("--rate", type=float, default=6.0, help="requests a second")
    parser.add_argument("--seconds", type=float, default=15.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--policy", action="append", help="default: edge, cloud, cnmt")
    parser.add_argument("--link", default="constant")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    if shutil.which("hey") is None:
        sys.exit("hey is not installed: apt-get install hey")
    with tempfile.TemporaryDirectory(prefix="load-tools-") as folder:
        rows = measured(given, Path(folder))
    if given.json:
        print(json.dumps(rows, indent=1))
        return
    header = ("policy", "hey ms", "own ms", "hey over own", "simulated ms", "over own")
    table = [
        [
            row["policy"],
            f"{1e3 * row['hey_s']:.1f} ({', '.join(f'{1e3 * each:.1f}' for each in row['hey_rounds_s'])})",
            f"{1e3 * row['own_s']:.1f} ({', '.join(f'{1e3 * each:.1f}' for each in row['own_rounds_s'])})",
            f"{row['hey_s'] / row['own_s']:.3f}",
            f"{1e3 * row['simulated_s']:.1f}",
            f"{row['simulated_s'] / row['own_s']:.3f}",
        ]
        for row in rows
    ]
    print(format_table(header, table))


def measured(given: argparse.Namespace, folder: Path) -> list[dict[str, Any]]:
    """Measure the devices in service, and then every policy by both tools in turn."""
    scenario = given.validation / "scenario.input.yaml"
    bench = Bench(str(scenario), [], Protocol(calibration=80), folder)
    for device in ("gateway", "cloud"):
        bench.measured[f"devices.{device}.profile"] = str((given.validation / f"{device}.profile.json").absolute())
    requests = bursts(given.rate, given.seconds)
    rows = []
    with LiveTestbed(folder, any_model=True) as testbed:
        in_service = measure_in_service(bench, testbed, Cell("edge", ALONE, 0.4, given.link), lambda line: None)
        for policy in given.policy or ("edge", "cloud", "cnmt"):
            unit = bench.unit(Cell(policy, ALONE, 0.4, given.link), given.rate, len(requests.src_len))
            hey_s, runs = [], []
            for _ in range(given.rounds):
                with testbed.serving(unit, policy) as served:
                    hey_s.append(run_hey(served.url, given.rate, given.seconds))
                runs.append(testbed.run(unit, policy, requests))
            paces, simulated_s = BoxPaces(in_service.reference_s, runs), []
            for draw, run in enumerate(runs):
                factors = paces.of(run)
                slow, references = slowed(unit, factors), list(run.references.values())
                costs = predicted_costs(slow, requests, draw, factors)
                simulated = simulate_matched(
                    slow, policy, requests, costs, link_begin_s=run.link_begin_s, references=references
                )
                simulated_s.append(float(simulated.latency_s.mean()))
            rows.append(
                {
                    "policy": policy,
                    "hey_s": float(np.concatenate(hey_s).mean()),
                    "hey_rounds_s": [float(each.mean()) for each in hey_s],
                    "own_s": float(np.mean([run.log.latency_s.mean() for run in runs])),
                    "own_rounds_s": [float(run.log.latency_s.mean()) for run in runs],
                    "simulated_s": float(np.mean(simulated_s)),
                }
            )
    return rows


if __name__ == "__main__":
    main()
