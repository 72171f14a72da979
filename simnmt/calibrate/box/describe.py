"""Description of this box, from its system's files and the installed libraries; None for what is unknown.

GPU paths are untested on a box that has one.
"""

from __future__ import annotations

import os
import platform
import re
import warnings
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from importlib import metadata
from math import isfinite
from typing import Any

from simnmt.calibrate.box import processor, system_files
from simnmt.calibrate.box.processor import logical_cpus
from simnmt.calibrate.box.system_files import Tree


@dataclass(frozen=True, slots=True)
class GpuDescription:
    """One GPU as the CUDA runtime or NVML shows it."""

    index: int
    """N of `cuda:N`; NVML's number without torch."""
    name: str
    memory_bytes: int | None = None
    compute_capability: str | None = None
    """Such as 8.7."""
    driver: str | None = None
    seen_by: tuple[str, ...] = ()
    """The libraries that see it: torch, nvml."""


@dataclass(frozen=True, slots=True)
class JetsonDescription:
    """Release and power mode of NVIDIA's Linux for Tegra."""

    l4t: str
    """Release, such as 36.4.3."""
    jetpack: str | None = None
    """The JetPack series that this release belongs to, such as 6.2."""
    power_mode: str | None = None
    """nvpmodel's mode, such as MAXN."""


@dataclass(frozen=True, slots=True)
class BoxDescription:
    """One box at one moment."""

    machine: str
    """Instruction set: x86_64, aarch64."""
    system: str
    """Kernel and its release."""
    cpu_model: str | None = None
    board: str | None = None
    """The model in the device tree: Jetson and Raspberry Pi have one."""
    physical_cores: int | None = None
    logical_cores: int | None = None
    allowed_cpus: tuple[int, ...] = ()
    """Numbers of the logical CPUs that this process may run on; empty if unknown."""
    allowed_cores: int | None = None
    """Number of cores of these CPUs; None if unknown."""
    cpu_quota: float | None = None
    """CPUs' worth of time that the control group grants; None without a quota."""
    simd: tuple[str, ...] = ()
    """Vector extensions used by matrix products, in the kernel's spelling."""
    memory_bytes: int | None = None
    memory_available_bytes: int | None = None
    memory_limit_bytes: int | None = None
    """The control group's limit; None without one."""
    governor: str | None = None
    """Clock governor; several are joined by +."""
    frequency_mhz: float | None = None
    """Present mean over the CPUs."""
    frequency_min_mhz: float | None = None
    frequency_max_mhz: float | None = None
    on_battery: bool | None = None
    """None for a box without a known mains supply, such as a server."""
    load_average: tuple[float, float, float] | None = None
    """Over 1, 5 and 15 minutes."""
    virtualisation: str | None = None
    """Name of the hypervisor or container, as far as known."""
    jetson: JetsonDescription | None = None
    gpus: tuple[GpuDescription, ...] = ()
    versions: dict[str, str] = field(default_factory=dict)
    """Versions of Python and of the installed libraries that decide the speed, by name."""

    @property
    def usable_cpus(self) -> int:
        """Number of threads that can run at once: allowed CPUs, or a smaller quota; at least 1."""
        return self._granted(len(self.allowed_cpus) or self.logical_cores or 1)

    @property
    def usable_cores(self) -> int:
        """Number of threads that can run at once without sharing a core's vector units; at least 1."""
        return min(self.usable_cpus, self._granted(self.allowed_cores or self.physical_cores or self.usable_cpus))

    def _granted(self, cpus: int) -> int:
        return max(1, cpus if self.cpu_quota is None else min(cpus, int(self.cpu_quota)))

    def as_json(self) -> dict[str, Any]:
        """Return the description as `simnmt doctor --json` prints it."""
        return asdict(self) | {"usable_cpus": self.usable_cpus, "usable_cores": self.usable_cores}


NAMES = ("simnmt", "torch", "transformers", "ctranslate2", "numpy", "sentencepiece", "nvidia-ml-py")


def versions() -> dict[str, str]:
    """Return the versions of Python and the installed libraries by name; import nothing."""
    installed = {name: version for name in NAMES if (version := _version(name)) is not None}
    return {"python": platform.python_version()} | installed


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except (metadata.PackageNotFoundError, KeyError, TypeError):  # the last two: a damaged installation
        return None


