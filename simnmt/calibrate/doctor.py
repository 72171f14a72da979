"""Findings on what this box can and cannot measure, with reasons and remedies. Needs neither torch nor numpy.

The box is examined for threads, vector units, memory, clock, load, energy counters and disk, the installed libraries for
their compute types. GPU paths are untested on a box that has one.
"""

from __future__ import annotations

import os
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from importlib import import_module
from types import ModuleType
from typing import Any, Literal

from simnmt.base.packages import install_command
from simnmt.calibrate import disk as disks
from simnmt.calibrate import processor_use
from simnmt.calibrate.box import BoxDescription, describe
from simnmt.calibrate.box.processor import governors_offered
from simnmt.calibrate.box.system_files import OWN_CACHE, Tree
from simnmt.calibrate.energy_counters import find_energy_meter
from simnmt.nmt.engines import supported_types


@dataclass(frozen=True, slots=True)
class Finding:
    """One quantity that can or cannot be measured here, or a warning of something that disturbs measurements."""

    status: Literal["can", "cannot", "warning"]
    topic: str
    """threads, simd, memory, torch, ctranslate2, gpu, energy, clock, load, box, disk."""
    what: str
    remedy: str | None = None
    """Action of the user, as an imperative."""

    def __str__(self) -> str:
        return f"{self.status:<7}  {self.topic:<11}  {self.what}" + (f" ({self.remedy})" if self.remedy else "")


SMALL_MEMORY_BYTES = 2_000_000_000
"""Marian of the paper's size, torch and a beam need slightly less."""
STEADY = frozenset({"performance", "userspace"})
INT8_UNITS = ("avx512_vnni", "avx_vnni", "amx_int8", "asimddp", "i8mm")


def threads(box: BoxDescription) -> Iterator[Finding]:
    """Yield the number of threads that can run at once, and limits on them."""
    cores = f", {box.physical_cores} cores" if box.physical_cores else ""
    model = " ".join(filter(None, [box.cpu_model or box.machine, f"in {box.board}" if box.board else None]))
    yield Finding("can", "threads", f"{_counted(box.usable_cpus, 'thread')} at once: {model}{cores}")
    allowed = len(box.allowed_cpus)
    if box.physical_cores and box.usable_cpus > box.physical_cores:
        what = f"{box.usable_cpus} hardware threads share {box.physical_cores} cores"
        yield Finding("warning", "threads", what, f"measure with --threads {box.physical_cores} or fewer")
    if box.logical_cores and 0 < allowed < box.logical_cores:
        yield Finding("warning", "threads", f"this process may use {allowed} of the box's {box.logical_cores} CPUs")
    if box.cpu_quota is not None and box.cpu_quota < (allowed or box.logical_cores or 1):
        what = f"a control group grants {box.cpu_quota:g} CPUs' worth of time: work is paused when that is used up"
        yield Finding("warning", "threads", what, "give the container whole CPUs, such as docker run --cpuset-cpus=0-3")


def simd(box: BoxDescription) -> Iterator[Finding]:
    """Yield the vector extensions, and a note if none of them computes int8 products."""
    if not box.simd:
        yield Finding("warning", "simd", "no vector extension is known: expect slow products")
    else:
        int8 = "" if set(INT8_UNITS) & set(box.simd) else "; no instructions for int8 products"
        yield Finding("can", "simd", ", ".join(box.simd) + int8)


def memory(box: BoxDescription) -> Iterator[Finding]:
    """Yield the free memory, with a warning if a model may not fit."""
    free = [size for size in (box.memory_available_bytes, box.memory_limit_bytes) if size is not None]
    if not free:
        yield Finding("warning", "memory", "the free memory is unknown")
    elif min(free) < SMALL_MEMORY_BYTES:
        what = f"{min(free) / 1e9:.1f} GB free: large batches will not fit, and are left out"
        yield Finding("warning", "memory", what, "end other programs, or add swap for the time of loading")
    else:
        yield Finding("can", "memory", f"{min(free) / 1e9:.1f} GB free")


def clock(box: BoxDescription, tree: Tree) -> Iterator[Finding]:
    """Yield whether the clock is constant."""
    speed = "" if box.frequency_mhz is None else f"; {box.frequency_mhz:,.0f} MHz now"
    if box.governor is None:
        what = f"the system shows no clock governor, so the clock cannot be held{speed}"
        yield Finding("cannot", "clock", what, "trust the drift that the profile records")
    elif set(box.governor.split("+")) <= STEADY:
        yield Finding("can", "clock", f"held by governor {box.governor}{speed}")
    else:
        held = "performance" in governors_offered(tree) or not governors_offered(tree)
        remedy = "sudo cpupower frequency-set -g performance" if held else None
        yield Finding("warning", "clock", f"governor {box.governor}: the clock follows the load{speed}", remedy)
    if box.on_battery:
        yield Finding("warning", "clock", "on battery: most boxes lower their clocks", "connect the mains")
    if box.jetson is not None:
        mode = f"power mode {box.jetson.power_mode}" if box.jetson.power_mode else "the power mode is not known"
        what = f"Jetson, L4T {box.jetson.l4t}, {mode}: CPU, GPU and memory clocks depend on it"
        yield Finding("warning", "clock", what, "choose by sudo nvpmodel -m N, then hold with sudo jetson_clocks")


