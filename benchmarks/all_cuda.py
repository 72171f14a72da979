"""All measurements that need a GPU, in order of worth, each within its time: `python -m benchmarks.all_cuda --out gpu`.

Every step is a command of its own. What it prints and writes stays in `--out`. The file steps.json there says how each step
ended and is rewritten after every step, so that an interruption loses only the step at work. The same command later goes on
with the steps that did not succeed; a calibration resumes from its own journal. A step that fails or exceeds its limit does
not stop the others. No step begins after `--minutes`, and none outlasts them. `--archive` keeps a compressed copy of all
results but weights, also rewritten after every step. With `--task`, a classifier of BERT-base's size is trained, cut into
shards and studied. Where the GPU has an energy counter, steps.json holds the joules of each step.

`--device cpu` tries the script without a GPU, with tiny models and Triton's interpreter: do not trust its times.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import signal
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path
from types import FrameType
from typing import Any

from simnmt.base import VERSION
from simnmt.base.errors import InputError, SimnmtError
from simnmt.base.files import written_whole
from simnmt.base.signals import STOPPING
from simnmt.calibrate.energy_counters import find_energy_meter
from simnmt.nmt.devices import torch_device

MODELS = ("gru", "marian", "gru-512")
BATCH = 128
"""Sentences decoded together at most: the paper's size."""
LEAST_S = 20.0
"""No step begins with less time left: torch alone takes seconds to start."""
GRACE_S = 5.0
"""Time that a step has to end by itself, after which it is killed."""
WEIGHTS = {".safetensors", ".bin", ".pt"}
"""Suffixes of files that no archive takes."""
TINY_MODEL = {"kind": "gru", "layers": 1, "hidden": 16, "embedding": 16, "src_vocab": 50, "tgt_vocab": 50}
"""Stands for every model on the CPU."""

ReadJoules = Callable[[], float | None]


@dataclass(frozen=True, slots=True)
class Step:
    """One command, and the most seconds that it may take."""

    name: str
    command: tuple[str, ...]
    limit_s: float

    @property
    def stem(self) -> str:
        """Name of its files."""
        return self.name.replace(", ", "-").replace(" ", "-")


@dataclass(frozen=True, slots=True)
class StepResult:
    """How a step ended."""

    command: tuple[str, ...]
    status: int | None
    """Exit status; None for a step that exceeded its limit."""
    seconds: float
    joules: float | None
    """Energy of the GPU during the step, idle power included; None without an energy counter."""

    @property
    def succeeded(self) -> bool:
        """Whether the step need not be repeated."""
        return self.status == 0


def steps_on_gpu(out: Path, task: Path | None) -> Iterator[Step]:
    """Yield the steps for a GPU: first one of each kind, then their variants, then what takes long."""
    float16 = ("--device", "cuda", "--compute-type", "float16")
    calibration = (*float16, "--max-batch", str(BATCH), "--force")

    def kernels(dtype: str) -> Step:
        return Step(f"kernels, {dtype}", _benchmark("kernels_cuda", "--dtype", dtype, "--rounds", "5"), 90)

    def quick_calibration(model: str) -> Step:
        options = ("--model", model, *calibration, "--quick", "--out", str(out / f"{model}-quick.json"))
        return Step(f"calibrate {model}, quick", _simnmt("calibrate", *options), 120)

    def batched(model: str, mix: str, sentences: int) -> Step:
        options = ("--mix", mix, "--sentences", str(sentences), "--batch", str(BATCH), "--rounds", "3")
        profile = ("--profile", str(out / f"{model}-quick.json"))
        return Step(f"batched decoding, {mix}, {model}", _benchmark("batched_decoding", *options, *profile), 150)

    def fused(beam: int, batch: int) -> Step:
        options = ("--model", "gru-512", "--beam", str(beam), "--batch", str(batch), "--sentences", str(4 * batch))
        return Step(f"fused decoding, beam {beam}, batch {batch}", _benchmark("fused_decoding", *float16, *options), 60)

    yield Step("doctor", _simnmt("doctor", "--json"), 60)
    yield kernels("float16")
    yield quick_calibration("gru-512")
    yield fused(1, BATCH)
    bench = ("--device", "cuda", "--dtype", "float16", "--force", "--out", str(out / "vocabulary.json"))
    yield Step("vocab bench", _simnmt("vocab", "bench", *bench), 120)
    yield quick_calibration("marian")
    yield batched("marian", "opensubtitles", 2_000)
    yield quick_calibration("gru")
    yield batched("gru", "opensubtitles", 2_000)
    yield from itertools.starmap(fused, ((5, BATCH), (1, 32), (5, 32)))
    yield from (kernels("float32"), kernels("bfloat16"))
    yield from (batched("gru", "europarl", 2_000), batched("marian", "europarl", 1_000))
    yield Step("vocabulary", _benchmark("vocabulary_cuda"), 90)
    if task is not None:
        size = ("--width", "768", "--ffn", "3072", "--vocab", "8000", "--batch-tokens", "4000", "--rate", "0.0001")
        yield from _study(out, task, ("--device", "cuda", "--minutes", "3", *size), 240)
    if find_spec("ctranslate2") is not None:
        options = ("--backend", "ctranslate2", *calibration, "--quick", "--out", str(out / "marian-ctranslate2.json"))
        yield Step("calibrate marian, ctranslate2", _simnmt("calibrate", "--model", "marian", *options), 120)
    for model in MODELS:
        command = _simnmt("calibrate", "--model", model, *calibration, "--out", str(out / f"{model}.json"))
        yield Step(f"calibrate {model}", command, 900)


