"""Baseline policies: every request to one target, and the oracle that knows the true times (CNMT-10)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from simnmt.policies.decision import Decide, Fixed, Knowledge, PolicySettings, least_total


class EdgePolicy(PolicySettings):
    """Every request at the first device, where it is decided (GW-only)."""

    kind: Literal["edge"]
    single_device: ClassVar[bool] = True

    def policy(self, knowledge: Knowledge) -> Fixed:
        """Return the policy."""
        return Fixed(0)

    def devices_of(self, devices: Sequence[str]) -> Sequence[str]:
        """Return the first device."""
        return devices[:1]


class CloudPolicy(PolicySettings):
    """Every request at the last device (Server-only)."""

    kind: Literal["cloud"]
    single_device: ClassVar[bool] = True

    def policy(self, knowledge: Knowledge) -> Fixed:
        """Return the policy."""
        return Fixed(len(knowledge.devices) - 1)

    def devices_of(self, devices: Sequence[str]) -> Sequence[str]:
        """Return the last device."""
        return devices[-1:]


class FixedPolicy(PolicySettings):
    """Every request at the device named."""

    kind: Literal["fixed"]
    device: Annotated[str, Field(min_length=1)]
    """Name of the device in `devices`."""
    single_device: ClassVar[bool] = True

    def policy(self, knowledge: Knowledge) -> Fixed:
        """Return the policy."""
        return Fixed(list(knowledge.devices).index(self.device))

    def devices_of(self, devices: Sequence[str]) -> Sequence[str]:
        """Return the device named."""
        return [self.device]


@dataclass(frozen=True, slots=True)
class Oracle:
    """The policy that chooses the target with the least true latency of each request.

    It gets the truth in its constructor; the world also hands it true delays (the present transfer time, and the delays of
    queues and of the states of streamed models). Back to back no policy is faster if models are in memory. Otherwise it is
    greedy: it considers one request alone, so a policy that leaves a server free for later ones, or warm, may be faster.
    """

    execution_s: Sequence[NDArray[np.float64]] = ()
    """True seconds per target, each of shape (requests,)."""

    def prepare(self, src_len: NDArray[np.int64]) -> Decide:
        """Return the rule of C-NMT on true times."""
        return least_total(self.execution_s)


class OraclePolicy(PolicySettings):
    """The least of the true times of every device for each request, including the present transfer times."""

    kind: Literal["oracle"]
    knows_truth: ClassVar[bool] = True

    def policy(self, knowledge: Knowledge) -> Oracle:
        """Return an oracle without the true times of its requests, which are set later."""
        return Oracle()
