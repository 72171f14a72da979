"""How well simulations predict engines as users run them: calibrations and live runs in turn, at several loads.

    python -m benchmarks.engines ENGINE [...] [--loads 0.4,0.7,0.9] [--repeats 5] [--minutes 12] [--calibrations 3] [--out DIR]

ENGINE is one of `ENGINES`: a service that this program starts, or `policies`, a gateway with CTranslate2 before llama-server.
Blocks follow each other: a calibration, runs at all loads in random order, and so on, a calibration last, so that a drift of
the box is seen. A load is a share of the rate at which the simulated engine of the first calibration is saturated. Requests are
an open loop of Poisson arrivals. Each run is simulated with its own requests, from the calibration before it and that after it;
the prediction is the mean of both. A run is void if fewer than 99 % of its requests are answered, or if the reference requests
before it or after it take more than `UNSTEADY` longer or shorter than those of the calibrations around it. Beside it stands the
prediction at the run's own speed, of all runs that were answered: every time of the profile is longer by the factor by which
the run's reference requests are longer than the calibration's. `--minutes` is the time of an engine, without that of building
it the first time.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from benchmarks.engine_report import environment, format_result, named
from benchmarks.services.base import free_port, running
from benchmarks.services.libretranslate import libretranslate
from benchmarks.services.llama_server import llama_server
from simnmt.base.arrays import Floats
from simnmt.experiment.cases import RunPlan
from simnmt.experiment.inputs import read_inputs
from simnmt.experiment.units import run_unit
from simnmt.live.service_engine import ServiceEngine
from simnmt.live.validation import predicted_figures, structural_columns
from simnmt.live.validation_runs import (
    FIGURES,
    LiveRun,
    engines_of,
    errors_of,
    live_run,
    reference_requests,
    unit_at,
)
from simnmt.scenario.source import open_source
from simnmt.service.apis import Api
from simnmt.service.client import TranslationClient
from simnmt.service.load import run_precisely
from simnmt.service.messages import TranslateRequest

UNSTEADY = 0.10
ANSWERED = 0.99
MARIAN = ("--model", "marian", "--backend", "ctranslate2", "--compute-type", "int8", "--threads", "1")
IN_SERVICE = ("--gap", "150ms")
"""An engine idles between its batches, and takes longer after that than back to back."""
SIMNMT = (sys.executable, "-c", "from simnmt.cli import main; main()")
CHAT = "random-llama-36m"
TRIES = 3
"""Calibrations that may fail, since the service changed its speed, before that of the last block counts again."""
KNEE_RPS = 1e4
"""Rate at which every engine is saturated, to measure its throughput."""
CHAT_OUTPUT = 2.5
"""Tokens of a chat's answer per word of a source, as the tokens of a language model are."""
LONGEST, SENTENCES = 40, 300
"""Words of the longest sentence, and the sentences of the text."""


@dataclass(frozen=True)
class Engine:
    """How an engine is started, calibrated and placed in a scenario."""

    serve: Callable[[int], AbstractContextManager[str]]
    """Starts it; given the processor that it should use."""
    calibrate: Callable[[str, str], list[str]]
    """Options of `simnmt calibrate`, given its address and the text."""
    api: str = "libretranslate"
    batching: Mapping[str, Any] | None = None
    bars: Mapping[float, tuple[float, ...]] = field(default_factory=dict)
    """By load: largest errors of mean, p95, and of the first token's mean and p95."""


@contextmanager
def marian_server(cpu: int, *options: str) -> Iterator[str]:
    """Serve the random Marian model by CTranslate2 on a processor, its HTTP on the others."""
    url = f"http://127.0.0.1:{free_port()}"
    listen = ("--listen", url.removeprefix("http://"), "--forced-lengths", "--max-waiting", "5000", "--deadline", "120s")
    command = [*SIMNMT, "live", "server", *MARIAN, "--cpus", str(cpu), *listen, *options]
    others = sorted(os.sched_getaffinity(0) - {cpu}) or [cpu]
    with running("marian-server", command, url, cores=others) as ready:
        yield ready


