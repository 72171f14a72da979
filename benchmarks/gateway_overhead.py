"""What a gateway adds to a request: latencies at a fixed rate, before an engine that answers at once.

    python -m benchmarks.gateway_overhead [--seconds 10] [--rounds 5] [--profile]

Three services run in turn, interleaved over the rounds: a bare aiohttp server that echoes (the baseline), the gateway on its
local path (500 requests/s), and the gateway that offloads everything to a live server (200 requests/s). Each service and its
engine share one processor; the clients, in a process of their own, have the other. The load is an open loop: a request is
counted from the moment at which it was due. Bars: 1 ms at p99 on the local path, 2 ms offloaded.

`--profile` prints where the front spends its processor time, which is meaningful on a busy machine too.
"""

from __future__ import annotations

import argparse
import asyncio
import cProfile
import json
import os
import pstats
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from simnmt.experiment.inputs import read_inputs
from simnmt.live.decider import live_unit
from simnmt.live.engine_process import EngineSettings, ServedModel
from simnmt.live.gateway import GatewaySettings, LiveGateway
from simnmt.live.server import LiveServer, LocalEngine, ServerSettings
from simnmt.nmt.architecture import RecurrentArchitecture
from simnmt.nmt.engine import DecodeRequest, Hypothesis
from simnmt.nmt.whole_batch_decoder import WholeBatchDecoder
from simnmt.profile.blocks import EngineBlock
from simnmt.scenario.source import open_source
from simnmt.service.event_loop import new_precise_loop

RATES = {"bare": 500.0, "local": 500.0, "offloaded": 200.0}
"""Requests a second by service."""
BARS_MS = {"local": 1.0, "offloaded": 2.0}
TEXT = "Heute ist das Wetter schön und wir gehen spazieren"
ARCHITECTURE = RecurrentArchitecture(kind="gru", layers=1, hidden=8, embedding=8, src_vocab=1000, tgt_vocab=1000)


def load_empty(settings: EngineSettings) -> ServedModel:
    """Load an engine that answers at once."""

    def decode(requests: list[DecodeRequest]) -> list[Hypothesis]:
        return [Hypothesis(tuple(request.source[:-1]), None, len(request.source)) for request in requests]

    architecture = ARCHITECTURE.model_dump(mode="json")
    block = EngineBlock(backend="empty", compute_type="float32", device="cpu", architecture=architecture)
    return ServedModel(partial(WholeBatchDecoder, decode), block)


ENGINE = EngineSettings("empty", loader=load_empty, nice=0)


def _unit() -> Any:
    source = open_source("@open-loop", ["fit.inferences=0"])
    return live_unit(read_inputs(source.scenario, Path.cwd(), source.document))


@asynccontextmanager
async def _bare() -> AsyncIterator[str]:
    from aiohttp import web

    async def echo(request: web.BaseRequest) -> web.Response:
        text = json.loads(await request.read())["q"]
        return web.Response(body=json.dumps({"translatedText": text}).encode(), content_type="application/json")

    runner = web.ServerRunner(web.Server(echo, access_log=None))
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    await runner.cleanup()


@asynccontextmanager
async def _gateway(policy: str, log: Path, engine: LocalEngine) -> AsyncIterator[str]:
    """Serve a gateway of this process before a server in another one."""
    away = subprocess.Popen([sys.executable, "-m", __spec__.name, "--serve"], stdout=subprocess.PIPE, text=True)
    assert away.stdout is not None
    url = away.stdout.readline().strip()
    with log.open("w") as file:
        settings = GatewaySettings(_unit(), policy, {"cloud": url}, ENGINE, any_model=True)
        gateway = LiveGateway(settings, file, engine=engine)
        await gateway.start()
        yield gateway.front.service.url
        await gateway.front.service.stop()
        await gateway.close()
    away.terminate()
    away.wait()


async def _serve_away() -> None:
    """Serve the empty engine until SIGTERM; print the address."""
    server = LiveServer(ServerSettings(replace(ENGINE)))
    await server.start()
    print(server.front.service.url, flush=True)
    await server.front.service.serve_until_stopped()
    await server.close()


