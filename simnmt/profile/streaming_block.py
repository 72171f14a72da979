"""The profile's block `sti`: reads, layer times and importance of a model streamed in shards (STI-07 to STI-09)."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Literal

from pydantic import Field, model_validator

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
    Length,
    Positive,
    ReadSample,
    RelativeError,
    RSquared,
    Share,
    Shown,
)
from simnmt.profile.cost import Seconds
from simnmt.profile.streaming_cost import BITS, DecoderShards, ShardGeometry, StiCost

LogLikelihood = Annotated[float, Field(ge=-1e9, le=0.0)]
Slowing = Annotated[float, Field(ge=1.0, le=100.0)]
Medians = Annotated[tuple[Duration, ...], Field(min_length=1)]
"""One value for each number of shards a layer, from 1 to all of them."""


class ShardReads(ReadSample):
    """Cold reads of single shards of one bitwidth; `bytes` is the mean record."""

    bits: Literal[2, 3, 4, 5, 6, 32]

    def __str__(self) -> str:
        return f"{self.bits} bits {1e3 * self.median_s:.4g} ms"


class _Reads(Block):
    reads: Annotated[tuple[ShardReads, ...], Shown()]
    """By bits, rising: 2, 3, 4, 5, 6, 32."""

    @model_validator(mode="after")
    def _every_bitwidth(self) -> _Reads:
        if tuple(read.bits for read in self.reads) != BITS:
            raise ValueError(f"reads: one entry for each of {', '.join(map(str, BITS))} bits, in this order, is needed")
        sizes = [read.bytes for read in self.reads]
        if sizes != sorted(set(sizes)):
            raise ValueError("reads: bytes must rise with the bits")
        return self

    @property
    def io_s(self) -> dict[int, float]:
        """T_io by bits, seconds: the median, or that of fewer bits if those took longer."""
        by_bits: dict[int, float] = {}
        for read in self.reads:
            by_bits[read.bits] = max(read.median_s, *by_bits.values(), 0.0)
        return by_bits

    @property
    def shard_bytes(self) -> dict[int, int]:
        """Mean record by bits."""
        return {read.bits: read.bytes for read in self.reads}


class StiIo(_Reads):
    """T_io: time to read one shard, by bits (STI-07)."""

    s_fixed: Annotated[Seconds, Shown("line {:.4g} ms", MS)]
    bytes_per_s: Annotated[Positive, Shown("+ bytes / {:.4g} MB/s", MEGA)]
    """Of the line s_fixed + bytes / bytes_per_s over the medians."""
    r2: Annotated[RSquared | None, Shown("R2 {:.4f}")] = None
    cold: Annotated[bool, Shown("cold")]
    """True if the page cache held nothing of what was read."""
    paced_bytes_per_s: Annotated[Positive | None, Shown("paced to {:.4g} MB/s", MEGA)] = None
    """Rate of a slower storage that was imitated."""
    file_system: str | None = None


class LayerTimes(Block):
    """T_comp of one padded length: unpacking m shards at 6 bits and the layer's forward pass (STI-08); seconds."""

    length: Annotated[int, Field(ge=1, le=10**6)]
    """Tokens, padding included."""
    seconds: Medians
    p25_s: Medians | None = None
    p75_s: Medians | None = None
    p95_s: Medians | None = None
    unpack_s: Medians | None = None
    """Medians of the part that unpacks."""
    embed_s: Seconds | None = None
    """Seconds before the first layer; not part of T_comp."""
    head_s: Seconds | None = None
    """Seconds to classify after the last layer; not part of T_comp."""

    def __str__(self) -> str:
        return f"{self.length} tokens {1e3 * self.seconds[0]:.4g} to {1e3 * self.seconds[-1]:.4g} ms by shards"


class StiCompute(Block):
    """T_comp over padded lengths and shards a layer."""

    lengths: Annotated[tuple[LayerTimes, ...], Field(min_length=1), Shown()]
    """By length, rising."""
    repeats: Count | None = None
    """Rounds; each times every layer of a model of every width and length."""
    heldout_error: Annotated[RelativeError | None, HELDOUT] = None
    """Mean absolute relative error of n T_comp(l, m) on whole submodels in memory, which were timed only for this."""
    heldout_how: Annotated[str | None, Shown("judged on {}")] = None
    slowed_by_reads: Annotated[tuple[Slowing, ...] | None, Field(min_length=1), Shown("{:.3g} times as long beside reads")] = (
        None
    )
    """Factors on the seconds of layers of 1, 2, ... shards while the disk reads, whose copies and pages use the same memory and
    cores; null: 1."""

    @model_validator(mode="after")
    def _comparable(self) -> StiCompute:
        lengths = [times.length for times in self.lengths]
        if lengths != sorted(set(lengths)):
            raise ValueError("lengths: values must rise")
        return self