def gpus() -> tuple[GpuDescription, ...]:
    """Return every GPU of this box, torch's numbers first; those that torch does not see follow with NVML's."""
    by_nvml = nvml_gpus()
    by_torch = []
    for gpu, uuid in torch_gpus():
        same = next((other for other, nvml_uuid in by_nvml if uuid is not None and uuid in nvml_uuid), None)
        if same is not None:
            by_nvml = [(other, nvml_uuid) for other, nvml_uuid in by_nvml if other is not same]
            gpu = replace(gpu, driver=same.driver, seen_by=(*gpu.seen_by, *same.seen_by))
        by_torch.append(gpu)
    return (*by_torch, *(gpu for gpu, _ in by_nvml))


def torch_gpus() -> list[tuple[GpuDescription, str | None]]:
    """Return the GPUs that torch can compute on, with the UUID where this torch reports it; empty without torch."""
    descriptions: list[tuple[GpuDescription, str | None]] = []
    # With a driver that does not match or a library that cannot be loaded, there is no GPU to measure.
    with suppress(Exception), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import torch

        for index in range(torch.cuda.device_count() if torch.cuda.is_available() else 0):
            properties: Any = torch.cuda.get_device_properties(index)
            capability = f"{properties.major}.{properties.minor}"
            gpu = GpuDescription(index, properties.name, properties.total_memory, capability, seen_by=("torch",))
            uuid = getattr(properties, "uuid", None)
            descriptions.append((gpu, None if uuid is None else str(uuid)))
    return descriptions


def nvml_gpus() -> list[tuple[GpuDescription, str]]:
    """Return the GPUs that NVIDIA's driver reports, with their UUIDs; none without driver or nvidia-ml-py."""
    descriptions: list[tuple[GpuDescription, str]] = []
    with suppress(Exception):
        import pynvml

        pynvml.nvmlInit()
        try:
            driver = _text(pynvml.nvmlSystemGetDriverVersion())
            for index in range(pynvml.nvmlDeviceGetCount()):
                handle = pynvml.nvmlDeviceGetHandleByIndex(index)
                memory_bytes = capability = None
                with suppress(pynvml.NVMLError):  # integrated GPUs have no memory of their own
                    memory_bytes = int(pynvml.nvmlDeviceGetMemoryInfo(handle).total)
                with suppress(pynvml.NVMLError):
                    capability = ".".join(map(str, pynvml.nvmlDeviceGetCudaComputeCapability(handle)))
                name = _text(pynvml.nvmlDeviceGetName(handle))
                gpu = GpuDescription(index, name, memory_bytes, capability, driver, ("nvml",))
                descriptions.append((gpu, _text(pynvml.nvmlDeviceGetUUID(handle))))
        finally:
            pynvml.nvmlShutdown()
    return descriptions


def _text(value: str | bytes) -> str:
    """Older nvidia-ml-py gives bytes."""
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)


_SERIES = {32: "4", 34: "5", 35: "5", 36: "6", 38: "7", 39: "7"}
"""L4T's major release -> JetPack's (https://developer.nvidia.com/embedded/jetpack-archive)."""
_NO_BOARD = "linux,dummy-virt"
"""Name of the board in virtual machines on Arm."""


def board(tree: Tree) -> str | None:
    """Return the model in the device tree, such as `Raspberry Pi 5 Model B Rev 1.0`."""
    model = tree.text("proc/device-tree/model") or tree.text("sys/firmware/devicetree/base/model")
    return None if model == _NO_BOARD else model


def jetson(tree: Tree) -> JetsonDescription | None:
    """Return L4T's release, JetPack and power mode; None on any other box."""
    release = re.match(r"#\s*R(\d+)\s*\(release\),\s*REVISION:\s*([\d.]+)", tree.text("etc/nv_tegra_release") or "")
    if release is None:
        return None
    return JetsonDescription(
        l4t=f"{release[1]}.{release[2]}",
        jetpack=_installed_jetpack(tree) or _SERIES.get(int(release[1])),
        power_mode=_power_mode(tree),
    )


