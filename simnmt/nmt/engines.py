"""The engines by backend: loading one, and which compute types it offers on a device."""

from __future__ import annotations

from typing import TYPE_CHECKING

from simnmt.nmt.devices import full_device_name
from simnmt.nmt.errors import NmtError

if TYPE_CHECKING:
    from simnmt.nmt.engine import Engine
    from simnmt.profile.decoder_settings import DecoderSettings

BACKENDS = ("torch", "ctranslate2", "sharp")


def supported_types(backend: str, device: str) -> list[str]:
    """Compute types that `load_engine` takes for a backend and a device ("cpu", "cuda:0"), the default first.

    Raises `NmtError` where there is no such device, `ImportError` where a library is missing or does not load.
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
) -> Engine:
    """Load a model onto a device.

    `model`: a name (bilstm, gru, gru-512, marian, sharp, sharp-s1 to sharp-s7), an architecture file (YAML or JSON), a folder
    that `simnmt nmt train` wrote, or a Hugging Face Marian folder; the first two get random weights drawn from `seed`.
    `device`: cpu, cuda or cuda:0. `threads`: of one operation on the CPU, all cores by default; sharp runs on one all the same.
    `compute_type`: float32 by default; torch on the CPU has also bfloat16 and float16_weights, torch on a GPU bfloat16 and
    float16, CTranslate2 what it says it supports of int8, int16, bfloat16 and float16, sharp int16. `fused`: torch decodes with
    the fused output layer. `vocabulary`: a bundle of this model's, whose columns alone are multiplied, of one `direction` where
    it has several; only torch takes one of clusters. Which columns hangs on the text, so that made-up sources have others than
    real ones. `decoder`: how sharp decodes, the beam aside, which is the work's; the paper's baseline by default. Raises
    `NmtError` where the model cannot be read, or this machine lacks what is asked for.
    """
    if backend not in BACKENDS:
        raise NmtError(f"no backend {backend}", remedy=f"one of {', '.join(BACKENDS)}")
    place = full_device_name(device)
    if threads is not None and (threads < 1 or device != "cpu"):
        what = f"threads: {threads} where 1 is the least" if threads < 1 else f"threads are of the CPU, not of {device}"
        raise NmtError(what, remedy="leave threads out")
    if decoder is not None and backend != "sharp":
        raise NmtError(f"a decoder's settings are of the sharp backend, not of {backend}", remedy="leave decoder out")
    if fused and backend != "torch":
        raise NmtError(f"the fused output layer is torch's, not of {backend}", remedy="leave fused out")
    if direction is not None and (backend != "torch" or vocabulary is None):
        raise NmtError(f"direction {direction} where there is no bundle of clusters", remedy="leave direction out")
    from simnmt.nmt.engine import EngineRequest  # needs numpy, which `supported_types` must not

    request = EngineRequest(model, place, threads, compute_type, seed, fused, vocabulary, direction, decoder)
    try:
        # Imported here: only the backend that is loaded needs its library.
        if backend == "torch":
            from simnmt.nmt.torch_engine import load_torch_engine

            return load_torch_engine(request)
        if backend == "sharp":
            from simnmt.nmt.sharp_engine import load_sharp_engine

            return load_sharp_engine(request)
        from simnmt.nmt.ctranslate2_engine import load_ctranslate2_engine

        return load_ctranslate2_engine(request)
    except ModuleNotFoundError as error:
        extra = "ctranslate2" if error.name == "ctranslate2" else "models"
        raise NmtError(f"{error.name} is not installed", remedy=f"pip install 'simnmt[{extra}]'") from None
