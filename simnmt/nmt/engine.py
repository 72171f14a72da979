"""The interface of an engine: a loaded model that runs a given amount of work and measures its time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, Any, Literal, Protocol

from simnmt.nmt.architecture import Architecture
from simnmt.nmt.errors import NmtError

if TYPE_CHECKING:  # asking what a box can do must work without numpy
    from simnmt.kernels.packed_products import Clipping
    from simnmt.profile.decoder_settings import DecoderSettings


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
class EngineRequest:
    """What an engine is loaded for; see `engines.load_engine`."""

    model: str
    device: str
    """cpu or cuda:0."""
    threads: int | None = None
    compute_type: str | None = None
    seed: int = 0
    fused: bool = False
    vocabulary: str | None = None
    direction: str | None = None
    decoder: DecoderSettings | None = None

    def supported_type(self, library: str, supported: Sequence[str]) -> str:
        """The compute type, float32 by default. Raises `NmtError` for one that the library lacks on this device."""
        compute_type = self.compute_type or "float32"
        if compute_type not in supported:
            raise NmtError(f"no {compute_type} with {library} on this {self.device}", remedy=f"one of {', '.join(supported)}")
        return compute_type


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


def random_sources(work: Work, architecture: Architecture, seed: int) -> list[list[int]]:
    """Source tokens of a batch, the same at each call: any but padding, each sentence's end token last."""
    draw = Random(seed)
    vocab, pad, eos = architecture.src_vocab, architecture.pad_token, architecture.eos_token
    body = [[draw.randrange(vocab) for _ in range(work.src_len - 1)] for _ in range(work.batch)]
    return [[architecture.unk_token if token == pad else token for token in tokens] + [eos] for tokens in body]
