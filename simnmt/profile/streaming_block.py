"""Costs of streaming a model in shards (STI-01, 05), and the profile's block `sti` that gives them (STI-07 to STI-09)."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate
from math import inf
from typing import Annotated, Literal

from pydantic import ConfigDict, Field, model_validator

from simnmt.profile.blocks import (
    HELDOUT,
    MEGA,
    MS,
    NOTE,
    PERCENT,
    Block,
    Count,
    Duration,
    Kind,
    NotNegative,
    Positive,
    Quantiles,
    RSquared,
    Share,
    Shown,
)
from simnmt.profile.cost import Seconds

BITS = (2, 3, 4, 5, 6, 32)
"""Fidelities of a shard: indices into a dictionary of centroids, and the weights themselves."""


@dataclass(frozen=True, slots=True)
class ShardGeometry:
    """Layers of Transformer weights cut into one shard per head: the head and its share of the feed-forward neurons (STI-01).

    Raises `ValueError` if the heads do not divide the width and the neurons.
    """

    __pydantic_config__ = ConfigDict(extra="forbid")

    layers: int
    heads: int
    """Shards of a layer."""
    width: int
    ffn: int
    """Feed-forward neurons of a layer."""
    cross_attention: bool = False
    """True for the layers of a decoder, which have a second attention."""

    def __post_init__(self) -> None:
        for name in ("layers", "heads", "width", "ffn"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name}: {getattr(self, name)} is not positive")
        if self.width % self.heads or self.ffn % self.heads:
            raise ValueError(f"width, ffn: {self.width} or {self.ffn} does not divide by {self.heads} heads")

    def __str__(self) -> str:
        return f"{self.layers} layers of {self.heads} shards, {self.width} x {self.ffn}"

    @property
    def weights_per_shard(self) -> int:
        """Four matrices of width x head size per attention, and the share of both feed-forward ones."""
        attentions = 2 if self.cross_attention else 1
        return (4 * attentions * self.width + 2 * self.ffn) * self.width // self.heads

    @property
    def weights_per_layer(self) -> int:
        """Weights of all shards of a layer, without biases and layer norms, which stay in memory."""
        return self.heads * self.weights_per_shard

    @property
    def float32_bytes_per_layer(self) -> int:
        """The working buffer of an executor that computes all shards (STI-16)."""
        return 4 * self.weights_per_layer

    def index_bytes(self, bits: int) -> int:
        """Return the bytes of a shard's packed indices, or of its weights at 32 bits."""
        return -(-self.weights_per_shard * bits // 8)

    def dictionary_bytes(self, bits: int) -> int:
        """Return the bytes of a shard's dictionary, 4 for each centroid; 0 at 32 bits."""
        return 0 if bits == 32 else 4 << bits


BERT_BASE = ShardGeometry(layers=12, heads=12, width=768, ffn=3072)
Shard = tuple[int, int]
"""(layer, slice), both from 0; the numbers of a decoder's layers follow its encoder's."""


@dataclass(slots=True)
class TokenBucket:
    """Reads that queue at one rate: between any two moments, they take at most the rate times the time between them."""

    rate_bytes_per_s: float
    _empty_s: float = field(default=-inf, init=False, repr=False)
    """Time at which the last read may end."""

    def end_s(self, begin_s: float, size_bytes: float) -> float:
        """Return when a read of `size_bytes` that begins at `begin_s` may end; reads queue in the order of the calls."""
        self._empty_s = max(self._empty_s, begin_s) + size_bytes / self.rate_bytes_per_s
        return self._empty_s


@dataclass(frozen=True, slots=True)
class DecoderShards:
    """Times of the decoder's half of an encoder-decoder model, in seconds; tuples are by 1, 2, ... shards a layer."""

    geometry: ShardGeometry
    io_s: Mapping[int, float]
    """To read one shard, by bits."""
    shard_bytes: Mapping[int, int]
    """Mean record of a shard, by bits."""
    step_s: tuple[float, ...]
    """Seconds of one layer for one token."""
    once_s: tuple[float, ...] = ()
    """Seconds of one layer once per request: unpacking, keys and values of the source; empty: 0."""


@dataclass(frozen=True, slots=True)
class StiCost:
    """Times of a streamed model for a planner, in seconds; tuples are by 1, 2, ... shards a layer.

    Times are positive, more bits take no less time and memory, and each bitwidth of `BITS` has its entry (`StiBlock.cost`).
    """

    geometry: ShardGeometry
    io_s: Mapping[int, float]
    """Seconds to read one shard from a cold disk, by bits: T_io."""
    comp_s: Mapping[int, tuple[float, ...]]
    """By padded length in tokens: one layer, unpacking included: T_comp."""
    shard_bytes: Mapping[int, int]
    """Mean record of a shard, by bits."""
    decoder: DecoderShards | None = None
    importance: tuple[Shard, ...] | None = None
    """Every shard once, best first, the decoder's too; None: not measured."""
    embed_s: Mapping[int, float] = field(default_factory=dict)
    """Before the first layer, while the disk reads, by the padded lengths of `comp_s`; empty: 0."""
    head_s: float = 0.0
    """After the last layer: of an encoder once, to classify; of a decoder in every step, to choose a word."""
    slowed: tuple[float, ...] = ()
    """Factors, 1 or more, on computing while the disk reads, which uses the same memory and cores; empty: 1."""

    @property
    def layers(self) -> int:
        """Layers of encoder and decoder together."""
        return self.geometry.layers + (0 if self.decoder is None else self.decoder.geometry.layers)

    def all_shards(self) -> tuple[Shard, ...]:
        """Return all shards in the order of layers and, within a layer, of slices."""
        return tuple((layer, piece) for layer in range(self.layers) for piece in range(self.geometry.heads))

    def t_io(self, bits: int, layer: int = 0) -> float:
        """Return the seconds to read one shard of that layer."""
        return self._half(layer).io_s[bits]

    def bytes_of(self, bits: int, layer: int = 0) -> int:
        """Return the bytes of one shard of that layer, on disk and in the preload buffer."""
        return self._half(layer).shard_bytes[bits]

    def _half(self, layer: int) -> StiCost | DecoderShards:
        return self if self.decoder is None or layer < self.geometry.layers else self.decoder

    def t_comp(self, length: int, slices: int) -> float:
        """Return the seconds of one encoder layer of `slices` shards over `length` tokens.

        Inputs are padded to the next measured length; beyond the greatest, the time grows in proportion to the length.
        """
        padded, factor = self._padded(length)
        return self.comp_s[padded][slices - 1] * factor

    def t_embed(self, length: int) -> float:
        """Return the seconds before the first layer, with `length` padded as in `t_comp`."""
        padded, factor = self._padded(length)
        return self.embed_s.get(padded, 0.0) * factor

    def _padded(self, length: int) -> tuple[int, float]:
        lengths = sorted(self.comp_s)
        padded = lengths[min(bisect_left(lengths, length), len(lengths) - 1)]
        return padded, max(1.0, length / padded)

    def step_s(self, slices: int) -> float:
        """Return the seconds of one decoder layer for one token; 0 without a decoder."""
        return 0.0 if self.decoder is None else self.decoder.step_s[slices - 1]

    def once_s(self, slices: int) -> float:
        """Return the seconds of one decoder layer once per request; 0 without a decoder."""
        return self.decoder.once_s[slices - 1] if self.decoder is not None and self.decoder.once_s else 0.0

    def slowing(self, slices: int) -> float:
        """Return the factor by which reads slow layers of `slices` shards."""
        return self.slowed[slices - 1] if self.slowed else 1.0


LogLikelihood = Annotated[float, Field(ge=-1e9, le=0.0)]
ByWidth = Annotated[tuple[Duration, ...], Field(min_length=1)]
"""Seconds, one value for each number of shards a layer, from 1 to all of them."""
Slowing = Annotated[tuple[Annotated[float, Field(ge=1.0, le=100.0)], ...], Field(min_length=1)]


class ShardReads(Quantiles):
    """Cold reads of single shards of one bitwidth; `bytes` is the mean record."""

    bytes: Count
    bits: Literal[2, 3, 4, 5, 6, 32]

    def __str__(self) -> str:
        return f"{self.bits} bits {1e3 * self.median_s:.4g} ms"


Reads = Annotated[tuple[ShardReads, ...], Shown()]
"""By bits, rising: 2, 3, 4, 5, 6, 32."""


class StiIo(Block):
    """T_io: time to read one shard, by bits (STI-07)."""

    reads: Reads
    s_fixed: Annotated[Seconds, Shown("line {:.4g} ms", MS)]
    bytes_per_s: Annotated[Positive, Shown("+ bytes / {:.4g} MB/s", MEGA)]
    """Of the line s_fixed + bytes / bytes_per_s over the medians."""
    r2: Annotated[RSquared | None, Shown("R2 {:.4f}")] = None
    cold: Annotated[bool, Shown("cold")]
    """True if the page cache held nothing of what was read."""
    paced_bytes_per_s: Annotated[Positive | None, Shown("paced to {:.4g} MB/s", MEGA)] = None
    """Rate of a slower storage that was imitated."""


class LayerTimes(Block):
    """T_comp of one padded length: unpacking m shards at 6 bits and the layer's forward pass (STI-08)."""

    length: Annotated[int, Field(ge=1, le=10**6)]
    """Tokens, padding included."""
    seconds: ByWidth
    """Medians."""
    p25_s: ByWidth | None = None
    p75_s: ByWidth | None = None
    unpack_s: ByWidth | None = None
    """Medians of the part that unpacks."""
    embed_s: Seconds = 0.0
    """Before the first layer; not part of T_comp."""
    head_s: Seconds = 0.0
    """To classify after the last layer; not part of T_comp."""

    def __str__(self) -> str:
        return f"{self.length} tokens {1e3 * self.seconds[0]:.4g} to {1e3 * self.seconds[-1]:.4g} ms by shards"


class StiCompute(Block):
    """T_comp over padded lengths and shards a layer."""

    lengths: Annotated[tuple[LayerTimes, ...], Field(min_length=1), Shown()]
    """By length, rising."""
    heldout_error: Annotated[NotNegative | None, HELDOUT] = None
    """Mean absolute relative error of n T_comp(l, m) on whole submodels in memory, which were timed only for this."""
    slowed_by_reads: Annotated[Slowing | None, Shown("{:.3g} times as long beside reads")] = None
    """Factors on the seconds of layers of 1, 2, ... shards while the disk reads, whose copies and pages use the same memory and
    cores; null: 1."""


class StiDecoder(Block):
    """Times of an encoder-decoder's sharded decoder layers: self-attention, attention to the source, feed-forward."""

    reads: Reads
    layers: Annotated[int, Field(ge=1, le=1_000), Shown("{} layers")]
    step_s: ByWidth
    """Medians of one decoder layer for one token, unpacked in memory as float32."""
    once_s: ByWidth | None = None
    """Medians once per request: unpacking a layer's shards at 6 bits, keys and values of the source. Not in `step_s`."""
    output_s: Annotated[Seconds, Shown("choosing a word {:.4g} ms", MS)] = 0.0
    """Per step, to embed a token and multiply by the whole vocabulary; in no layer's time."""


class StiImportance(Block):
    """Scores of the model with one shard at 32 bits and all others at 2 bits (STI-09); shapes (layers, slices).

    A decoder's layers follow the encoder's.
    """

    task: Annotated[str, Shown()]
    """Name of the file with the examples."""
    task_sha256: str
    examples: Annotated[Count, Shown("{:,} examples")]
    majority: Annotated[Share | None, Shown("commonest class {:.1f} %", PERCENT)] = None
    """Share of the commonest class among the examples; null if unknown."""
    full_accuracy: Annotated[Share | None, Shown("all at 32 bits {:.1f} %", PERCENT)] = None
    """Accuracy with all shards at 32 bits; null if unknown."""
    base_accuracy: Annotated[Share, Shown("all at 2 bits {:.1f} %", PERCENT)]
    base_log_likelihood: LogLikelihood
    """Natural log of the right class's probability with all shards at 2 bits, mean over examples."""
    accuracy: tuple[tuple[Share, ...], ...]
    log_likelihood: tuple[tuple[LogLikelihood, ...], ...]

    @property
    def order(self) -> tuple[tuple[int, int], ...]:
        """Shards as (layer, slice), best first: by accuracy, then log-likelihood, then layer and slice."""
        shards = [(layer, slice_) for layer, row in enumerate(self.accuracy) for slice_ in range(len(row))]
        return tuple(sorted(shards, key=lambda at: (-self.accuracy[at[0]][at[1]], -self.log_likelihood[at[0]][at[1]], at)))


class StiBlock(Block):
    """One model's shards on one device's disk and processor."""

    kind: Annotated[Kind, Shown()]
    model: Annotated[str, Shown()]
    """Description of the sharded model."""
    fingerprint: str | None = None
    """SHA-256 of the model's weights, from its store; null if no store was read."""
    geometry: Annotated[ShardGeometry, Shown()]
    io: Annotated[StiIo, Shown("read")]
    compute: Annotated[StiCompute, Shown("layer")]
    decoder: Annotated[StiDecoder | None, Shown("decoder")] = None
    importance: Annotated[StiImportance | None, Shown("importance")] = None
    threads: Annotated[Count | None, Shown("threads: {}")] = None
    resident_bytes: Annotated[Count | None, Shown("{:,} bytes outside the shards")] = None
    """Float32 bytes that are in no shard: embeddings, norms, biases, head; null if unknown."""
    notes: Annotated[tuple[str, ...], NOTE] = ()

    @model_validator(mode="after")
    def _is_of_one_geometry(self) -> StiBlock:
        slices, decoder = self.geometry.heads, self.decoder
        lengths = [times.length for times in self.compute.lengths]
        if lengths != sorted(set(lengths)):
            raise ValueError("compute.lengths: values must rise")
        for place, half in (("io", self.io), ("decoder", decoder)):
            reads = () if half is None else half.reads
            sizes = [read.bytes for read in reads]
            if reads and (tuple(read.bits for read in reads) != BITS or sizes != sorted(set(sizes))):
                raise ValueError(f"{place}.reads: one entry for each of {BITS} bits is needed, whose bytes rise")
        for block in (*self.compute.lengths, self.compute, *([] if decoder is None else [decoder])):
            for name, value in block:
                if isinstance(value, tuple) and isinstance(value[0], float) and len(value) != slices:
                    raise ValueError(f"{name}: {len(value)} values where a layer has {slices} widths")
        if self.importance is not None:
            layers = self.geometry.layers + (0 if decoder is None else decoder.layers)
            for table in (self.importance.accuracy, self.importance.log_likelihood):
                if [len(row) for row in table] != [slices] * layers:
                    raise ValueError(f"importance: {layers} rows (layer) of {slices} (slice) are needed")
        return self

    def cost(self) -> StiCost:
        """Return T_io, T_comp, the times before and after the layers, and importance, ready for a planner."""
        times, decoder = self.compute.lengths, self.decoder
        io_s, shard_bytes = _by_bits(self.io.reads)
        half, head_s = None, sum(at.head_s for at in times) / len(times)
        if decoder is not None:
            geometry, head_s = replace(self.geometry, layers=decoder.layers, cross_attention=True), decoder.output_s
            half = DecoderShards(geometry, *_by_bits(decoder.reads), decoder.step_s, decoder.once_s or ())
        return StiCost(
            geometry=self.geometry,
            io_s=io_s,
            comp_s={at.length: at.seconds for at in times},
            shard_bytes=shard_bytes,
            decoder=half,
            importance=None if self.importance is None else self.importance.order,
            embed_s={at.length: at.embed_s for at in times},
            head_s=head_s,
            slowed=self.compute.slowed_by_reads or (),
        )


def _by_bits(reads: Sequence[ShardReads]) -> tuple[dict[int, float], dict[int, int]]:
    """Return T_io, the median or that of fewer bits if those took longer, and the mean record."""
    read_s = accumulate((read.median_s for read in reads), max)
    return dict(zip(BITS, read_s, strict=True)), {read.bits: read.bytes for read in reads}
