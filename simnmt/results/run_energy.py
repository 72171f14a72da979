"""Joules and money of one run and of each of its requests, as data; `energy_accounts` computes them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from simnmt.profile.power import BITS_PER_BYTE, BoxPower, RequestCost, transfer_joules

Column = NDArray[np.float64]
Log = Mapping[str, NDArray[Any]]
BYTES_PER_GB = 1e9


@dataclass(frozen=True, slots=True)
class PowerUse:
    """What the account must know of one device: its boxes, their power and their price."""

    name: str
    boxes: int
    power: BoxPower | None
    """Of each box; None if it is unknown."""
    price_per_hour: float | None = None
    """Of each box; None if none is given."""


@dataclass(frozen=True, slots=True, eq=False)
class Leg:
    """One link on the path of a request, or several that are dealt to the end nodes."""

    token_bytes: int
    j_per_byte: Column
    """Shape (links,); end node n has link n modulo links."""
    price_per_gb: Column


Path = tuple[Leg, ...]
"""The links between the end nodes and one target."""


def token_costs(path: Path, node: NDArray[Any] | None = None) -> tuple[Any, Any]:
    """Return joules and money per token, source and target alike, by the end node of each request.

    `node`: None for a path without links that are dealt to the end nodes; both results are then plain numbers.
    """
    joules: Any = 0.0
    money: Any = 0.0
    for leg in path:
        link = 0 if node is None else node % len(leg.j_per_byte)
        joules = joules + transfer_joules(BITS_PER_BYTE * leg.token_bytes, leg.j_per_byte[link] / BITS_PER_BYTE)
        money = money + leg.token_bytes * leg.price_per_gb[link] / BYTES_PER_GB
    return joules, money


@dataclass(frozen=True, slots=True)
class DeviceEnergy:
    """Joules and money of all boxes of one device in one run."""

    device: str
    boxes: int
    kind: str
    """How its power is known: `given`, a kind of profile, or `unknown`."""
    idle_w: float | None
    busy_w: float | None
    load_w: float | None
    requests: int
    """Requests executed there."""
    static_j: float | None
    """None if the power is unknown, like `dynamic_j`."""
    dynamic_j: float | None
    price: float | None
    """Money for its boxes; None without a price."""
    per_request: RequestCost | None = None
    """Dynamic joules of a request that was executed there."""
    wasted_j: float | None = None
    """The part of `dynamic_j` that executions took which answered no request; None without faults, or if it is unknown."""

    def as_json(self) -> dict[str, object]:
        """Return the record of the device for summary.json."""
        numbers = {name: value for name, value in asdict(self).items() if name not in ("kind", "per_request")}
        if self.wasted_j is None:
            del numbers["wasted_j"]
        energy_kind, price_kind = "modelled" if self.static_j is not None else None, "given" if self.price is not None else None
        return numbers | {"power_kind": self.kind, "energy_kind": energy_kind, "price_kind": price_kind}


@dataclass(frozen=True, slots=True, eq=False)
class RunEnergy:
    """Joules and money of one run."""

    COLUMNS: ClassVar[tuple[str, ...]] = ("target", "node", "src_len", "tgt_len", "t_exe_s")
    """Columns of the log from which the joules of requests follow."""
    span_s: float
    """From the begin of the run to its last answer."""
    requests: int
    src_tokens: int
    tgt_tokens: int
    devices: tuple[DeviceEnergy, ...]
    paths: tuple[Path, ...]
    """By target."""
    transfer_bytes: int
    """Bytes of all requests, on every link that they passed."""
    transfer_j: float
    transfer_price: float | None
    """None if no link has a price."""
    characters: float | None = None
    """Characters of all sources; None if unknown."""

    @property
    def static_j(self) -> float | None:
        """Joules of all boxes as if they were idle throughout; None if the power of a device is unknown."""
        return _sum_if_known([device.static_j for device in self.devices])

    @property
    def dynamic_j(self) -> float | None:
        """Joules of all boxes above that."""
        return _sum_if_known([device.dynamic_j for device in self.devices])

    @property
    def wasted_j(self) -> float:
        """Joules of `dynamic_j` that no request is charged for: they were spent on executions that answered none."""
        return sum(device.wasted_j or 0.0 for device in self.devices)

    @property
    def total_j(self) -> float | None:
        """Joules of boxes and links together."""
        return _sum_if_known([self.static_j, self.dynamic_j, self.transfer_j])

    @property
    def price(self) -> float | None:
        """Money for all boxes and links; None if the scenario has no price."""
        prices = [price for price in (*(device.price for device in self.devices), self.transfer_price) if price is not None]
        return sum(prices) if prices else None

    def request_j(self, log: Log) -> Column:
        """Return the joules of each request: its even share of the static part, its dynamic part and its bytes.

        NaN if the static part is unknown, or the power of the device that executed it. The sum is `total_j` less `wasted_j`.
        """
        dynamic_j = self.dynamic_request_j(log)
        return dynamic_j + (np.nan if self.static_j is None else self.static_j / self.requests)

    def dynamic_request_j(self, log: Log) -> Column:
        """Return the joules of each request without its share of the static part."""
        target, node, src_len, tgt_len, execution_s = (log[name] for name in self.COLUMNS)
        joules = np.full(len(target), np.nan)
        for number, (device, path) in enumerate(zip(self.devices, self.paths, strict=True)):
            there = target == number
            if device.per_request is not None and there.any():
                source, output = src_len[there], tgt_len[there]
                per_token_j, _ = token_costs(path, node[there])
                joules[there] = device.per_request.of(source, output, execution_s[there]) + per_token_j * (
                    source.astype(np.int64) + output
                )
        return joules

    def numbers(self) -> dict[str, float | None]:
        """Return the columns of the summary; of money only if the scenario has prices."""
        parts = {"static_j": self.static_j, "dynamic_j": self.dynamic_j, "transfer_j": self.transfer_j}
        totals = {"energy_j": self.total_j, "cost": self.price}
        known = {name: total for name, total in totals.items() if total is not None or name == "energy_j"}
        numbers = {f"mean_{name}": _ratio(total, self.requests) for name, total in (known | parts).items()}
        for name, total in known.items():
            numbers[f"{name}_per_thousand_tokens"] = _ratio(total, self.tgt_tokens / 1e3)
            numbers[f"{name}_per_million_characters"] = _ratio(total, (self.characters or 0.0) / 1e6)
        return numbers

    def as_json(self) -> list[dict[str, object]]:
        """Return one record per device, and one of all links, for summary.json; each number with how it is known."""
        links: dict[str, object] = {
            "device": "links",
            "bytes": self.transfer_bytes,
            "power_kind": "given",
            "energy_kind": "modelled",
        }
        links |= {"dynamic_j": self.transfer_j, "price": self.transfer_price}
        links["price_kind"] = None if self.transfer_price is None else "given"
        return [*(device.as_json() for device in self.devices), links]


def _sum_if_known(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) if len(known) == len(values) else None


def _ratio(part: float | None, whole: float | None) -> float | None:
    """Return `part` / `whole`; None if one of them is unknown, or `whole` is 0."""
    return None if part is None or not whole else part / whole
