"""The interface of an engine: a loaded model that runs a given amount of work and measures its time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING, Any, Literal, Protocol

from simnmt.nmt.architecture import Architecture
from simnmt.nmt.errors import NmtError

if TYPE_CHECKING:  # `engines.supported_types` must work without numpy
    from simnmt.batching import Batcher, Batching, Encode, Join
    from simnmt.kernels.packed_products import Clipping
    from simnmt.nmt.models import LoadedModel
    from simnmt.nmt.pretrained_tokenizer import Languages
    from simnmt.profile.decoder_settings import DecoderSettings


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

    def __post_init__(self) -> None:
        for name in ("src_len", "tgt_len", "batch", "beam"):
            if getattr(self, name) < 1:
                raise NmtError(f"{name}: {getattr(self, name)} where 1 is the least")


@dataclass(frozen=True, slots=True)
class EngineRequest:
    """The model and the settings with which an engine is loaded; see `engines.load_engine`."""

    model: str
    """A name (bilstm, gru, gru-512, marian, sharp, sharp-s1 to sharp-s7), an architecture file (YAML or JSON), a folder that
    `simnmt nmt train` wrote, or a folder or id of Hugging Face. The first two get random weights."""
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
    vocabulary: str | None = None
    """A bundle of this model, whose columns only are multiplied; clusters need torch. The columns depend on the text, so that
    random sources have other columns than real ones."""
    direction: str | None = None
    """The set of a bundle of several clusters."""
    decoder: DecoderSettings | None = None
    """How sharp decodes, by default as the paper's baseline; the beam is that of the work."""
    languages: Languages | None = None
    """What torch translates from and to, for a folder or id of Hugging Face; None: sources and targets mean nothing."""

    def supported_type(self, library: str, supported: Sequence[str]) -> str:
        """Return the compute type, float32 by default. Raises `NmtError` if `library` does not support it on the device."""
        compute_type = self.compute_type or "float32"
        if compute_type not in supported:
            raise NmtError(f"no {compute_type} with {library} on this {self.device}", remedy=f"one of {', '.join(supported)}")
        return compute_type


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
    vocabulary: str | None = None
    """How the active columns were chosen: clustered or candidates; None for the whole vocabulary."""
    decoder: dict[str, Any] | None = None
    """Settings of the sharp decoder without the beam, which is that of the work; None for other backends."""
    clipping: Clipping | None = None
    """Clipping of the sharp decoder's weights to 16 bits; None for other backends."""

    @classmethod
    def of(cls, loaded: LoadedModel, **run: Any) -> EngineAccount:
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
        """Free memory and temporary files; may be called again."""


@dataclass(frozen=True, slots=True)
class DecodeRequest:
    """A sentence to translate."""

    source: Sequence[int]
    forced_len: int | None = None
    """The exact number of tokens, none of them the end; None: the sentence ends by itself."""
    max_len: int | None = None
    """Most tokens; None: the decoder's limit."""


@dataclass(frozen=True, slots=True)
class Hypothesis:
    """One translation."""

    tokens: tuple[int, ...]
    """Target tokens without the start token and without the end token."""
    score: float | None
    """Sum of natural log-probabilities, of the end token too, divided by (number of tokens) ** (length penalty). None if no
    scores were computed."""
    steps: int = field(default=0, compare=False)
    """Decode steps taken: greedy search takes one per token and one for the end; a beam runs on beyond its best."""


class ServingEngine(Engine, Protocol):
    """An engine that can also translate sentences as they arrive."""

    def sentence_decoder(self, batching: Batching, beam: int) -> SentenceDecoder:
        """Return a decoder of single sentences that arrive over time. Raises `NmtError` for a batching it cannot do."""


class SentenceDecoder(Protocol):
    """A decoder driven by a batcher: sentences arrive over time, and each call of `act` makes one move."""

    batcher: Batcher

    @property
    def busy(self) -> bool:
        """Whether a sentence waits or is active."""

    @property
    def active(self) -> int:
        """Number of sentences that take part in the next step."""

    def arrive(self, key: int, request: DecodeRequest, now_s: float = 0.0) -> None:
        """Add a sentence to those that wait; `now_s` by a clock of the caller."""

    def withdraw(self, key: int) -> bool:
        """Remove a sentence that no move has taken yet; return whether there was one."""

    def holds(self, key: int) -> bool:
        """Return whether a sentence waits or is active."""

    def act(self, now_s: float = 0.0) -> tuple[Encode | Join | None, list[tuple[int, Hypothesis]]]:
        """Make the next move, or take a step; return the move and the finished sentences.

        Raises `OutOfMemory` and `NmtError`, after which some sentences are gone and others go on.
        """


def random_sources(work: Work, architecture: Architecture, seed: int) -> list[list[int]]:
    """Draw the source tokens of a batch, equal at each call: any tokens but padding, with the end token last."""
    draw = Random(seed)
    vocab, pad, eos = architecture.src_vocab, architecture.pad_token, architecture.eos_token
    body = [[draw.randrange(vocab) for _ in range(work.src_len - 1)] for _ in range(work.batch)]
    return [[architecture.unk_token if token == pad else token for token in tokens] + [eos] for tokens in body]
