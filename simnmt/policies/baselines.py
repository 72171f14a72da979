"""Baseline policies: every request to one device, and the oracle that knows the true times (CNMT-10)."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from simnmt.policies.decision import Fixed, Knowledge, Policy, PolicySettings


class _OneDevicePolicy(PolicySettings):
    """Every request at one device."""

    single_device: ClassVar[bool] = True

    @abstractmethod
    def device_of(self, devices: Sequence[str]) -> str:
        """Return that device, of those of a scenario in their order."""

    def policy(self, knowledge: Knowledge) -> Fixed:
        return Fixed(list(knowledge.devices).index(self.device_of(knowledge.devices)))

    def devices_of(self, devices: Sequence[str]) -> Sequence[str]:
        return [self.device_of(devices)]


class EdgePolicy(_OneDevicePolicy):
    """Every request at the first device, where it is decided (GW-only)."""

    kind: Literal["edge"]

    def device_of(self, devices: Sequence[str]) -> str:
        return devices[0]


class CloudPolicy(_OneDevicePolicy):
    """Every request at the last device (Server-only)."""

    kind: Literal["cloud"]

    def device_of(self, devices: Sequence[str]) -> str:
        return devices[-1]


class FixedPolicy(_OneDevicePolicy):
    """Every request at the device named."""

    kind: Literal["fixed"]
    device: Annotated[str, Field(min_length=1)]
    """Name of the device in `devices`."""

    def device_of(self, devices: Sequence[str]) -> str:
        return self.device


class OraclePolicy(PolicySettings):
    """The least of the true times of every device for each request, including the present transfer times.

    Back to back no policy is faster if models are in memory. Otherwise it is greedy: it considers one request alone, so a
    policy that leaves a server free for later ones, or warm, may be faster.
    """

    kind: Literal["oracle"]
    knows_truth: ClassVar[bool] = True

    def policy(self, knowledge: Knowledge) -> Policy:
        """Raise `TypeError`: the world decides by `LeastTotal` of the true times, which no knowledge holds."""
        raise TypeError("no policy knows the true times")
