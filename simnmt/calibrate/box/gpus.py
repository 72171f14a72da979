"""GPUs, as torch and NVML see them. Untested on a box that has one."""

from __future__ import annotations

import warnings
from contextlib import suppress
from typing import Any

from simnmt.calibrate.box.description import GpuDescription


def gpus() -> tuple[GpuDescription, ...]:
    """Every GPU of this box, torch's numbers first; those that torch does not see follow with NVML's."""
    by_nvml = nvml_gpus()
    found = []
    for gpu, uuid in torch_gpus():
        same = next((other for other, its_uuid in by_nvml if uuid is not None and uuid in its_uuid), None)
        if same is not None:
            by_nvml = [(other, its_uuid) for other, its_uuid in by_nvml if other is not same]
            gpu = GpuDescription(
                gpu.index, gpu.name, gpu.memory_bytes, gpu.compute_capability, same.driver, (*gpu.seen_by, *same.seen_by)
            )
        found.append(gpu)
    return (*found, *(gpu for gpu, _ in by_nvml))


def torch_gpus() -> list[tuple[GpuDescription, str | None]]:
    """GPUs that torch can compute on, each with its UUID where this torch tells it; none without torch."""
    found: list[tuple[GpuDescription, str | None]] = []
    # A driver that does not fit, a library that cannot be loaded: whatever the reason, there is no GPU to measure.
    with suppress(Exception), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import torch

        for index in range(torch.cuda.device_count() if torch.cuda.is_available() else 0):
            properties: Any = torch.cuda.get_device_properties(index)
            capability = f"{properties.major}.{properties.minor}"
            gpu = GpuDescription(index, properties.name, properties.total_memory, capability, seen_by=("torch",))
            uuid = getattr(properties, "uuid", None)
            found.append((gpu, None if uuid is None else str(uuid)))
    return found


def nvml_gpus() -> list[tuple[GpuDescription, str]]:
    """GPUs that NVIDIA's driver reports, each with its UUID; none without driver or nvidia-ml-py."""
    found: list[tuple[GpuDescription, str]] = []
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
                found.append((gpu, _text(pynvml.nvmlDeviceGetUUID(handle))))
        finally:
            pynvml.nvmlShutdown()
    return found


def _text(value: str | bytes) -> str:
    """Older nvidia-ml-py gives bytes."""
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)
