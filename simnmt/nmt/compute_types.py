"""Which compute types a backend offers on a device: what its engine takes, for those who only want to know."""

from __future__ import annotations


def supported_types(backend: str, device: str) -> list[str]:
    """Compute types that `load_engine` takes for a backend and a device ("cpu", "cuda:0"), the default first.

    Raises `NmtError` where there is no such device, `ImportError` where a library is missing or does not load.
    """
    # Here, so that asking costs no library before it is asked of.
    if backend == "torch":
        from simnmt.nmt import torch_engine

        return torch_engine.supported_types(device)
    from simnmt.nmt import ctranslate2_engine

    return ctranslate2_engine.supported_types(device)
