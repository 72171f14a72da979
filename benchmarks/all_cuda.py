"""All measurements that need a GPU, in order of worth, each within its time: `python -m benchmarks.all_cuda --out gpu`.

Every step is a command of its own. What it prints and writes stays in `--out`. The file steps.json there says how each step
ended and is rewritten after every step, so that an interruption loses only the step at work. The same command later goes on
with the steps that did not end well; a calibration resumes from its own journal. A step that fails or exceeds its limit does
not stop the others. No step begins after `--minutes`, and none outlasts them. With `--task`, a classifier of BERT-base's size
is trained, cut into shards and studied. Where the GPU has a counter of energy, each step's joules are noted as well.

`--device cpu` tries the script without a GPU, with tiny models and Triton's interpreter: believe no time of it.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from simnmt.base.errors import SimnmtError
from simnmt.base.files import written_whole
from simnmt.calibrate.energy_counters import find_energy_meter
from simnmt.calibrate.energy_meter import EnergyMeter
from simnmt.nmt.devices import torch_device

MODELS = ("gru", "marian", "gru-512")
BATCH = 128
"""Sentences decoded together at most: the paper's size."""
LEAST_S = 5.0
"""No step begins with less time left."""
TRIED_MODEL = {"kind": "gru", "layers": 1, "hidden": 16, "embedding": 16, "src_vocab": 50, "tgt_vocab": 50}
"""Stands for every model on the CPU."""


@dataclass(frozen=True, slots=True)
class Step:
    """One command, and the most seconds that it may take."""

    name: str
    command: tuple[str, ...]
    limit_s: float


@dataclass(frozen=True, slots=True)
class Ended:
    """How a step ended: its exit status, or None for one that exceeded its limit and was killed."""

    command: tuple[str, ...]
    status: int | None
    seconds: float
    joules: float | None
    """What the GPU consumed meanwhile, idle power included; None where no counter tells."""

    @property
    def well(self) -> bool:
        """Whether the step need not be repeated."""
        return self.status == 0


def steps_on_gpu(out: Path, task: Path | None) -> Iterator[Step]:
    """Yield the steps for a GPU, the most valuable first."""
    half = ("--device", "cuda", "--compute-type", "float16")
    for dtype in ("float16", "float32", "bfloat16"):
        yield Step(f"kernels, {dtype}", _benchmark("kernels_cuda", "--dtype", dtype, "--rounds", "5"), 90)
    calibrated = (*half, "--max-batch", str(BATCH), "--force")
    for model in MODELS:
        profile = str(out / f"{model}-quick.json")
        command = _simnmt("calibrate", "--model", model, *calibrated, "--quick", "--out", profile)
        yield Step(f"calibrate {model}, quick", command, 120)
    for mix, model in itertools.product(("opensubtitles", "europarl"), MODELS[:2]):
        sized = ("--mix", mix, "--batch", str(BATCH), "--rounds", "3", "--profile", str(out / f"{model}-quick.json"))
        yield Step(f"batched decoding, {mix}, {model}", _benchmark("batched_decoding", *sized), 100)
    for beam, rows in itertools.product((1, 5), (32, BATCH)):
        sized = ("--model", "gru-512", "--beam", str(beam), "--batch", str(rows), "--sentences", str(4 * rows))
        yield Step(f"fused decoding, beam {beam}, batch {rows}", _benchmark("fused_decoding", *half, *sized), 60)
    bench = ("--device", "cuda", "--dtype", "float16", "--force", "--out", str(out / "vocabulary.json"))
    yield Step("vocab bench", _simnmt("vocab", "bench", *bench), 120)
    yield Step("vocabulary", _benchmark("vocabulary_cuda"), 90)
    if task is not None:
        size = ("--width", "768", "--ffn", "3072", "--vocab", "8000", "--batch-tokens", "4000", "--rate", "0.0001")
        yield from _study(out, task, ("--device", "cuda", "--minutes", "3", *size), 240)
    ctranslate2 = ("--backend", "ctranslate2", *calibrated, "--quick", "--out", str(out / "marian-ctranslate2.json"))
    yield Step("calibrate marian, ctranslate2", _simnmt("calibrate", "--model", "marian", *ctranslate2), 120)
    for model in MODELS:
        command = _simnmt("calibrate", "--model", model, *calibrated, "--out", str(out / f"{model}.json"))
        yield Step(f"calibrate {model}", command, 900)
    yield Step("doctor", _simnmt("doctor", "--json"), 60)


def steps_on_cpu(out: Path, task: Path | None) -> Iterator[Step]:
    """Yield the same commands with tiny sizes."""
    model = out / "tiny.json"
    model.write_text(json.dumps(TRIED_MODEL))
    profile = str(out / "tiny-quick.json")
    sized = ("--device", "cpu", "--vocab", "300", "--batch", "1", "--dtype", "float32", "--rounds", "1")
    yield Step("kernels", _benchmark("kernels_cuda", *sized), 300)
    calibrated = ("--model", str(model), "--max-batch", "8", "--quick", "--force", "--out", profile)
    yield Step("calibrate tiny, quick", _simnmt("calibrate", *calibrated), 300)
    sized = ("--batch", "8", "--sentences", "40", "--model", str(model))
    yield Step("batched decoding, tiny", _benchmark("batched_decoding", *sized, "--profile", profile), 120)
    yield Step("fused decoding, batch 8", _benchmark("fused_decoding", *sized), 120)
    sized = ("--vocab", "300", "--width", "16", "--rounds", "1")
    bench = ("--clusters", "20", "--force", "--out", str(out / "vocabulary.json"))
    yield Step("vocab bench", _simnmt("vocab", "bench", *sized, *bench), 120)
    yield Step("vocabulary", _benchmark("vocabulary_cuda", "--device", "cpu", "--dtype", "float32", *sized), 120)
    if task is not None:
        yield from _study(out, task, ("--epochs", "1", "--layers", "2", "--slices", "2", "--width", "16", "--ffn", "32"), 120)
    yield Step("doctor", _simnmt("doctor", "--json"), 60)


