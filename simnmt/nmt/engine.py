"""A real model behind one face: so much work in, its measured time out. What calibration measures."""

from __future__ import annotations

import re
from dataclasses import dataclass
from random import Random
from typing import Any, Literal, Protocol

from simnmt.costs.decoder_settings import DecoderSettings
from simnmt.kernels.scales import Clipping
from simnmt.nmt.architecture import Architecture
from simnmt.nmt.errors import NmtError

BACKENDS = ("torch", "ctranslate2", "sharp")


@dataclass(frozen=True, slots=True)
class Work:
    """Sentences to translate, all of a batch alike."""

    src_len: int
    """Source tokens of a sentence, its end included."""
    tgt_len: int
    """Target tokens that each sentence is made to have: the number of decoder steps."""
    batch: int = 1
    """Sentences translated together."""
    beam: int = 1
    """Hypotheses kept a sentence; 1 is greedy."""

    def __post_init__(self) -> None:
        for name in ("src_len", "tgt_len", "batch", "beam"):
            if getattr(self, name) < 1:
                raise NmtError(f"{name}: {getattr(self, name)} where 1 is the least")


@dataclass(frozen=True, slots=True)
class Timing:
    """How long the work took, from token ids on the host to token ids on the host, the device synchronised."""

    total_s: float
    encode_s: float | None
    """The encoder's part; None where the backend cannot tell."""
    steps_s: tuple[float, ...] | None
    """The model's part of each decoder step; None where the backend cannot tell.

    What the search does between two steps (choosing tokens, reordering a beam's rows, bookkeeping) is in `total_s` alone: all
    parts sum to less than the whole.
    """


@dataclass(frozen=True, slots=True)
class EngineAccount:
    """What ran, for the record."""

    model: str
    """The name or path it was loaded by."""
    architecture: dict[str, Any]
    weights: Literal["random", "checkpoint"]
    vocab: int
    """Target tokens known."""
    backend: str
    compute_type: str
    device: str
    """cpu or cuda:0."""
    device_name: str
    threads: int | None
    """CPU threads of one operation; None on a GPU."""
    versions: dict[str, str]
    """Of the libraries that computed."""
    fused: bool = False
    """Whether bias, softmax and search were fused (FNI-03 to 06)."""
    vocabulary: str | None = None
    """What chose the part of it that steps multiplied: clustered or candidates; None for all of it."""
    decoder: dict[str, Any] | None = None
    """How the sharp decoder was written, its beam aside, which is the work's; None for other backends."""
    clipping: Clipping | None = None
    """Of the sharp decoder's weights in 16 bits; None for other backends."""


class Engine(Protocol):
    """A loaded model that runs work and times it."""

    @property
    def account(self) -> EngineAccount:
        """What runs."""

    def run(self, work: Work) -> Timing:
        """Do the work once. Raises `OutOfMemory`, then still usable, and `NmtError` for lengths beyond the model's."""

    def close(self) -> None:
        """Give back memory and temporary files; harmless when repeated."""


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
    if re.fullmatch(r"cpu|cuda(:\d+)?", device) is None:
        raise NmtError(f"no device {device}", remedy="cpu or cuda:0")
    if threads is not None and (threads < 1 or device != "cpu"):
        what = f"threads: {threads} where 1 is the least" if threads < 1 else f"threads are of the CPU, not of {device}"
        raise NmtError(what, remedy="leave threads out")
    if decoder is not None and backend != "sharp":
        raise NmtError(f"a decoder's settings are of the sharp backend, not of {backend}", remedy="leave decoder out")
    if fused and backend != "torch":
        raise NmtError(f"the fused output layer is torch's, not of {backend}", remedy="leave fused out")
    if direction is not None and (backend != "torch" or vocabulary is None):
        raise NmtError(f"direction {direction} where there is no bundle of clusters", remedy="leave direction out")
    place = "cuda:0" if device == "cuda" else device
    try:
        # Here, so that naming an engine's work needs no torch.
        if backend == "torch":
            from simnmt.nmt.torch_engine import load_torch_engine

            return load_torch_engine(
                model,
                device=place,
                threads=threads,
                compute_type=compute_type,
                seed=seed,
                fused=fused,
                vocabulary=vocabulary,
                direction=direction,
            )
        if backend == "sharp":
            from simnmt.nmt.sharp_engine import load_sharp_engine

            return load_sharp_engine(
                model, device=place, compute_type=compute_type, seed=seed, decoder=decoder, vocabulary=vocabulary
            )
        from simnmt.nmt.ctranslate2_engine import load_ctranslate2_engine

        return load_ctranslate2_engine(
            model, device=place, threads=threads, compute_type=compute_type, seed=seed, vocabulary=vocabulary
        )
    except ModuleNotFoundError as error:
        extra = "ctranslate2" if error.name == "ctranslate2" else "models"
        raise NmtError(f"{error.name} is not installed", remedy=f"pip install 'simnmt[{extra}]'") from None


def random_sources(work: Work, architecture: Architecture, seed: int) -> list[list[int]]:
    """Source tokens of a batch, the same at each call: any but padding, each sentence's end token last."""
    draw = Random(seed)
    vocab, pad, eos = architecture.src_vocab, architecture.pad_token, architecture.eos_token
    body = [[draw.randrange(vocab) for _ in range(work.src_len - 1)] for _ in range(work.batch)]
    return [[architecture.unk_token if token == pad else token for token in tokens] + [eos] for tokens in body]
