"""How a device executes the requests of one workload: the costs of its profile in the workload's unit, batched or streamed."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from simnmt.base.arrays import Floats
from simnmt.devices import Batched, Streamed
from simnmt.experiment.streaming_setup import StreamedDevice
from simnmt.profile.cost import DecodingCost
from simnmt.profile.custom import CustomDevice
from simnmt.profile.device_profile import DeviceProfile
from simnmt.profile.profile_variant import DecoderChoice
from simnmt.workload.length_table import LengthTable

Tokens = NDArray[np.int64]
ExpectedTokens = Tokens | Floats
"""Target lengths, or expected ones, which need not be whole."""


@dataclass(frozen=True, slots=True)
class Decoding(Batched):
    """How each box of a target decodes in batches, with the costs of its profile."""

    cost: DecodingCost
    free_refills: bool = False
    """True if the scenario assumes that joining a batch costs nothing."""


@dataclass(frozen=True, slots=True)
class Conversion:
    """How a profile's costs were converted to the workload's unit: its tokens per token of the workload, as stated."""

    src: float
    tgt: float
    src_unit: str
    """Unit of the profile as measured."""
    tgt_unit: str


@dataclass(frozen=True, slots=True)
class Target:
    """How a device executes the requests of one workload."""

    device: str
    """Name of the device in the scenario."""
    profile: DeviceProfile
    doubts: tuple[str, ...] = ()
    """Effects on the numbers of this workload of what is doubtful about its profile (`Doubt.effect`)."""
    decoder: DecoderChoice | None = None
    """Decoder variant that replaces the profile's; None if the scenario names none."""
    decoding: Decoding | None = None
    """How it batches; None if it executes requests one by one."""
    streaming: StreamedDevice | None = None
    """How its model is streamed from the disk; None if the model stays in memory."""
    conversion: Conversion | None = None
    """How its profile was converted to the workload's unit; None if both count alike."""
    cost: CustomDevice | None = None
    """A user's cost function of requests alone, to which the profile's plane is a fit; None if the plane is charged."""

    @property
    def streamed(self) -> Streamed | None:
        """How its boxes stream their model; None if the model stays in memory."""
        return None if self.streaming is None else self.streaming.streamed

    @property
    def kind(self) -> str:
        """How the numbers are known by which it executes; those of the block `sti` if its model is streamed."""
        return self.profile.execution.kind if self.streaming is None else self.streaming.planned.kind

    def in_memory_s(self, src_len: Tokens, tgt_len: ExpectedTokens, noise: Floats, more_s: Floats | None = None) -> Floats:
        """Return the seconds of requests alone, with nothing to be read from a disk (`DeviceProfile.execution_s`).

        A streamed model takes the computing time of its plan, since the profile's plane is that of the whole model.

        Args:
            src_len, tgt_len: tokens, shape (requests,).
            noise: standard normal numbers, from which the residual follows.
            more_s: seconds above the mean for each target token; None for none.
        """
        if self.cost is not None:
            return self.cost.seconds(src_len, tgt_len)
        if self.streamed is None:
            return self.profile.execution_s(src_len, tgt_len, noise, more_s)
        return self.streamed.compute.in_memory_s(src_len, tgt_len) * self.profile.residual.factor(noise)

    def execution_s(self, src_len: Tokens, tgt_len: ExpectedTokens, noise: Floats, more_s: Floats | None = None) -> Floats:
        """Return the seconds that the device charges: `in_memory_s`, or the steps of the request alone if it batches."""
        if self.decoding is None:
            return self.in_memory_s(src_len, tgt_len, noise, more_s)
        alone_s = self.decoding.cost.solo_s(src_len, np.rint(tgt_len) if tgt_len.dtype.kind == "f" else tgt_len)
        return alone_s * self.profile.residual.factor(noise) if self.decoding.varies else alone_s

    def mean_alone_s(self, table: LengthTable) -> float:
        """Return the mean seconds of a request alone, as charged back to back.

        A streamed model is in the last turn of an engagement, since requests follow each other.
        """
        src_len, tgt_len = table.src_len, table.tgt_len
        if self.streamed is not None:
            alone_s = self.streamed.compute.in_memory_s(src_len, tgt_len) + self.streamed.beyond_s(src_len)[-1]
        elif self.decoding is not None:
            alone_s = self.decoding.cost.solo_s(src_len, tgt_len)
        elif self.cost is not None:
            alone_s = self.cost.seconds(src_len, tgt_len)
        else:
            alone_s = self.profile.plane.seconds(src_len, tgt_len)
        return float(np.average(alone_s, weights=table.count))