def _study(out: Path, task: Path, training: tuple[str, ...], limit_s: float) -> Iterator[Step]:
    """Yield the steps that train a classifier, cut it into shards and study them; the first two resume where they stopped."""
    encoder, store, on = str(out / "encoder"), str(out / "store"), ("--task", str(task))
    yield Step("sti train", _simnmt("sti", "train", *on, *training, "--out", encoder), limit_s)
    yield Step("sti shard", _simnmt("sti", "shard", encoder, "--out", store), limit_s)
    study = ("--store", store, *on, "--importance-on-task", "--quick", "--study", str(out / "sti-study.json"), "--force")
    yield Step("reproduce sti", _simnmt("reproduce", "sti", *study, "--out", str(out / "sti")), 2 * limit_s)


def _simnmt(*arguments: str) -> tuple[str, ...]:
    return (sys.executable, "-c", "from simnmt.cli import main; main()", *arguments)


def _benchmark(name: str, *arguments: str) -> tuple[str, ...]:
    return (sys.executable, "-m", f"benchmarks.{name}", *arguments, "--json")


def run(step: Step, out: Path, limit_s: float, meter: EnergyMeter | None) -> Ended:
    """Run a step with its outputs in `out`; kill it and its children at the limit or at an interruption."""
    before_j = None if meter is None else meter.read_j()
    stem = step.name.replace(", ", "-").replace(" ", "-")
    begin_s = time.monotonic()
    with (out / f"{stem}.out").open("wb") as stdout, (out / f"{stem}.err").open("wb") as stderr:
        process = subprocess.Popen(step.command, stdout=stdout, stderr=stderr, start_new_session=True)
        try:
            status: int | None = process.wait(limit_s)
        except subprocess.TimeoutExpired:
            status = None
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
    seconds, after_j = round(time.monotonic() - begin_s, 1), None if meter is None else meter.read_j()
    joules = None if before_j is None or after_j is None else round(after_j - before_j, 1)
    return Ended(step.command, status, seconds, joules)


def run_all(steps: Sequence[Step], out: Path, minutes: float, meter: EnergyMeter | None = None) -> dict[str, Ended]:
    """Run the steps that have not ended well yet, and print a line for each. Returns all that ended, of earlier runs too."""
    journal = out / "steps.json"
    noted = json.loads(journal.read_text()) if journal.exists() else {}
    ended = {name: Ended(**note | {"command": tuple(note["command"])}) for name, note in noted.items()}
    until_s = time.monotonic() + 60.0 * minutes
    for step in steps:
        before, left_s = ended.get(step.name), until_s - time.monotonic()
        if before is not None and before.well and before.command == step.command:
            print(f"{step.name}: done before, in {before.seconds:.1f} s", flush=True)
            continue
        if left_s < LEAST_S:
            print(f"{step.name}: no time left", flush=True)
            continue
        done = ended[step.name] = run(step, out, min(step.limit_s, left_s), meter)
        with written_whole(journal) as partial:
            partial.write_text(json.dumps({name: asdict(each) for name, each in ended.items()}, indent=1) + "\n")
        how = "killed at its limit" if done.status is None else "done" if done.well else f"failed with status {done.status}"
        energy = "" if done.joules is None else f", {done.joules:,.0f} J"
        print(f"{step.name}: {how}, {done.seconds:.1f} s{energy}", flush=True)
    return ended


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the steps; exit with 1 if one of them did not end well. Raises `NmtError` for a device that is missing."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--out", type=Path, required=True, metavar="DIR", help="folder for all results; to be resumed if it is there"
    )
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda", help="cpu: tries the script with tiny models")
    parser.add_argument("--minutes", type=float, default=45.0, help="time for all steps together (default: 45)")
    parser.add_argument("--task", type=Path, metavar="FILE.tsv", help="examples for a classifier of BERT-base's size")
    given = parser.parse_args(arguments)
    if given.task is not None and not given.task.is_file():
        parser.error(f"--task {given.task}: no such file")
    torch_device(given.device)
    given.out.mkdir(parents=True, exist_ok=True)
    if given.device == "cpu":
        os.environ["TRITON_INTERPRET"] = "1"
    steps = list((steps_on_gpu if given.device == "cuda" else steps_on_cpu)(given.out, given.task))
    meter = find_energy_meter(given.device).meter
    ended = run_all(steps, given.out, given.minutes, meter)
    wanting = [step.name for step in steps if step.name not in ended or not ended[step.name].well]
    print(f"{len(steps) - len(wanting)} of {len(steps)} steps are done; results in {given.out}")
    sys.exit(1 if wanting else 0)


if __name__ == "__main__":
    try:
        main()
    except SimnmtError as error:
        sys.exit(str(error))