def steps_on_cpu(out: Path, task: Path | None) -> Iterator[Step]:
    """Yield the same commands with tiny sizes."""
    model = out / "tiny.json"
    model.write_text(json.dumps(TINY_MODEL))
    profile = str(out / "tiny-quick.json")
    yield Step("doctor", _simnmt("doctor", "--json"), 60)
    options = ("--device", "cpu", "--vocab", "300", "--batch", "1", "--dtype", "float32", "--rounds", "1")
    yield Step("kernels", _benchmark("kernels_cuda", *options), 300)
    options = ("--model", str(model), "--max-batch", "8", "--quick", "--force", "--out", profile)
    yield Step("calibrate tiny, quick", _simnmt("calibrate", *options), 300)
    options = ("--batch", "8", "--sentences", "40", "--model", str(model))
    yield Step("batched decoding, tiny", _benchmark("batched_decoding", *options, "--profile", profile), 120)
    yield Step("fused decoding, batch 8", _benchmark("fused_decoding", *options), 120)
    options = ("--vocab", "300", "--width", "16", "--rounds", "1")
    bench = ("--clusters", "20", "--force", "--out", str(out / "vocabulary.json"))
    yield Step("vocab bench", _simnmt("vocab", "bench", *options, *bench), 120)
    yield Step("vocabulary", _benchmark("vocabulary_cuda", "--device", "cpu", "--dtype", "float32", *options), 120)
    if task is not None:
        yield from _study(out, task, ("--epochs", "1", "--layers", "2", "--slices", "2", "--width", "16", "--ffn", "32"), 120)


def _study(out: Path, task: Path, training: tuple[str, ...], limit_s: float) -> Iterator[Step]:
    """Yield the steps that train a classifier, cut it into shards and study them; an interrupted training or cut resumes."""
    encoder, store, examples = str(out / "encoder"), str(out / "store"), ("--task", str(task))
    yield Step("sti train", _simnmt("sti", "train", *examples, *training, "--out", encoder), limit_s)
    yield Step("sti shard", _simnmt("sti", "shard", encoder, "--out", store), limit_s)
    study = ("--store", store, *examples, "--importance-on-task", "--quick", "--study", str(out / "sti-study.json"), "--force")
    yield Step("reproduce sti", _simnmt("reproduce", "sti", *study, "--out", str(out / "sti")), 2 * limit_s)


def _simnmt(*arguments: str) -> tuple[str, ...]:
    return (sys.executable, "-c", "from simnmt.cli import main; main()", *arguments)


def _benchmark(name: str, *arguments: str) -> tuple[str, ...]:
    return (sys.executable, "-m", f"benchmarks.{name}", *arguments, "--json")


def run(step: Step, out: Path, limit_s: float, read_j: ReadJoules) -> StepResult:
    """Run a step with its outputs in `out`; end it and its children at the limit, at a signal, and when it fails."""
    before_j, begin_s = read_j(), time.monotonic()
    with (out / f"{step.stem}.out").open("wb") as stdout, (out / f"{step.stem}.err").open("wb") as stderr:
        process = subprocess.Popen(step.command, stdout=stdout, stderr=stderr, start_new_session=True)
        try:
            status: int | None = process.wait(limit_s)
        except subprocess.TimeoutExpired:
            status = None
        finally:
            _end(process)
    seconds, after_j = time.monotonic() - begin_s, read_j()
    joules = None if before_j is None or after_j is None else round(after_j - before_j, 1)
    return StepResult(step.command, status, round(seconds, 1), joules)


def _end(process: subprocess.Popen[bytes]) -> None:
    """Ask a step to end, so that it can save its work; then kill whatever is left of it."""
    if process.poll() is None:
        process.terminate()
        with suppress(subprocess.TimeoutExpired):
            process.wait(GRACE_S)
    with suppress(ProcessLookupError, PermissionError):  # macOS answers so for a group of ended processes
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


