"""A live streamed server against its simulation: latency by state, from the same profile (STI-16: within 15 %).

    python -m benchmarks.live_streaming STORE PROFILE [--deadline 200ms --preload 1MB --cache 4MB] [--rounds 10] [--json]

Each round is one engagement after the memory was reclaimed and one after the gap alone, of four requests each, sent one by one
to a live server; gaps are short, so that a round takes seconds. The simulated box gets the requests at the same moments.
Latencies are execution times as the server states them. Without STORE and PROFILE a small store of random weights is made and
profiled briefly at 20 MB/s: such figures show that the benchmark works. Run it on a calm box.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from simnmt.base.text_tables import format_table
from simnmt.cli.options import parse_bytes, parse_duration
from simnmt.cli.sti_costs import read_costs
from simnmt.devices import Streamed
from simnmt.devices.stream import StreamBox
from simnmt.live.deployment import streamed_engine
from simnmt.live.server import LiveServer, ServerSettings
from simnmt.live.streamed_settings import StreamedSettings, streamed_settings
from simnmt.profile.profile_file import read_profile
from simnmt.results.device_accounts import state_name
from simnmt.service.addresses import Address
from simnmt.service.client import TranslationClient
from simnmt.service.http_server import Access
from simnmt.service.messages import TranslateRequest
from simnmt.streaming.plan.engagement import engagement

GAP_S, RECLAIMED_S, TURNS = 0.3, 0.8, 4
TEXT = " ".join(f"w{number}" for number in range(16))
BAR = 0.15


def main() -> None:
    """Run the benchmark and print its table, or JSON."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("store", nargs="?", type=Path)
    parser.add_argument("profile", nargs="?")
    parser.add_argument("--deadline", type=parse_duration, default=0.2)
    parser.add_argument("--preload", type=parse_bytes, default=200_000)
    parser.add_argument("--cache", type=parse_bytes, default=600_000)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        store, profile = (options.store, options.profile) if options.profile else made_model(Path(folder))
        costs = read_costs(profile)
        settings = streamed_settings(
            costs.cost,
            engagement_gap_s=GAP_S,
            reclaimed_after_s=RECLAIMED_S,
            deadline_s=options.deadline,
            preload_bytes=options.preload,
            cache_bytes=options.cache,
            pace_bytes_per_s=costs.pace_bytes_per_s,
            fingerprint=costs.fingerprint,
        )
        live = asyncio.run(measure(store, settings, options.rounds))
        rows = compared(live, simulated(settings, profile, [arrival_s for arrival_s, *_ in live]), settings)
    print(json.dumps(rows, indent=1) if options.json else format_rows(rows))


def made_model(folder: Path) -> tuple[Path, str]:
    """Make a store of random weights, 6 layers of 6 slices, and profile it briefly; return both paths."""
    from simnmt.streaming.store.writer import write_store
    from tests.streaming.made_encoder import made_weights

    store, profile = folder / "store", folder / "profile.json"
    write_store(made_weights(layers=6, heads=6, width=192, ffn=768), store)
    command = ["sti", "profile", str(store), "--out", str(profile), "--lengths", "16", "--pace", "20MB/s", "--repeats", "5"]
    simnmt = [sys.executable, "-c", "from simnmt.cli import main; main()"]
    subprocess.run([*simnmt, *command], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return store, str(profile)


async def measure(store: Path, settings: StreamedSettings, rounds: int) -> list[tuple[float, int, float]]:
    """Return (arrival, state, execution) in seconds of each live request."""
    engine = streamed_engine(store, settings, threads=1, nice=0)
    server = LiveServer(ServerSettings(engine, access=Access(Address(port=0))))
    await server.start()
    measured = []
    try:
        async with TranslationClient(server.front.service.url) as client:
            for idle_s in [RECLAIMED_S + 0.1, GAP_S + 0.1] * rounds:
                await asyncio.sleep(idle_s)
                for _ in range(TURNS):
                    sent_s = time.monotonic()
                    exchange = await client.translate(TranslateRequest((TEXT,), False, "de", "en"))
                    assert exchange.answer.times is not None
                    measured.append((sent_s, exchange.answer.report[0], exchange.answer.times.execution_s))
    finally:
        await server.front.service.stop()
        await server.close()
    return measured


def simulated(settings: StreamedSettings, profile: str, arrivals_s: list[float]) -> list[tuple[int, float]]:
    """Return (state, execution) in seconds of each request at the simulated box."""
    block = read_profile(profile).sti
    assert block is not None
    cold_read_s = block.io.s_fixed + block.resident_bytes / block.io.bytes_per_s if block.resident_bytes else 0.0
    engaged = engagement(
        settings.cost,
        settings.deadline_s,
        settings.preload_bytes,
        settings.cache_bytes,
        length=settings.length,
        cold_read_s=cold_read_s,
    )
    spec = Streamed(engaged.compute, engaged.states, settings.lifecycle)
    src_len = np.full(len(arrivals_s), settings.length)
    execution_s = engaged.compute.in_memory_s(src_len)
    columns, box = spec.row_columns(src_len, None, execution_s), StreamBox(spec)
    outcomes = []
    for number, arrival_s in enumerate(arrivals_s):
        row = [np.broadcast_to(column, len(arrivals_s))[number] for column in columns]
        begin_s, finish_s, state, _ = box.serve(arrival_s, float(execution_s[number]), row, 2)
        outcomes.append((state, finish_s - begin_s))
    return outcomes


def compared(
    live: list[tuple[float, int, float]], predicted: list[tuple[int, float]], settings: StreamedSettings
) -> list[dict[str, Any]]:
    """Return a row for each state: requests, median latencies, their ratio, and how often both worlds had another state."""
    by_state: dict[int, list[tuple[float, float]]] = defaultdict(list)
    differ = sum(state != simulated_state for (_, state, _), (simulated_state, _) in zip(live, predicted, strict=True))
    for (_, state, measured_s), (simulated_state, simulated_s) in zip(live, predicted, strict=True):
        if state == simulated_state:
            by_state[state].append((measured_s, simulated_s))
    rows = []
    for state, pairs in sorted(by_state.items()):
        measured_s, simulated_s = (median(values) for values in zip(*pairs, strict=True))
        rows.append(
            {
                "state": state_name(state, settings.lifecycle.last + 1),
                "requests": len(pairs),
                "measured_ms": 1e3 * measured_s,
                "simulated_ms": 1e3 * simulated_s,
                "ratio": simulated_s / measured_s,
                "within_bar": abs(simulated_s / measured_s - 1.0) <= BAR,
                "other_states": differ,
            }
        )
    return rows


def format_rows(rows: list[dict[str, Any]]) -> str:
    """Return the table."""
    names = ("state", "requests", "measured ms", "simulated ms", "simulated/measured", f"within {BAR:.0%}")
    cells = [
        [
            row["state"],
            str(row["requests"]),
            f"{row['measured_ms']:.2f}",
            f"{row['simulated_ms']:.2f}",
            f"{row['ratio']:.2f}",
            "yes" if row["within_bar"] else "no",
        ]
        for row in rows
    ]
    return f"{format_table(names, cells)}\nrequests in another state than simulated: {rows[0]['other_states']}"


if __name__ == "__main__":
    main()
