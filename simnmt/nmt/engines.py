"""The engines by backend: how one is loaded, and which compute types it offers on a device."""

from __future__ import annotations

from typing import TYPE_CHECKING

from simnmt.base.packages import install_command
from simnmt.nmt.devices import full_device_name
from simnmt.nmt.errors import NmtError

if TYPE_CHECKING:
    from simnmt.nmt.engine import ServingEngine
    from simnmt.nmt.pretrained_tokenizer import Languages
    from simnmt.profile.decoder_settings import DecoderSettings

BACKENDS = ("torch", "ctranslate2", "sharp")


def supported_types(backend: str, device: str) -> list[str]:
    """Return the compute types that torch or CTranslate2 supports on a device ("cpu", "cuda:0"), default first.

    Raises `NmtError` if there is no such device, `ImportError` if a library is missing or does not load.
    """
    # Imported here, so that a missing library is reported only if its backend is asked for.
    if backend == "torch":
        from simnmt.nmt import torch_engine

        return torch_engine.supported_types(device)
    from simnmt.nmt import ctranslate2_engine

    return ctranslate2_engine.supported_types(device)


def load_engine(
    model: str,
    *,
    backend: str = "torch",
    device: str = "cpu",
    threads: int | None = None,
    compute_type: str | None = None,
    seed: int = 0,
    fused: bool = False,
    vocabulary: str | None = None,
    direction: str | None = None,
    decoder: DecoderSettings | None = None,
    languages: Languages | None = None,
) -> ServingEngine:
    """Load a model onto a device.

    Args:
        model: a name, file or folder; see `EngineRequest.model`.
        backend: one of `BACKENDS`.
        device, threads, compute_type, seed, fused, vocabulary, direction, decoder, languages: see `EngineRequest`.

    Raises `NmtError` for a model that cannot be read, and for options that this machine or the backend does not support.
    """
    from simnmt.nmt.engine import EngineRequest  # needs numpy, which `supported_types` must not

    if backend not in BACKENDS:
        raise NmtError(f"no backend {backend}", remedy=f"one of {', '.join(BACKENDS)}")
    full_device = full_device_name(device)
    if threads is not None and (threads < 1 or device != "cpu"):
        what = f"threads: {threads} where 1 is the least" if threads < 1 else f"threads are of the CPU, not of {device}"
        raise NmtError(what, remedy="leave threads out")
    if decoder is not None and backend != "sharp":
        raise NmtError(f"a decoder's settings are of the sharp backend, not of {backend}", remedy="leave decoder out")
    if fused and backend != "torch":
        raise NmtError(f"the fused output layer is torch's, not of {backend}", remedy="leave fused out")
    if direction is not None and (backend != "torch" or vocabulary is None):
        what = f"direction {direction} where there is no bundle of clusters"
        raise NmtError(what, remedy="leave direction out")
    request = EngineRequest(
        model=model,
        device=full_device,
        threads=threads,
        compute_type=compute_type,
        seed=seed,
        fused=fused,
        vocabulary=vocabulary,
        direction=direction,
        decoder=decoder,
        languages=languages,
    )
    try:
        # Imported here: only the backend that is loaded needs its library.
        if backend == "torch":
            from simnmt.nmt.torch_engine import TorchEngine

            return TorchEngine.load(request)
        if backend == "sharp":
            from simnmt.nmt.sharp_engine import SharpEngine

            return SharpEngine.load(request)
        from simnmt.nmt.ctranslate2_engine import CTranslate2Engine

        return CTranslate2Engine.load(request)
    except ModuleNotFoundError as error:
        extra = error.name if error.name == "ctranslate2" else "models"
        raise NmtError(f"{error.name} is not installed", remedy=install_command(extra)) from None