def _calibrated_batches(url: str, text: str) -> list[str]:
    lengths = ("--max-src-len", "48", "--max-tgt-len", "96", "--max-batch", "8")
    return [*MARIAN, "--part", "execution", "--part", "step", "--unit", "word", "--quick", *IN_SERVICE, *lengths]


def _calibrated_executions(url: str, text: str) -> list[str]:
    lengths = ("--max-src-len", "48", "--max-tgt-len", "48")
    return [*MARIAN, "--part", "execution", "--unit", "word", "--quick", *IN_SERVICE, *lengths]


def _calibrated_service(url: str, text: str) -> list[str]:
    return ["--endpoint", url, "--text", text, "--quick"]


def _calibrated_chat(url: str, text: str) -> list[str]:
    return [*_calibrated_service(url, text), "--api", "openai", "--model", CHAT, "--kind", "slots"]


_MARIAN_BARS = {0.4: (0.05, 0.08), 0.7: (0.05, 0.08), 0.9: (0.10, 0.15)}
_LIBRE_BARS = {0.4: (0.08, 0.12), 0.7: (0.08, 0.12), 0.9: (0.15, 0.20)}
_LLAMA_BARS = {0.4: (0.08, 0.12, 0.12, 0.15), 0.7: (0.08, 0.12, 0.12, 0.15), 0.9: (0.10, 0.15, 0.15, 0.20)}
ENGINES = {
    "ctranslate2": Engine(marian_server, _calibrated_service, bars=_MARIAN_BARS),
    "ctranslate2-batched": Engine(
        lambda cpu: marian_server(cpu, "--batching", "mini:8"),
        _calibrated_batches,
        batching={"kind": "mini", "size": 8},
        bars=_MARIAN_BARS,
    ),
    "libretranslate-pinned": Engine(lambda cpu: libretranslate(pinned=True), _calibrated_service, bars=_LIBRE_BARS),
    "libretranslate": Engine(lambda cpu: libretranslate(), _calibrated_service, bars=_LIBRE_BARS),
    "llama": Engine(lambda cpu: llama_server(pinned=True), _calibrated_chat, api=f"openai:{CHAT}", bars=_LLAMA_BARS),
}
GATEWAY_ENGINE = Engine(marian_server, _calibrated_executions)
"""Of a gateway: it has no address."""
POLICIES = {"edge": {}, "cloud": {}, "cnmt": {}, "queue-aware": {"kind": "cnmt", "sees_backlog": True}}
POLICIES_LOAD = 0.6
"""Share of the gateway's own saturation at which policies are ranked."""


@dataclass(eq=False)
class Calibration:
    """The profiles of one calibration block, by device, and what was measured beside them."""

    at_s: float
    profiles: dict[str, Path]
    references_s: list[Floats]
    """Seconds of reference requests by box; empty without a service."""
    seconds: float


@dataclass(eq=False)
class Cell:
    """A load or a policy, and its runs."""

    name: str
    load: float
    rate_rps: float
    requests: int
    policy: str
    runs: list[tuple[LiveRun, int]] = field(default_factory=list)
    """Each with the number of the calibration before it."""