def load(box: BoxDescription, others_cpus: float | None = None) -> Iterator[Finding]:
    """Yield whether other programs load the box: by their present use if `others_cpus` is known, else by the load average."""
    cpus = processor_use.counted_cpus(box)
    if others_cpus is not None:
        now, what = others_cpus, f"others use {others_cpus:.2f} of {_counted(cpus, 'CPU')}"
    elif box.load_average is not None:
        now, what = box.load_average[0], f"load average {box.load_average[0]:.2f} on {_counted(cpus, 'CPU')}"
    else:
        yield Finding("warning", "load", "whether the box is quiet is unknown")
        return
    if processor_use.is_busy(now, box):
        remedy = f"wait until it is below {processor_use.QUIET_SHARE * cpus:.1f}: see top"
        yield Finding("warning", "load", f"{what}: other programs will disturb the times", remedy)
    else:
        yield Finding("can", "load", f"{what}: quiet")


def shared(box: BoxDescription) -> Iterator[Finding]:
    """Yield a warning if the hardware is shared."""
    if box.virtualisation:
        what = f"{box.virtualisation}: neighbours on the same hardware are invisible"
        yield Finding("warning", "box", what, "compare two calibrations of different hours")


def energy(device: str, root: str | os.PathLike[str] = "/", sleep: Callable[[float], None] = time.sleep) -> Iterator[Finding]:
    """Yield the energy counter of a device, or the reasons why it has none."""
    meter_search = find_energy_meter(device, root, sleep=sleep)
    if meter_search.meter is not None:
        rails = ", ".join(meter_search.meter.domains)
        yield Finding("can", "energy", f"{device}: {meter_search.meter.source}, {meter_search.meter.scope} ({rails})")
        meter_search.meter.close()
        return
    why = "; ".join(f"{obstacle.source}: {obstacle.why}" for obstacle in meter_search.obstacles)
    remedies = [obstacle.remedy for obstacle in meter_search.obstacles if obstacle.remedy]
    yield Finding("cannot", "energy", f"{device}: {why}", "; ".join(remedies) or None)


def disk(folder: str | os.PathLike[str]) -> Iterator[Finding]:
    """Yield whether cold reads can be measured in a folder; write nothing."""
    try:
        mount = disks.refuse_unfit(folder, 4 * disks.SIZES_BYTES[-1])
    except disks.DiskError as error:
        place = f"{error.path}: " if error.path else ""
        yield Finding("cannot", "disk", f"{place}{error.what}", error.remedy)
        return
    what = f"{os.path.realpath(folder)}: {mount or 'file system unknown'}"
    if mount is not None and mount.kind.partition(".")[0] in OWN_CACHE:
        yield Finding("warning", "disk", f"{what} has a separate cache: reads may not be cold", "name a local disk")
    else:
        yield Finding("can", "disk", f"cold reads in {what}")


def _counted(count: int, what: str) -> str:
    return f"{count} {what}{'s' if count != 1 else ''}"


def torch_finding(box: BoxDescription) -> Iterator[Finding]:
    """Yield the compute types of the torch engine by device, if a small product is correct there."""
    torch = loaded("torch")
    if isinstance(torch, str):
        remedy = f"{install_command('models')}; on a Jetson NVIDIA's own torch, see docs/how-to/measure.md"
        yield Finding("cannot", "torch", _unusable("torch", torch, box), remedy)
        return
    devices = ["cpu", *(f"cuda:{gpu.index}" for gpu in box.gpus if "torch" in gpu.seen_by)]
    for device in devices:
        if not _computes(torch, device):
            yield Finding("cannot", "torch", f"torch {torch.__version__} cannot compute on {device}", "install another build")
            continue
        yield _types("torch", f"torch {torch.__version__}", device)
    if "transformers" not in box.versions:
        what = "transformers is not installed: recurrent models only, no Marian"
        yield Finding("cannot", "torch", what, install_command("models"))


