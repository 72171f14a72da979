"""Energy and money of one run, computed from its columns and the accounts of its batches after the world ran.

The model is LEAF's (P. Wiesner and L. Thamsen, ICFEC 2021, doi:10.1109/ICFEC51620.2021.00012). A box draws `idle_w` from the
begin of the run to its last answer, and costs its price: all requests share that evenly. Above it a box draws power by its busy
workers, `busy_w` in all with all of them, or while it batches: the requests of its device share that in proportion to their
execution times. A request is charged for the bytes of its tokens on every link between its end node and its target.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isnan, nan
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from simnmt.profile.power import SECONDS_PER_HOUR, BoxPower
from simnmt.results.device_accounts import BatchAccount

Log = Mapping[str, NDArray[Any]]


HEADS = {
    "mean_energy_j": "J",
    "mean_static_j": "static J",
    "mean_dynamic_j": "executing J",
    "mean_transfer_j": "links J",
    "energy_j_per_thousand_tokens": "J/1000 tokens",
    "mean_cost": "money",
    "cost_per_thousand_tokens": "money/1000 tokens",
}
"""Heads of a table by the columns of the summary (`RunEnergy.numbers`)."""


@dataclass(frozen=True, slots=True)
class TargetCosts:
    """What energy and money of one target depend on: power (None if unknown) and price of each box, and the links to it.

    Of several links that are dealt to end nodes, the mean counts.
    """

    device: str
    boxes: int
    workers: int
    power: BoxPower | None
    price_per_hour: float = 0.0
    token: tuple[float, float, float] = (0.0, 0.0, 0.0)
    """Bytes, joules and money of a token on all links together."""


@dataclass(frozen=True, slots=True)
class PartEnergy:
    """Joules and money of the boxes of one device, or of all `links`, in one run; NaN for what is unknown.

    `power_kind`: `given`, a kind of profile, or `unknown`. `bytes`: of all requests, on every link that they passed.
    """

    device: str
    power_kind: str
    boxes: int = 0
    requests: int = 0
    idle_w: float = nan
    busy_w: float = nan
    static_j: float = nan
    dynamic_j: float = nan
    price: float = 0.0
    bytes: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class RunEnergy:
    """Joules and money of one run, which lasted `span_s` to its last answer."""

    COLUMNS: ClassVar[tuple[str, ...]] = ("target", "src_len", "tgt_len", "t_exe_s")
    span_s: float
    requests: int
    tgt_tokens: int
    devices: tuple[PartEnergy, ...]
    links: PartEnergy
    execution_w: NDArray[np.float64]
    """Dynamic joules for each second of an execution, by target; NaN where the power is unknown."""
    token_j: NDArray[np.float64]

    def sums(self) -> dict[str, float]:
        """Return joules by kind and together, and money; NaN if a part of the joules is unknown, or nothing has a price."""
        static_j, dynamic_j = (sum(getattr(device, name) for device in self.devices) for name in ("static_j", "dynamic_j"))
        parts = {"static_j": static_j, "dynamic_j": dynamic_j, "transfer_j": self.links.dynamic_j}
        return {
            "energy_j": sum(parts.values()),
            **parts,
            "cost": sum(part.price for part in (*self.devices, self.links)) or nan,
        }

    def request_j(self, log: Log) -> NDArray[np.float64]:
        """Return the joules of each request by `COLUMNS` of its log; NaN if unknown. They add up to `energy_j`."""
        target, src_len, tgt_len, execution_s = (log[name] for name in self.COLUMNS)
        joules: NDArray[np.float64] = self.execution_w[target] * execution_s + self.token_j[target] * (src_len + tgt_len)
        return joules + self.sums()["static_j"] / self.requests

    def numbers(self) -> dict[str, float | None]:
        """Return the columns of the summary; of money only if the scenario has prices."""
        sums, thousands = self.sums(), self.tgt_tokens / 1e3
        numbers = {f"mean_{name}": value / self.requests for name, value in sums.items()}
        for name in ("energy_j", "cost"):
            numbers[f"{name}_per_thousand_tokens"] = sums[name] / thousands if thousands else nan
        shown = (column for column in HEADS if "cost" not in column or not isnan(sums["cost"]))
        return {column: None if isnan(numbers[column]) else numbers[column] for column in shown}


def account_energy(
    log: Log, costs: Sequence[TargetCosts], batches: Sequence[BatchAccount | None] = (), unanswered_s: Sequence[float] = ()
) -> RunEnergy:
    """Return joules and money of one run from the log of its answered requests.

    The rest is by target. `batches`: None for a target that executes requests one by one; empty if none batches.
    `unanswered_s`: seconds of executions that answered no request; empty for none. The account of batches has them already.
    """
    target, span_s = log["target"], float((log["arrival_s"] + log["latency_s"]).max())
    requests, src_tokens, tgt_tokens, execution_s = (
        np.bincount(target, weights, len(costs)) for weights in (None, log["src_len"], log["tgt_len"], log["t_exe_s"])
    )
    devices, execution_w = list[PartEnergy](), np.full(len(costs), nan)
    for number, of in enumerate(costs):
        account, executed_s = batches[number] if batches else None, float(execution_s[number])
        worked_s = executed_s + (unanswered_s[number] if unanswered_s else 0.0)
        busy_s = worked_s / of.workers if account is None else account.busy_s
        price = of.price_per_hour * of.boxes * span_s / SECONDS_PER_HOUR
        power = of.power or BoxPower(nan, nan, "unknown")
        static_j, dynamic_j = power.idle_w * of.boxes * span_s, (power.busy_w - power.idle_w) * busy_s
        execution_w[number] = dynamic_j / executed_s if executed_s else 0.0
        parts = (power.idle_w, power.busy_w, static_j, dynamic_j, price)
        devices.append(PartEnergy(of.device, power.kind, of.boxes, int(requests[number]), *parts))
    tokens = src_tokens + tgt_tokens
    token_bytes, token_j, token_price = np.array([of.token for of in costs]).T
    transfer_j, price = float(token_j @ tokens), float(token_price @ tokens)
    links = PartEnergy("links", "given", dynamic_j=transfer_j, price=price, bytes=int(token_bytes @ tokens))
    return RunEnergy(span_s, len(target), int(tgt_tokens.sum()), tuple(devices), links, execution_w, token_j)