class Measurement:
    """The blocks of one engine, or of the policies."""

    def __init__(self, name: str, options: argparse.Namespace, folder: Path) -> None:
        self.name, self.options, self.folder, self.begin_s = name, options, folder, time.monotonic()
        self.of_policies = name == "policies"
        engines = {"gateway": GATEWAY_ENGINE, "cloud": ENGINES["llama"]} if self.of_policies else {"cloud": ENGINES[name]}
        self.engines: dict[str, Engine] = engines
        self.text, self.answers = folder / "text.txt", folder / "answers.txt"
        self.lines: dict[str, int] = write_texts(self.text, self.answers, CHAT_OUTPUT if name == "llama" else 1.0)
        self.urls: dict[str, str] = {}
        self.calibrations: list[Calibration] = []
        self.cells: list[Cell] = []
        self.round_trip_s = 0.0

    def plan(self, calibration: Calibration, rate_rps: float, requests: int, policy: str = "edge") -> RunPlan:
        """Return the scenario of a rate, with the profiles of a calibration."""
        devices = {
            device: {"profile": str(path), "outside_range_share": 1.0}
            | ({} if self.engines[device].batching is None else {"batching": self.engines[device].batching})
            for device, path in calibration.profiles.items()
        }
        units: dict[str, Any] = {"src_unit": "word", "tgt_unit": "word", "filter": "none"}
        profile = json.loads(calibration.profiles["cloud"].read_text(encoding="utf-8"))
        round_trip_s = (profile.get("endpoint") or {}).get("round_trip_s") or self.round_trip_s
        rtt_ms = 10.0 if self.of_policies else max(1e3 * round_trip_s, 0.01)
        lengths = {"source": str(self.text), "target": str(self.answers), **units}
        document = {
            "version": 1,
            "name": self.name,
            "seed": 48,
            "requests": requests,
            "replications": self.options.repeats,
            "metrics": ["first_token_p95_ms"] if self.name == "llama" else [],
            "workloads": {
                "de-en": {
                    "lengths": lengths,
                    "arrivals": {"kind": "poisson", "rate_rps": rate_rps},
                }
            },
            "networks": {"lan": {"rtt": {"constant_ms": rtt_ms}}},
            "devices": devices,
            "policies": POLICIES if self.of_policies else {"edge": {}},
        }
        source = open_source(document, ())
        return read_inputs(source.scenario, self.folder, source.document)

    async def measure(self) -> None:
        """Run all blocks."""
        allowed = os.sched_getaffinity(0)
        cpu = max(allowed)
        with ExitStack() as stack:
            stack.callback(os.sched_setaffinity, 0, allowed)
            for device, engine in self.engines.items():
                # The gateway's own engine is one of the validation's processes.
                starts = nullcontext("") if self.of_policies and device == "gateway" else engine.serve(cpu)
                self.urls[device] = stack.enter_context(starts)
            # The kernel would wake the load generator on the processor of the service that answers, which would slow it down.
            # A gateway's engine has the other processor.
            os.sched_setaffinity(0, allowed if self.of_policies else allowed - {cpu} or allowed)
            if self.name != "llama" and not self.of_policies:
                await self.write_answers()
            services = {device: (url, Api.of(self.engines[device].api)) for device, url in self.urls.items() if url}
            await self.calibrate(cpu, [])
            first = self.calibrations[0]
            place = self.folder / "engines"
            place.mkdir()
            knee_rps = saturation_rps(self.plan(first, KNEE_RPS, 400))
            boxes = engines_of(self.plan(first, knee_rps, 40), place, {}, True, services)
            try:
                for box in boxes:
                    await box.ready()
                    self.round_trip_s = box.client.round_trip_s if isinstance(box, ServiceEngine) else self.round_trip_s
                await self.add_references(first, boxes)
                self.make_cells(knee_rps)
                order, blocks = random.Random(48), self.blocks()
                for block, repeats in enumerate(blocks):
                    for repeat in repeats:
                        for cell in order.sample(self.cells, len(self.cells)):
                            cell.runs.append((await self.run(cell, repeat, boxes), block))
                    await self.calibrate(cpu, boxes)
            finally:
                for box in boxes:
                    await box.close()

    async def write_answers(self) -> None:
        """Let the service answer the text, since nothing forces its lengths."""
        async with TranslationClient(self.urls["cloud"]) as client:
            exchanges = [await client.translate(TranslateRequest((line,), False, "de", "en")) for line in self.lines]
        answers = [exchange.answer.texts[0] for exchange in exchanges]
        self.lines = {line: len(answer.split()) for line, answer in zip(self.lines, answers, strict=True)}
        self.answers.write_text("\n".join(answers) + "\n", encoding="utf-8")

    def blocks(self) -> list[list[int]]:
        """Return the repeats between two calibrations each."""
        numbers = np.array_split(np.arange(self.options.repeats), max(self.options.calibrations - 1, 1))
        return [part.tolist() for part in numbers if len(part)]

    def make_cells(self, knee_rps: float) -> None:
        """Choose rates and numbers of requests, so that all runs fit into the time."""
        options, spent_s = self.options, time.monotonic() - self.begin_s
        cells = [(policy, POLICIES_LOAD, policy) for policy in POLICIES] if self.of_policies else [
            (f"load {load:g}", load, "edge") for load in options.loads
        ]  # fmt: skip
        left_s = 60.0 * options.minutes - spent_s - len(self.blocks()) * self.calibrations[0].seconds
        run_s = max(left_s / (options.repeats * len(cells)) - 5.0, 8.0)
        for name, load, policy in cells:
            rate_rps = load * knee_rps
            self.cells.append(Cell(name, load, rate_rps, max(round(rate_rps * run_s), 20), policy))
        note(f"{self.name}: saturated at {knee_rps:.3g} requests/s, {run_s:.0f} s a run")

    async def calibrate(self, cpu: int, engines: Sequence[Any]) -> None:
        """Calibrate every device by the command, in a process of its own."""
        begin_s, profiles = time.monotonic(), dict[str, Path]()
        for device, engine in self.engines.items():
            path = profiles[device] = self.folder / f"{device}-{len(self.calibrations)}.json"
            note(f"{self.name}: calibration {len(self.calibrations) + 1} of {device}")
            options = [*engine.calibrate(self.urls[device], str(self.text)), "--out", str(path), "--force"]
            options += ["--seed", str(1 + len(self.calibrations))]  # a service may have kept the prompts of the one before
            # A model is measured where it runs, a service from where the load generator runs.
            cores = {cpu} if "--endpoint" not in options else set(os.sched_getaffinity(0)) - {cpu} or {cpu}
            tries = 0
            while fault := await calibrated(options, cores):
                note(f"{self.name}: {fault}")
                if (tries := tries + 1) == TRIES:
                    if not self.calibrations:
                        raise SystemExit(f"no calibration of {device}: {fault}")
                    note(f"{self.name}: the calibration before counts")
                    path.write_bytes(self.calibrations[-1].profiles[device].read_bytes())
                    break
            if self.calibrations and engine.api != "libretranslate":
                keep_output_tokens(self.calibrations[0].profiles[device], path)
        done = Calibration(time.monotonic() - self.begin_s, profiles, [], time.monotonic() - begin_s)
        self.calibrations.append(done)
        if engines:
            await self.add_references(done, engines)

    async def add_references(self, calibration: Calibration, engines: Sequence[Any]) -> None:
        unit = unit_at(self.plan(self.calibrations[0], 1.0, 100), "lan", 0)
        for engine in engines:
            is_service = isinstance(engine, ServiceEngine)
            seconds = await reference_requests(engine, unit, self.lines) if is_service else np.empty(0)
            calibration.references_s.append(seconds)

    async def run(self, cell: Cell, repeat: int, engines: Sequence[Any]) -> LiveRun:
        """Run a cell once."""
        plan = self.plan(self.calibrations[0], cell.rate_rps, cell.requests)
        place = self.folder / f"run {cell.name} {repeat}"
        place.mkdir()
        run = await live_run(unit_at(plan, "lan", repeat), cell.policy, engines, place, note, self.lines)
        note(f"{self.name}: {cell.name}, repeat {repeat + 1}: mean {1e3 * run.figures(*run.live_columns)[0]:.1f} ms")
        return run

    def result(self) -> dict[str, Any]:
        """Return the cells with their errors, and what was measured beside them."""
        cells = []
        for cell in self.cells:
            rows = [self.row(cell, run, block) for run, block in cell.runs]
            kept = [row for row in rows if not row["void"]] or rows
            live, simulated = (np.array([row[key] for row in kept]) for key in ("live", "predicted"))
            answered = [row for row in rows if row["answered"] >= ANSWERED and np.isfinite(row["at_speed"][0])] or rows
            at_speed, all_live = (np.mean([row[key] for row in answered], axis=0) for key in ("at_speed", "live"))
            stated = [row["structural"] for row in kept if row["structural"] is not None]
            structural = np.mean(stated, axis=0) if stated else None
            mean = live.mean(axis=0)
            cells.append(
                {
                    "cell": cell.name,
                    "load": cell.load,
                    "rate_rps": cell.rate_rps,
                    "requests": cell.requests,
                    "void": [row["void"] for row in rows],
                    "live": named(mean),
                    "spread": named(np.ptp(live, axis=0) / np.where(mean == 0.0, np.nan, mean)),
                    "predicted": named(errors_of(simulated.mean(axis=0), mean)),
                    "at_speed": named(errors_of(at_speed, all_live)),
                    "structural": None if structural is None else named(errors_of(structural, mean)),
                    "runs": [
                        {**row, **{key: named(row[key]) for key in ("live", "predicted", "at_speed")}, "structural": None}
                        for row in rows
                    ],
                }
            )
        calibrations = [
            {"at_s": one.at_s, "seconds": one.seconds, "references_s": [seconds.tolist() for seconds in one.references_s]}
            | {device: json.loads(path.read_text(encoding="utf-8")) for device, path in one.profiles.items()}
            for one in self.calibrations
        ]
        return {"engine": self.name, "cells": cells, "calibrations": calibrations, "round_trip_s": self.round_trip_s}

    def row(self, cell: Cell, run: LiveRun, block: int) -> dict[str, Any]:
        around = self.calibrations[block], self.calibrations[block + 1]
        simulated = [self.simulated(cell, run, calibration) for calibration in around]
        slowdowns = [self.slowdown(run, calibration) for calibration in around]
        at_speed = [self.simulated(cell, run, one, slowdown) for one, slowdown in zip(around, slowdowns, strict=True)]
        others = [other for other, _ in cell.runs if other is not run]
        structural = run.figures(*structural_columns(run, others)) if run.states_executions else None
        return {
            "live": run.figures(*run.live_columns),
            "predicted": np.mean(simulated, axis=0),
            "predicted_by_each": [named(figures) for figures in simulated],
            "at_speed": np.mean(at_speed, axis=0),
            "slowdowns": slowdowns,
            "answered": float(run.valid.mean()),
            "structural": structural,
            "void": self.reason_void(run, around),
            "replication": run.unit.replication,
            "block": block,
            "lateness_p99_s": float(np.nanquantile(run.log.lateness_s, 0.99)),
        }

    def simulated(self, cell: Cell, run: LiveRun, calibration: Calibration, slowdown: float = 1.0) -> Floats:
        """Return the figures of a simulated run, every time of whose profile is longer by a factor.

        That is a run with arrivals closer by the factor in another unit of time.
        """
        if not np.isfinite(slowdown):
            return np.full(len(FIGURES), np.nan)
        plan = self.plan(calibration, cell.rate_rps * slowdown, cell.requests)
        numbers = run_unit(unit_at(plan, "lan", run.unit.replication)).numbers
        (of_policy,) = [one for place, one in numbers.items() if place.policy == cell.policy]
        figures = predicted_figures(of_policy)
        return np.where([name.endswith("_s") for name in FIGURES], figures * slowdown, figures)

    def slowdown(self, run: LiveRun, calibration: Calibration) -> float:
        """Return how much longer the reference requests of a run took; of a gateway's own engine that is not known."""
        if self.of_policies:
            return 1.0
        (run_s,), (calibration_s,) = run.references_s, calibration.references_s
        return float(np.median(run_s) / np.median(calibration_s))

    def reason_void(self, run: LiveRun, around: Sequence[Calibration]) -> str:
        """Return why a run does not count; empty if it does."""
        if (answered := float(run.valid.mean())) < ANSWERED:
            return f"{answered:.3f} answered"
        for number, seconds in enumerate(run.references_s):
            usual_s = [float(np.median(one.references_s[number])) for one in around if len(one.references_s[number])]
            if usual_s:
                halves = [float(np.median(half)) for half in np.array_split(seconds, 2)]
                worst = max(halves, key=lambda half: abs(half / np.mean(usual_s) - 1.0))
                if abs(change := worst / float(np.mean(usual_s)) - 1.0) > UNSTEADY:
                    return f"reference requests {100 * change:+.0f} %"
        return ""