class Results:
    """The results of all steps, kept in steps.json beside the box that they were measured on."""

    def __init__(self, out: Path, box: dict[str, str]) -> None:
        """Read what an earlier call measured. Raises `InputError` for results of another box."""
        self._path, self._box, self.of = out / "steps.json", box, dict[str, StepResult]()
        if not self._path.exists():
            return
        noted: dict[str, Any] = json.loads(self._path.read_text())
        if noted["box"] != box:
            here, there = (", ".join(f"{key} {value}" for key, value in one.items()) for one in (box, noted["box"]))
            raise InputError(f"results of {there}, and this is {here}", path=self._path, remedy="choose another --out")
        self.of = {name: StepResult(**note | {"command": tuple(note["command"])}) for name, note in noted["steps"].items()}

    def add(self, step: Step, result: StepResult) -> None:
        """Keep one more result."""
        self.of[step.name] = result
        steps = {name: asdict(one) for name, one in self.of.items()}
        with written_whole(self._path) as partial:
            partial.write_text(json.dumps({"box": self._box, "steps": steps}, indent=1) + "\n")

    def has(self, step: Step) -> bool:
        """Whether the step has succeeded, with the same command."""
        result = self.of.get(step.name)
        return result is not None and result.succeeded and result.command == step.command


def run_all(
    steps: Sequence[Step],
    out: Path,
    minutes: float,
    results: Results,
    read_j: ReadJoules = lambda: None,
    archive: Path | None = None,
) -> None:
    """Run the steps that have not succeeded yet, and print a line for each."""
    until_s = time.monotonic() + 60.0 * minutes
    for step in steps:
        left_s = until_s - time.monotonic()
        if results.has(step):
            print(f"{step.name}: done before, in {results.of[step.name].seconds:.1f} s", flush=True)
            continue
        if left_s < LEAST_S:
            print(f"{step.name}: no time left", flush=True)
            continue
        result = run(step, out, min(step.limit_s, left_s), read_j)
        results.add(step, result)
        print(f"{step.name}: {_described(step, result, out, left_s)}", flush=True)
        if archive is not None:
            _pack(out, archive)


def _described(step: Step, result: StepResult, out: Path, left_s: float) -> str:
    energy = "" if result.joules is None else f", {result.joules:,.0f} J"
    if result.succeeded:
        return f"done, {result.seconds:.1f} s{energy}"
    errors = out / f"{step.stem}.err"
    lines = [line for line in errors.read_text(errors="replace").splitlines() if line.strip()]
    why = f": {lines[-1].strip()}" if lines else ""
    if result.status is None:
        return f"stopped after {result.seconds:.1f} s, {'its limit' if step.limit_s < left_s else 'when no time was left'}{why}"
    return f"failed with status {result.status}{why} ({errors})"


def _pack(out: Path, archive: Path) -> None:
    """Write the results but no weights into a compressed archive."""
    paths = [path for path in sorted(out.rglob("*")) if path.is_file() and path.suffix not in WEIGHTS]
    with written_whole(archive) as partial, tarfile.open(partial, "w:gz") as packed:
        for path in paths:
            if path.resolve() not in (archive.resolve(), partial.resolve()):
                packed.add(path, path.relative_to(out))


def _stop(number: int, frame: FrameType | None) -> None:
    raise SystemExit(128 + number)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the steps; exit with 1 if one of them did not succeed. Raises `SimnmtError` for a device that is missing."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--out", type=Path, required=True, metavar="DIR", help="folder of all results; an earlier one is resumed"
    )
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda", help="cpu: tries the script with tiny models")
    parser.add_argument("--minutes", type=float, default=45.0, help="time for all steps together (default: 45)")
    parser.add_argument("--archive", type=Path, metavar="FILE.tar.gz", help="compressed copy of the results without weights")
    parser.add_argument("--task", type=Path, metavar="FILE.tsv", help="examples for a classifier of BERT-base's size")
    given = parser.parse_args(arguments)
    if given.task is not None and not given.task.is_file():
        parser.error(f"--task {given.task}: no such file")
    torch_device(given.device)
    given.out.mkdir(parents=True, exist_ok=True)
    if given.device == "cpu":
        os.environ["TRITON_INTERPRET"] = "1"
    for number in STOPPING:
        if signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, _stop)
    results = Results(given.out, _box(given.device))
    steps = list((steps_on_gpu if given.device == "cuda" else steps_on_cpu)(given.out, given.task))
    energy = find_energy_meter(given.device)
    if energy.meter is None:
        print("no energy: " + "; ".join(map(str, energy.obstacles)), flush=True)
    try:
        read_j: ReadJoules = (lambda: None) if energy.meter is None else energy.meter.read_j
        run_all(steps, given.out, given.minutes, results, read_j, given.archive)
    finally:
        if energy.meter is not None:
            energy.meter.close()
    missing = [step.name for step in steps if not results.has(step)]
    print(f"{len(steps) - len(missing)} of {len(steps)} steps are done; results in {given.out}")
    sys.exit(1 if missing else 0)


def _box(device: str) -> dict[str, str]:
    import torch  # here, so that tests of the steps need not load it

    name = torch.cuda.get_device_name() if device == "cuda" else device
    return {"device": name, "torch": str(torch.__version__), "simnmt": VERSION}


if __name__ == "__main__":
    try:
        main()
    except SimnmtError as error:
        sys.exit(str(error))
