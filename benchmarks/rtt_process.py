"""How like real RTT series the synthetic process draws: `python -m benchmarks.rtt_process --json`.

Each RIPE Atlas series in ../shared/data is fitted to, and laps of the fit are held against it: p50, p95 and p99 within 5 %
and lag-1 autocorrelation within 0.1, all at once. `held_out_*` fits to the first half and judges by the second;
`ceiling_*` judges the first half itself by the second, which is what a process could hardly better. Read as `simnmt trace
import` does: rows are sorted, and a lost sample holds the value before it.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from simnmt.network.rtt_comparison import SeriesDifference, compare, drawn_figures, figures, halves
from simnmt.network.rtt_process import fit_process
from simnmt.network.traces.trace_file import read_rtt

FOLDER = Path(__file__).resolve().parents[2] / "shared" / "data" / "rtt" / "ripe_atlas_ping"
BAR = 0.70


def measure(folder: Path = FOLDER, draws: int = 10) -> dict[str, Any]:
    """Shares over series and draws, and which series fail in most draws or at times, by which criterion."""
    seeds = range(1, draws + 1)
    like, held_out, ceiling, kept = [], [], [], []
    failing, at_times = {}, {}
    for path in sorted(folder.glob("*.csv")):
        series = read_rtt(path)
        process = fit_process(series)
        kept.append(process.parameters / len(series.rtt_s))
        wanted = figures(series.rtt_s)
        verdicts = [compare(each, wanted) for each in drawn_figures(process, seeds)]
        like.append(verdicts)
        shares = _shares("share", [verdicts])
        if shares["share_both"] <= 0.5:
            failing[path.stem] = shares | {"median_quantile_errors": _median_errors(verdicts)}
        elif shares["share_both"] < 1:
            at_times[path.stem] = shares
        first, second = halves(series)
        wanted = figures(second.rtt_s)
        held_out.append([compare(each, wanted) for each in drawn_figures(fit_process(first), seeds)])
        ceiling.append([compare(figures(first.rtt_s), wanted)])
    return {
        "series": len(like),
        "draws_a_series": draws,
        **_shares("share", like),
        "share_of_series_in_most_draws": round(1 - len(failing) / len(like), 4),
        **_shares("held_out", held_out),
        **_shares("ceiling", ceiling),
        "numbers_kept_over_samples_median": round(float(np.median(kept)), 4),
        "numbers_kept_over_samples_most": round(max(kept), 4),
        "failing": failing,
        "failing_at_times": at_times,
    }


def _shares(name: str, verdicts: Sequence[Sequence[SeriesDifference]]) -> dict[str, float]:
    flat = [verdict for each in verdicts for verdict in each]
    return {
        f"{name}_both": round(float(np.mean([verdict.holds for verdict in flat])), 4),
        f"{name}_quantiles": round(float(np.mean([verdict.quantiles_hold for verdict in flat])), 4),
        f"{name}_lag1": round(float(np.mean([verdict.lag_1_holds for verdict in flat])), 4),
    }


def _median_errors(verdicts: Sequence[SeriesDifference]) -> list[float]:
    return [round(error, 4) for error in np.median([verdict.quantile_errors for verdict in verdicts], axis=0).tolist()]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print JSON and nothing else")
    parser.add_argument("--draws", type=int, default=10, help="of each series (default 10)")
    arguments = parser.parse_args()
    if not FOLDER.is_dir():
        print("skipped: the RIPE Atlas series are not beside this checkout", file=sys.stderr)
        return 0
    found = measure(draws=arguments.draws)
    if arguments.json:
        print(json.dumps(found, indent=1))
        return 0
    cases = {"fails in most draws": found.pop("failing"), "fails at times": found.pop("failing_at_times")}
    for name, value in found.items():
        print(f"{name:36}{value:>10}" + (f"   asked: >= {BAR}" if name == "share_both" else ""))
    for title, series in cases.items():
        for name, why in series.items():
            print(f"{title}: {name} {why}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