async def calibrated(options: Sequence[str], cores: set[int]) -> str:
    """Calibrate on some processors; return why there is no profile, empty if there is one."""
    process = await asyncio.create_subprocess_exec(
        *SIMNMT, "calibrate", *options, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
        preexec_fn=lambda: os.sched_setaffinity(0, cores),
    )  # fmt: skip
    output, _ = await process.communicate()
    return output.decode().strip().splitlines()[-1] if process.returncode else ""


def write_texts(text: Path, answers: Path, ratio: float) -> dict[str, int]:
    """Write sentences of random words, and others of about `ratio` times their lengths as answers.

    Returns the sentences, for any length of an answer.
    """
    generator = random.Random(7)
    syllables = [first + vowel + last for first in "bdfgklmnrst" for vowel in "aeiou" for last in ("", "n", "r", "t")]
    vocabulary = ["".join(generator.choices(syllables, k=generator.randint(1, 3))) for _ in range(2_000)]

    def sentence(length: float) -> str:
        return " ".join(generator.choices(vocabulary, k=max(round(length), 2)))

    lengths = [min(generator.lognormvariate(2.5, 0.55), LONGEST) for _ in range(SENTENCES)]
    lines = [sentence(length) for length in lengths]
    others = [sentence(ratio * length * generator.uniform(0.8, 1.4)) for length in lengths]
    text.write_text("\n".join(lines) + "\n", encoding="utf-8")
    answers.write_text("\n".join(others) + "\n", encoding="utf-8")
    return dict.fromkeys(lines, 0)


