"""What the installed libraries can compute with. GPU paths are untested on a box that has one."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from importlib import import_module
from types import ModuleType
from typing import Any

from simnmt.calibrate.box import BoxDescription
from simnmt.calibrate.finding import Finding
from simnmt.nmt.compute_types import supported_types


def torch_finding(box: BoxDescription) -> Iterator[Finding]:
    """Compute types of the torch engine by device, where a small product comes out right."""
    torch = loaded("torch")
    if isinstance(torch, str):
        remedy = "pip install 'simnmt[models]'; on a Jetson NVIDIA's own torch, see docs/boxes.md"
        yield Finding("cannot", "torch", _unusable("torch", torch, box), remedy)
        return
    devices = ["cpu", *(f"cuda:{gpu.index}" for gpu in box.gpus if "torch" in gpu.seen_by)]
    for device in devices:
        if not _computes(torch, device):
            yield Finding("cannot", "torch", f"torch {torch.__version__} computes nothing on {device}", "install another build")
            continue
        yield _types("torch", f"torch {torch.__version__}", device)
    if "transformers" not in box.versions:
        what = "transformers is not installed: no Marian, recurrent models alone"
        yield Finding("cannot", "torch", what, "pip install 'simnmt[models]'")


def ctranslate2_finding(box: BoxDescription) -> Iterator[Finding]:
    """Compute types of the CTranslate2 engine by device."""
    library = loaded("ctranslate2")
    if isinstance(library, str):
        yield Finding("cannot", "ctranslate2", _unusable("ctranslate2", library, box), "pip install 'simnmt[ctranslate2]'")
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
        remedy = "pip install 'simnmt[models]'"
        return Finding("cannot", backend, f"{title} on {device}: the engine needs {error.name}, which is not installed", remedy)
    except Exception as error:  # each backend has errors of its own
        return Finding("cannot", backend, f"{title} on {device}: {_line(error)}")
    return Finding("can", backend, f"{title} on {device}: {', '.join(types)}")


def gpu_finding(box: BoxDescription) -> Iterator[Finding]:
    """The GPUs, and why torch does not see those that are there."""
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
    """The library; where it does not load, why."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return import_module(name)
    except Exception as error:  # not installed, a shared library missing, built for another numpy
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
        return "install NVIDIA's torch for this JetPack, and keep pip from replacing it: docs/boxes.md"
    torch = loaded("torch")
    if isinstance(torch, str):
        return "pip install 'simnmt[models]'"
    if torch.version.cuda is None:
        return "this torch is built for CPUs alone: install a build for CUDA, see pytorch.org/get-started"
    return (
        f"this torch is built for CUDA {torch.version.cuda}: see that the driver is new enough and CUDA_VISIBLE_DEVICES unset"
    )


def _line(error: Exception) -> str:
    return next(iter(str(error).splitlines()), "") or type(error).__name__
