"""Engines: loaded models that run a given amount of work and measure its time, by backend."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from random import Random
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol

from simnmt.base.packages import install_command
from simnmt.nmt.architecture import Architecture
from simnmt.nmt.devices import full_device_name
from simnmt.nmt.errors import NmtError

if TYPE_CHECKING:  # `supported_types` must work without numpy
    from simnmt.batching import Batching
    from simnmt.batching.slots import SlotLimits
    from simnmt.kernels.packed_products import Clipping
    from simnmt.nmt.models import Loaded
    from simnmt.nmt.pretrained_tokenizer import Languages
    from simnmt.nmt.sentence_decoder import SentenceDecoder
    from simnmt.profile.decoder_settings import DecoderSettings

BACKENDS = {
    "torch": "simnmt.nmt.torch_engine:TorchEngine",
    "ctranslate2": "simnmt.nmt.ctranslate2_engine:CTranslate2Engine",
    "sharp": "simnmt.nmt.sharp_engine:SharpEngine",
}
"""Module and class of each engine, a `ServingEngine`; imported when used, since each needs a library of its own."""


@dataclass(frozen=True, slots=True)
class Work:
    """A batch of sentences of equal length to translate."""

    src_len: int
    """Source tokens of a sentence, its end included."""
    tgt_len: int
    """Target tokens that each sentence is forced to have: the number of decoder steps."""
    batch: int = 1
    """Sentences translated together."""
    beam: int = 1
    """Hypotheses per sentence; 1 is greedy search."""


@dataclass(frozen=True, slots=True)
class EngineRequest:
    """The model and the settings with which an engine is loaded."""

    model: str
    """A name (bilstm, gru, gru-512, marian, llama, sharp, sharp-s1 to sharp-s7), an architecture file (YAML or JSON), a folder
    that `simnmt nmt train` wrote, or a folder or id of Hugging Face. The first two get random weights."""
    device: str = "cpu"
    """cpu, cuda or cuda:0."""
    threads: int | None = None
    """CPU threads of one operation, all cores by default; sharp always runs on one."""
    compute_type: str | None = None
    """float32 by default; torch on the CPU also has bfloat16 and float16_weights, torch on a GPU bfloat16 and float16,
    CTranslate2 those of int8, int16, bfloat16 and float16 that it supports, sharp int16."""
    seed: int = 0
    """Seed of random weights and random sources."""
    fused: bool = False
    """Whether torch decodes with the fused output layer."""
    decoder: DecoderSettings | None = None
    """How sharp decodes, by default as the paper's baseline; the beam is that of the work."""
    languages: Languages | None = None
    """What torch translates from and to, for a folder or id of Hugging Face; None: sources and targets mean nothing."""


@dataclass(frozen=True, slots=True)
class Timing:
    """Seconds of the work, from token ids on the host to token ids on the host, the device synchronised."""

    total_s: float
    encode_s: float | None
    """Seconds of the encoder; None if the backend does not measure it."""
    steps_s: tuple[float, ...] | None
    """Seconds of the model's part of each decoder step; None if the backend does not measure it.

    The search between two steps (choosing tokens, reordering a beam's rows, bookkeeping) is only in `total_s`: the parts sum to
    less than the whole.
    """


@dataclass(frozen=True, slots=True)
class EngineAccount:
    """The model, backend and device of a measurement, for its record."""

    model: str
    """The name or path of the model."""
    architecture: dict[str, Any]
    weights: Literal["random", "checkpoint"]
    vocab: int
    """Target tokens."""
    backend: str
    compute_type: str
    device: str
    """cpu or cuda:0."""
    device_name: str
    threads: int | None
    """CPU threads of one operation; None on a GPU."""
    versions: dict[str, str]
    """Versions of the libraries that computed."""
    fused: bool = False
    """Whether bias, softmax and search were fused (FNI-03 to 06)."""
    decoder: dict[str, Any] | None = None
    """Settings of the sharp decoder without the beam, which is that of the work; None for other backends."""
    clipping: Clipping | None = None
    """Clipping of the sharp decoder's weights to 16 bits; None for other backends."""

    @classmethod
    def of(cls, loaded: Loaded[Any], **run: Any) -> EngineAccount:
        """Return the account of a loaded model; `run`: the fields that the model does not determine."""
        architecture = loaded.architecture
        return cls(loaded.name, architecture.model_dump(mode="json"), loaded.weights, architecture.tgt_vocab, **run)