class StiDecoder(_Reads):
    """Times of an encoder-decoder's sharded decoder layers: self-attention, attention to the source, feed-forward."""

    layers: Annotated[int, Field(ge=1, le=1_000), Shown("{} layers")]
    step_s: Medians
    """Median seconds of one decoder layer for one token, unpacked in memory as float32, by shards a layer."""
    p25_s: Medians | None = None
    p75_s: Medians | None = None
    once_s: Medians | None = None
    """Median seconds once per request: unpacking a layer's shards at 6 bits, keys and values of the source. Not in `step_s`."""
    output_s: Annotated[Seconds | None, Shown("choosing a word {:.4g} ms", MS)] = None
    """Seconds per step to embed a token and multiply by the whole vocabulary; in no layer's time."""
    src_len: Annotated[Length, Shown("under {} source tokens")]
    """Source tokens of the timed steps."""
    tgt_len: Annotated[Length, Shown("{} out")]
    """Target tokens before the timed step."""

    def cost(self, geometry: ShardGeometry) -> DecoderShards:
        """Return the times for a planner."""
        shards = replace(geometry, layers=self.layers, cross_attention=True)
        return DecoderShards(shards, io_s=self.io_s, shard_bytes=self.shard_bytes, step_s=self.step_s, once_s=self.once_s)


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
    """Accuracy with all shards at 2 bits."""
    base_log_likelihood: LogLikelihood
    """Natural log of the right class's probability with all shards at 2 bits, mean over examples."""
    accuracy: tuple[tuple[Share, ...], ...]
    log_likelihood: tuple[tuple[LogLikelihood, ...], ...]

    @property
    def evaluations(self) -> int:
        """Evaluations of the dev set: one for each shard, and one for the base."""
        return 1 + sum(map(len, self.accuracy))

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
    device_name: str = ""
    store_bytes: Annotated[Count | None, Shown("{:,} bytes of shards")] = None
    resident_bytes: Annotated[Count | None, Shown("{:,} bytes outside the shards")] = None
    """Float32 bytes that are in no shard: embeddings, norms, biases, head; null if unknown."""
    notes: Annotated[tuple[str, ...], NOTE] = ()

    @model_validator(mode="after")
    def _of_one_geometry(self) -> StiBlock:
        slices = self.geometry.heads
        layers = self.geometry.layers + (0 if self.decoder is None else self.decoder.layers)
        by_width = [(f"compute: length {times.length}", times) for times in self.compute.lengths]
        for place, block in (*by_width, ("compute", self.compute), ("decoder", self.decoder)):
            for name in ("seconds", "p25_s", "p75_s", "p95_s", "unpack_s", "slowed_by_reads", "step_s", "once_s"):
                values = getattr(block, name, None)
                if values is not None and len(values) != slices:
                    raise ValueError(f"{place}: {name}: {len(values)} values where a layer has {slices} widths")
        if self.importance is not None:
            for name in ("accuracy", "log_likelihood"):
                table = getattr(self.importance, name)
                if [len(row) for row in table] != [slices] * layers:
                    raise ValueError(f"importance.{name}: {layers} rows (layer) of {slices} (slice) are needed")
        return self

    def cost(self) -> StiCost:
        """Return T_io, T_comp, the times before and after the layers, and importance, ready for a planner.

        A length whose embedding was not timed gets the time of the nearest timed length.
        """
        lengths = [times.length for times in self.compute.lengths]
        timed = {times.length: times.embed_s for times in self.compute.lengths if times.embed_s is not None}
        return StiCost(
            geometry=self.geometry,
            io_s=self.io.io_s,
            comp_s={times.length: times.seconds for times in self.compute.lengths},
            shard_bytes=self.io.shard_bytes,
            decoder=None if self.decoder is None else self.decoder.cost(self.geometry),
            importance=None if self.importance is None else self.importance.order,
            embed_s={length: timed[min(timed, key=lambda other: abs(other - length))] for length in lengths} if timed else {},
            head_s=self._head_s(),
            slowed=self.compute.slowed_by_reads or (),
        )

    def _head_s(self) -> float:
        """Return the seconds to choose a word in each decoder step, or the class, mean over lengths; 0 if not measured."""
        if self.decoder is not None:
            return self.decoder.output_s or 0.0
        known = [times.head_s for times in self.compute.lengths if times.head_s is not None]
        return sum(known) / len(known) if known else 0.0