async def _send(url: str, rate_rps: float, seconds: float) -> list[float]:
    """Send requests in an open loop; return their latencies from the moments at which they were due."""
    import aiohttp

    count, latency_s = int(rate_rps * seconds), list[float]()
    body = json.dumps({"q": TEXT, "source": "de", "target": "en"}).encode()
    headers = {"Content-Type": "application/json"}

    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:

        async def one(due_s: float) -> None:
            async with session.post(f"{url}/translate", data=body, headers=headers) as response:
                await response.read()
                assert response.status == 200
            latency_s.append(time.monotonic() - due_s)

        for _ in range(20):
            await one(time.monotonic())
        latency_s.clear()
        gaps_s = np.random.default_rng(1).exponential(1.0 / rate_rps, count)
        begin_s, tasks = time.monotonic() + 0.05, []
        for due_s in (begin_s + np.cumsum(gaps_s)).tolist():
            if (left_s := due_s - time.monotonic()) > 0.0:
                await asyncio.sleep(left_s)
            tasks.append(asyncio.ensure_future(one(due_s)))
        await asyncio.gather(*tasks)
    return latency_s


async def _load(url: str, rate_rps: float, seconds: float, cpu: int | None) -> list[float]:
    """Return the latencies that a client in a process of its own measures."""
    command = [sys.executable, "-m", __spec__.name, "--load", url, str(rate_rps), str(seconds), str(-1 if cpu is None else cpu)]
    process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    output, _ = await process.communicate()
    latency_s: list[float] = json.loads(output)
    return latency_s


async def _measure(rounds: int, seconds: float, cpu: int | None, profile: bool) -> dict[str, list[list[float]]]:
    latency_s: dict[str, list[list[float]]] = {name: [] for name in RATES}
    log = Path("gateway_overhead.jsonl")
    engine = LocalEngine(ENGINE)
    await engine.started()
    for number in range(rounds):
        for name in RATES:
            rate_rps = 50.0 if profile else RATES[name]
            policy = "edge" if name == "local" else "cloud"
            async with _bare() if name == "bare" else _gateway(policy, log, engine) as url:
                profiler = cProfile.Profile(time.process_time) if profile and number == 0 and name != "bare" else None
                if profiler is not None:
                    profiler.enable()
                begin_s = time.process_time()
                latency_s[name].append(await _load(url, rate_rps, seconds, cpu))
                busy_s = time.process_time() - begin_s
                if profiler is not None:
                    profiler.disable()
                    print(f"--- {name}")
                    pstats.Stats(profiler).sort_stats("tottime").print_stats(22)
                print(
                    f"{name}: {1e6 * busy_s / (rate_rps * seconds):.0f} us of processor time in the front a request", flush=True
                )
    await engine.process.close()
    log.unlink()
    return latency_s


def main() -> None:
    """Parse the command line, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--profile", action="store_true")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--load", nargs=4, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        asyncio.run(_serve_away())
        return
    if options.load:
        url, rate, seconds, cpu = options.load
        if int(cpu) >= 0:
            os.sched_setaffinity(0, {int(cpu)})
        loop = new_precise_loop()
        print(json.dumps(loop.run_until_complete(_send(url, float(rate), float(seconds)))))
        loop.close()
        return
    cpus = sorted(os.sched_getaffinity(0))
    if len(cpus) > 1:
        os.sched_setaffinity(0, {cpus[0]})
    client_cpu = cpus[1] if len(cpus) > 1 else None
    latency_s = asyncio.run(_measure(options.rounds, options.seconds, client_cpu, options.profile))
    quantiles = {
        name: np.median([np.quantile(run, (0.5, 0.99)) for run in runs], axis=0) * 1e3 for name, runs in latency_s.items()
    }
    for name, (p50_ms, p99_ms) in quantiles.items():
        ratios = " and ".join(f"{value / bare:.2f}" for value, bare in zip((p50_ms, p99_ms), quantiles["bare"], strict=True))
        bar = f"; bar {BARS_MS[name]:g} ms at p99" if name in BARS_MS else ""
        print(f"{name:10} {RATES[name]:4.0f} requests/s: p50 {p50_ms:.3f} ms, p99 {p99_ms:.3f} ms, {ratios} times bare{bar}")


if __name__ == "__main__":
    # Not of this `__main__`: the engine's process imports `load_empty` by the name of its module.
    from benchmarks.gateway_overhead import main as measure_and_print

    measure_and_print()