class Engine(Protocol):
    """A loaded model that runs work and measures its time."""

    @property
    def account(self) -> EngineAccount:
        """The model, backend and device."""

    def run(self, work: Work) -> Timing:
        """Do the work once.

        Raises `OutOfMemory`, after which the engine is still usable, and `NmtError` for lengths beyond the model's.
        """

    def close(self) -> None:
        """Free memory; no run afterwards."""


class ServingEngine(Engine, Protocol):
    """An engine of a backend, which can also translate sentences as they arrive."""

    takes: ClassVar[frozenset[str]]
    """Of the fields `fused`, `decoder` and `languages` of `EngineRequest` those that it follows."""

    @classmethod
    def load(cls, request: EngineRequest) -> ServingEngine:
        """Load an engine for a request that `load_engine` has checked. Raises `NmtError`."""

    @staticmethod
    def supported_types(device: str) -> list[str]:
        """Return the compute types supported on a device, the default first. Raises `NmtError` for a missing device."""

    def sentence_decoder(self, batching: Batching | SlotLimits, beam: int, *, scored: bool = False) -> SentenceDecoder:
        """Return a decoder of single sentences that arrive over time; `scored`: with scores of greedy search.

        Raises `NmtError` for a batching that it cannot do, and if it computes no scores.
        """


def supported_types(backend: str, device: str) -> list[str]:
    """Return the compute types that a backend supports on a device ("cpu", "cuda:0"), default first.

    Raises `NmtError` if there is no such device, `ImportError` if a library is missing or does not load.
    """
    return _engine_class(backend).supported_types(device)


def load_engine(model: str, *, backend: str = "torch", **settings: Any) -> ServingEngine:
    """Load a model onto a device; `settings`: the other fields of `EngineRequest`.

    Raises `NmtError` for a model that cannot be read, and for options that this machine or the backend does not support.
    """
    request = EngineRequest(model, **settings | {"device": full_device_name(settings.get("device", "cpu"))})
    if backend not in BACKENDS:
        raise NmtError(f"no backend {backend}", remedy=f"one of {', '.join(BACKENDS)}")
    if request.threads is not None and (request.threads < 1 or request.device != "cpu"):
        raise NmtError(f"{request.threads} threads on {request.device}", remedy="give 1 or more, and only for cpu")
    try:
        engine = _engine_class(backend)
        for option in ("fused", "decoder", "languages"):
            if getattr(request, option) and option not in engine.takes:
                raise NmtError(f"the backend {backend} has no option {option}", remedy=f"leave {option} out")
        supported = engine.supported_types(request.device)
        if request.compute_type not in (None, *supported):
            what = f"no {request.compute_type} with {backend} on this {request.device}"
            raise NmtError(what, remedy=f"one of {', '.join(supported)}")
        return engine.load(request)
    except ModuleNotFoundError as error:
        extra = error.name if error.name == "ctranslate2" else "models"
        raise NmtError(f"{error.name} is not installed", remedy=install_command(extra)) from None


def _engine_class(backend: str) -> type[ServingEngine]:
    module, _, name = BACKENDS[backend].partition(":")
    engine: type[ServingEngine] = getattr(import_module(module), name)
    return engine


def random_sources(work: Work, architecture: Architecture, seed: int) -> list[list[int]]:
    """Draw the source tokens of a batch, equal at each call: any tokens but padding, with the end token last."""
    draw = Random(seed)
    vocab, pad, eos = architecture.src_vocab, architecture.pad_token, architecture.eos_token
    body = [[draw.randrange(vocab) for _ in range(work.src_len - 1)] for _ in range(work.batch)]
    return [[architecture.unk_token if token == pad else token for token in tokens] + [eos] for tokens in body]