def ctranslate2_finding(box: BoxDescription) -> Iterator[Finding]:
    """Yield the compute types of the CTranslate2 engine by device."""
    library = loaded("ctranslate2")
    if isinstance(library, str):
        yield Finding("cannot", "ctranslate2", _unusable("ctranslate2", library, box), install_command("ctranslate2"))
        return
    for device in ("cpu", "cuda"):
        if device == "cuda" and not library.get_cuda_device_count():
            continue
        yield _types("ctranslate2", f"CTranslate2 {box.versions.get('ctranslate2', '')}", device)


def _types(backend: str, title: str, device: str) -> Finding:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            types = supported_types(backend, device)
    except ModuleNotFoundError as error:
        remedy = install_command("models")
        return Finding("cannot", backend, f"{title} on {device}: the engine needs {error.name}, which is not installed", remedy)
    except Exception as error:  # each backend has errors of its own
        return Finding("cannot", backend, f"{title} on {device}: {_line(error)}")
    return Finding("can", backend, f"{title} on {device}: {', '.join(types)}")


def gpu_finding(box: BoxDescription) -> Iterator[Finding]:
    """Yield the GPUs, and the reason if torch does not see one."""
    for gpu in box.gpus:
        facts = [
            gpu.name,
            None if gpu.memory_bytes is None else f"{gpu.memory_bytes / 1e9:.1f} GB",
            None if gpu.compute_capability is None else f"compute capability {gpu.compute_capability}",
            None if gpu.driver is None else f"driver {gpu.driver}",
        ]
        if "torch" in gpu.seen_by:
            yield Finding("can", "gpu", f"cuda:{gpu.index}: {', '.join(filter(None, facts))}")
        else:
            yield Finding("cannot", "gpu", f"{', '.join(filter(None, facts))}: torch does not see it", _why_unseen(box))
    if box.jetson is not None and not box.gpus:
        yield Finding("cannot", "gpu", "this Jetson's GPU: torch does not see it", _why_unseen(box))
    elif not box.gpus:
        yield Finding("cannot", "gpu", "no NVIDIA GPU is seen, neither by torch nor by NVML", "measure on a box that has one")


def loaded(name: str) -> ModuleType | Any | str:
    """Return the library, or the first line of the error if it does not load."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return import_module(name)
    except Exception as error:  # not installed, a missing shared library, built for another numpy
        return _line(error)


def _unusable(name: str, why: str, box: BoxDescription) -> str:
    version = box.versions.get(name)
    return f"{name} is not installed" if version is None else f"{name} {version} is installed, but does not load: {why}"


def _computes(torch: Any, device: str) -> bool:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            one = torch.ones((8, 8), device=device)
            return float((one @ one)[0, 0]) == 8.0
    except Exception:  # such as a GPU that the build has no code for
        return False


def _why_unseen(box: BoxDescription) -> str:
    if box.jetson is not None:
        return "install NVIDIA's torch for this JetPack, and keep pip from replacing it: docs/how-to/measure.md"
    torch = loaded("torch")
    if isinstance(torch, str):
        return install_command("models")
    if torch.version.cuda is None:
        return "this torch is built for CPUs only: install a build for CUDA, see pytorch.org/get-started"
    return (
        f"this torch is built for CUDA {torch.version.cuda}: check that the driver is new enough and CUDA_VISIBLE_DEVICES unset"
    )


def _line(error: Exception) -> str:
    return next(iter(str(error).splitlines()), "") or type(error).__name__


@dataclass(frozen=True, slots=True)
class Examination:
    """The box and the findings."""

    box: BoxDescription
    findings: tuple[Finding, ...]

    def as_json(self) -> dict[str, Any]:
        """Return the examination as `simnmt doctor --json` prints it."""
        return {"box": self.box.as_json(), "findings": [asdict(finding) for finding in self.findings]}


def examine(root: str | os.PathLike[str] = "/", folder: str | os.PathLike[str] = ".") -> Examination:
    """Examine the box under `root`; `folder`: place of disk reads. Missing parts give findings, not exceptions.

    Another root than `/` is a recorded tree, to which libraries, GPUs and disks of this box do not belong.
    """
    # The load first, because loading the libraries is a load too. A recorded tree has no present load.
    tree = Tree.at(root)
    others_cpus = processor_use.others_cpus() if tree.is_this_box else None
    box = describe(root)
    findings = [
        *threads(box),
        *simd(box),
        *memory(box),
        *clock(box, tree),
        *load(box, others_cpus),
        *shared(box),
    ]
    if tree.is_this_box:
        findings += [*torch_finding(box), *ctranslate2_finding(box)]
        findings += gpu_finding(box)
    devices = ["cpu", *(f"cuda:{gpu.index}" for gpu in box.gpus if "torch" in gpu.seen_by)]
    findings += [finding for device in devices for finding in energy(device, root)]
    if tree.is_this_box:
        findings += disk(folder)
    return Examination(box, tuple(findings))