def saturation_rps(plan: RunPlan) -> float:
    """Return the throughput of the first device of a scenario whose requests come all at once."""
    numbers = run_unit(unit_at(plan, "lan", 0)).numbers
    return float(next(one for place, one in numbers.items() if place.policy == "edge")["throughput_rps"] or 0.0)


def keep_output_tokens(first: Path, later: Path) -> None:
    """Let a later profile count output tokens as the first, by which the lengths of answers are forced."""
    profile = json.loads(later.read_text(encoding="utf-8"))
    kept = json.loads(first.read_text(encoding="utf-8"))["slots"].get("output")
    profile["slots"] = {**profile["slots"], "output": kept or {"fixed": 0.0, "per_token": 1.0}}
    later.write_text(json.dumps(profile), encoding="utf-8")


def note(text: str) -> None:
    print(f"{datetime.now():%H:%M:%S} {text}", file=sys.stderr, flush=True)


def main() -> None:
    """Measure the engines that are named."""
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("engines", nargs="+", choices=[*ENGINES, "policies"], metavar="ENGINE")
    parser.add_argument("--loads", type=lambda text: [float(one) for one in text.split(",")], default=[0.4, 0.7, 0.9])
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--minutes", type=float, default=12.0, help="of each engine")
    parser.add_argument("--calibrations", type=int, default=3, help="blocks, the first before all runs and the last behind")
    parser.add_argument("--quick", action="store_true", help="2 repeats, 2 calibrations, 3 minutes")
    parser.add_argument("--out", type=Path, default=Path("reports/engines"))
    options = parser.parse_args()
    if options.quick:
        options.repeats, options.calibrations, options.minutes = 2, 2, 3.0
    options.out.mkdir(parents=True, exist_ok=True)
    for name in options.engines:
        before = environment()
        with TemporaryDirectory(prefix="simnmt-engines-") as folder:
            measurement = Measurement(name, options, Path(folder))
            run_precisely(measurement.measure())
            result = measurement.result() | {"environment": {"before": before, "after": environment()}}
            (options.out / f"{name}.json").write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
        print(format_result(result, {} if name == "policies" else ENGINES[name].bars), flush=True)
        note(f"{name}: {(time.monotonic() - measurement.begin_s) / 60:.1f} minutes, wrote {options.out / name}.json")


if __name__ == "__main__":
    main()