def _installed_jetpack(tree: Tree) -> str | None:
    """Return the exact version of the package `nvidia-jetpack`, which not every box has."""
    for package in (tree.text("var/lib/dpkg/status") or "").split("\n\n"):
        if package.startswith("Package: nvidia-jetpack\n"):
            version = re.search(r"^Version: (\d+(?:\.\d+)*)", package, re.MULTILINE)
            return version[1] if version else None
    return None


def _power_mode(tree: Tree) -> str | None:
    """Return the name of nvpmodel's last mode, or its number if the name is unknown."""
    mode = re.search(r"pmode:(\d+)", tree.text("var/lib/nvpmodel/status") or "")
    if mode is None:
        return None
    modes = tree.text("etc/nvpmodel.conf") or ""
    name = re.search(rf"<\s*POWER_MODEL\s+ID={int(mode[1])}\s+NAME=(\S+?)\s*>", modes)
    return name[1] if name else f"mode {int(mode[1])}"


def describe(root: str | os.PathLike[str] = "/", *, libraries: bool = True) -> BoxDescription:
    """Describe the box whose `/proc` and `/sys` lie under `root`.

    Another root than `/` is a recorded tree, to which the libraries and GPUs of this process do not belong. `libraries`:
    load torch and NVML to find the GPUs, which takes seconds; versions are included anyway.
    """
    tree = Tree.at(root)
    cpus = processor.processors(tree)
    allowed = system_files.allowed_cpus(tree)
    known: dict[str, Any] = {
        "machine": processor.machine(cpus) or "unknown",
        "system": _system(tree),
        "cpu_model": processor.cpu_model(cpus),
        "board": board(tree),
        "physical_cores": processor.physical_cores(tree, cpus),
        "logical_cores": len(cpus) or None,
        "allowed_cpus": allowed,
        "allowed_cores": len({one.core for one in logical_cpus(tree, allowed)}) or None,
        "cpu_quota": system_files.cpu_quota(tree),
        "simd": processor.simd(cpus),
        "memory_bytes": _memory(tree, "MemTotal"),
        "memory_available_bytes": _memory(tree, "MemAvailable"),
        "memory_limit_bytes": system_files.memory_limit_bytes(tree),
        **processor.clocks(tree, cpus),
        "on_battery": processor.on_battery(tree),
        "load_average": _load_average(tree),
        "virtualisation": processor.virtualisation(tree, cpus),
        "jetson": jetson(tree),
    }
    if tree.is_this_box:
        known |= {"machine": platform.machine(), "versions": versions()}
        known |= {name: value for name, value in _system_facts().items() if known[name] is None}
        if libraries:
            known["gpus"] = gpus()
    return BoxDescription(**known)


def _system(tree: Tree) -> str:
    if tree.is_this_box:
        return f"{platform.system()} {platform.release()}"
    words = (tree.text("proc/version") or "").split()
    return f"{words[0]} {words[2]}" if len(words) > 2 else "unknown"


def _memory(tree: Tree, name: str) -> int | None:
    for line in (tree.text("proc/meminfo") or "").splitlines():
        key, _, value = line.partition(":")
        if key == name and value.split()[:1] and value.split()[0].isdecimal():
            return int(value.split()[0]) * 1024
    return None


def _load_average(tree: Tree) -> tuple[float, float, float] | None:
    try:
        one, five, fifteen = map(float, (tree.text("proc/loadavg") or "").split()[:3])
    except ValueError:
        return None
    return (one, five, fifteen) if isfinite(one + five + fifteen) else None


def _system_facts() -> dict[str, object]:
    """Return the facts that Python knows of systems without /proc."""
    facts: dict[str, object] = {"cpu_model": platform.processor() or None, "logical_cores": os.cpu_count()}
    with suppress(OSError, AttributeError, ValueError):  # Windows has neither
        facts["load_average"] = os.getloadavg()
        facts["memory_bytes"] = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return facts


def describe_machine() -> str:
    """Return processor, usable CPUs and system of this box in one line."""
    box = describe(libraries=False)
    return f"{box.cpu_model or box.machine}, {box.usable_cpus} CPUs, {box.system}"
