"""Where the numbers of a device profile come from: box, model, engine, running service, conditions, and the unit of lengths."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, ConfigDict, Field

from simnmt.base.configuration import EndOfSentence
from simnmt.profile.blocks import MS, PERCENT, Block, Count, Duration, Kind, NotNegative, Positive, Shown
from simnmt.profile.decoder_settings import DecoderOptions


class Device(Block):
    """The box."""

    name: Annotated[str, Shown()]
    details: Annotated[str, Shown()] = ""
    """Clocks, threads, library versions, as needed to repeat the measurement."""


class Model(Block):
    """The translation model that ran on it."""

    name: Annotated[str, Shown()]
    vocab: Annotated[int, Field(ge=2), Shown("vocabulary {:,}")]
    """Words of the target vocabulary, which decide the bytes of a token on the link (CNMT-03)."""


class LengthUnit(Block):
    """Unit of the lengths; a workload in another unit is refused."""

    src: Annotated[str, Shown("source in {}")]
    tgt: Annotated[str, Shown("target in {}")]
    end_of_sentence: Annotated[EndOfSentence, Shown("end of the sentence counted: {}")] = "none"
    """Lengths that count the end-of-sentence token. Measurements count both: every step, and every token that the encoder
    reads."""


def _ordered(ends: tuple[int, int]) -> tuple[int, int]:
    if not 0 <= ends[0] <= ends[1] <= 10**9:
        raise ValueError(f"[{ends[0]}, {ends[1]}] is not a range within 0 and 1e9")
    return ends


Range = Annotated[tuple[int, int], AfterValidator(_ordered)]


class ValidRange(Block):
    """Lengths for which the cost model holds, both ends included."""

    src_len: Range
    tgt_len: Range

    def lines(self, label: str) -> Iterator[tuple[str, str]]:
        yield label, "source {} to {}, target {} to {}".format(*self.src_len, *self.tgt_len)


class Provenance(Block):
    """Origin of the numbers."""

    source: Annotated[str, Shown()]
    date: Annotated[str, Shown()]
    tool: Annotated[str, Shown()]
    """Program that wrote the file, with its version."""


class EngineBlock(Block):
    """What executed the model."""

    backend: Annotated[str, Shown()]
    compute_type: Annotated[str, Shown()]
    device: Annotated[str, Shown("on {}")]
    """`cpu` or `cuda:0`."""
    device_name: Annotated[str, Shown()] = ""
    threads: Annotated[Count | None, Shown("threads: {}")] = None
    beam: Annotated[Count, Shown("beam {}")] = 1
    fused: Annotated[bool, Shown("fused")] = False
    decoder: Annotated[DecoderOptions | None, Shown("decoder {}")] = None
    """Options of the sharp decoder; null: another backend."""
    weights: Annotated[Literal["random", "checkpoint"], Shown("weights: {}")] = "random"
    """Times depend on the architecture alone, translations on the weights too."""
    clipped_weights: Annotated[int, Field(ge=0)] | None = None
    """Weights of the sharp decoder's model that 16-bit products would clip, whatever type its products have; null: another
    backend."""
    product_weights: Count | None = None
    architecture: dict[str, Any] = Field(default_factory=dict)
    versions: Annotated[dict[str, str], Shown()] = Field(default_factory=dict)

    @property
    def hash(self) -> str:
        """Hash of all that decides the times of the same work on a box: architecture, backend, number type, threads, decoder.

        A gateway compares its profiles' with those of the live engines. Weights do not count: times do not depend on them.
        """
        names = {"architecture", "backend", "compute_type", "device", "threads", "beam", "fused", "decoder"}
        content = json.dumps(self.model_dump(mode="json", include=names), sort_keys=True)
        return hashlib.sha256(content.encode()).hexdigest()[:16]


class EndpointBlock(Block):
    """A running service that was measured through HTTP."""

    kind: Annotated[Kind, Shown()]
    api: Annotated[str, Shown()]
    url: Annotated[str, Shown("at {}")]
    source: Annotated[str, Shown("from {}")]
    target: Annotated[str, Shown("to {}")]
    sentences: Annotated[Count, Shown("{:,} sentences")]
    requests: Annotated[Count, Shown("{:,} requests")]
    """Requests one after another, from which the plane follows."""
    mean_s: Positive
    """Mean time of a sentence alone, over the different sentences."""
    echo: Annotated[str, Shown("echo of {}")] = ""
    """A request that translates nothing, such as `GET /languages`; empty if the service answers none."""
    echo_s: Annotated[Duration | None, Shown("{:.4g} ms", MS)] = None
    """The median echo, between the sentences."""
    round_trip_s: Annotated[NotNegative, Shown("round trip: {:.3g} ms taken off all times", MS)] = 0.0
    """The median echo again; 0 if the times contain the way to the service and back, because the service answers no echo, or
    none that is shorter than a sentence."""
    knee_rps: Annotated[Positive | None, Shown("knee at {:.3g} requests/s")] = None
    """Most requests a second that it answered, with more clients than workers; null: not measured under load."""
    remembers_last: Annotated[bool, Shown("answers the last text again from a cache, which no measurement used")] = False
    doubts: tuple[str, ...] = ()
    """Reasons to distrust the figures, one sentence each without a full stop."""


class Conditions(Block):
    """State of the box during the sessions that made a profile; further keys are allowed."""

    model_config = ConfigDict(extra="allow")

    load_average: Annotated[NotNegative | tuple[NotNegative, ...] | None, Shown("load {:.4g}")] = None
    governor: Annotated[str | None, Shown("governor {}")] = None
    frequency_mhz: Annotated[Positive | tuple[Positive, ...] | None, Shown("{:.4g} MHz")] = None
    others_cpus: NotNegative | None = None
    """CPUs' worth of time that other programs used before a session or after the last, whichever is greatest."""
    busy: bool | None = None
    """True if that is enough to disturb a measurement; null if it was not watched."""
    drift: Annotated[NotNegative | None, Shown("drift {:.3g} %", PERCENT)] = None
    """Greatest relative difference of a reading of the reference cell from the lower quartile of all its readings."""
    disturbed_cells: Annotated[int | None, Shown("disturbed cells: {}")] = None
    """Number of cells that still had no undisturbed repeat after they were measured again."""
    disturbed: tuple[str, ...] = ()
    """Names of these cells, such as `step 20+64 x8`: the cost model, source and target tokens, and the batch above 1."""
    gap_s: Annotated[Duration | None, Shown("after {:.4g} ms of idling", MS)] = None
    """Seconds that the box idled before each single execution; null: back to back."""
    parts: tuple[str, ...] = ()
    """Parts that a later session measured, as in `simnmt calibrate --part`; `sti` for `simnmt sti profile`."""
    date: str | None = None
    tool: str | None = None
    later: tuple[Conditions, ...] = ()
    """Conditions of the sessions that completed the profile."""
