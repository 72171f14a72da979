"""Energy and money of one run, computed from its columns and the accounts of its servers after the world ran.

The static part of the power (`idle_w` of every box) is drawn from the begin of the run to its last answer, whatever is
executed, and is shared evenly by all requests. The dynamic part, the power above it while a box executes, belongs to the
requests executed there. So the joules of all requests are the integral of the power of all boxes over the run, plus the energy
of the bytes on the links. With faults some executions answer no request: their joules count in the run, as the wasted part of
its dynamic energy, and no request is charged for them. `simnmt.profile.power` has the models, which are LEAF's.

- A box that executes requests one by one, or streams its model, draws `busy_w` throughout an execution, stalls included.
- Where several workers of a box execute at once, what they draw together is shared in proportion to their execution times.
- A box that batches draws the power of the sentences in each step. While it encodes or refills, it draws that of the mean
  number of sentences encoded, or joining, at a time. Of what a device draws above `idle_w`, encoding and refills are shared by
  source tokens, steps by decode steps.

A request is charged for the bytes of its tokens in both directions, on every link between its end node and its target.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simnmt.profile.power import SECONDS_PER_HOUR, BoxPower, RequestCost
from simnmt.results.device_accounts import BatchAccount
from simnmt.results.request_log import Log
from simnmt.results.run_energy import Column, DeviceEnergy, Path, PowerUse, RunEnergy, token_costs


def account_energy(
    log: Log,
    uses: Sequence[PowerUse],
    paths: Sequence[Path],
    batches: Sequence[BatchAccount | None] = (),
    characters_per_src_token: float | None = None,
    extra_work: Sequence[Column] | None = None,
) -> RunEnergy:
    """Return joules and money of one run.

    Args:
        log: columns of all requests by name, as `request_log` has them.
        uses, paths: by target.
        batches: account of each target's batches, None for one that executes requests one by one; empty if none batches.
        characters_per_src_token: of the corpus; None if unknown.
        extra_work: by target and box, the work of executions that answered no request, as of `FaultAccount`; None without
            faults. Of targets that batch, the account of the batches has it.
    """
    totals = _Totals(uses, paths)
    totals.add(log)
    devices = tuple(
        _device_energy(
            use,
            totals,
            number,
            log,
            batches[number] if batches else None,
            None if extra_work is None else float(extra_work[number].sum()),
        )
        for number, use in enumerate(uses)
    )
    has_price = any(leg.price_per_gb.any() for path in paths for leg in path)
    return RunEnergy(
        span_s=totals.span_s,
        requests=totals.requests,
        src_tokens=int(totals.src_tokens.sum()),
        tgt_tokens=int(totals.tgt_tokens.sum()),
        devices=devices,
        paths=tuple(paths),
        transfer_bytes=totals.transfer_bytes,
        transfer_j=float(totals.transfer_j),
        transfer_price=float(totals.transfer_price) if has_price else None,
        characters=None if characters_per_src_token is None else characters_per_src_token * float(totals.src_tokens.sum()),
    )


class _Totals:
    """Sums over logs; arrays and lists are by target."""

    def __init__(self, uses: Sequence[PowerUse], paths: Sequence[Path]) -> None:
        self._uses, self._paths = uses, paths
        self.requests, self.span_s = 0, 0.0
        self.executed, self.src_tokens, self.tgt_tokens, self.execution_s = np.zeros((4, len(uses)))
        self.alone_j = [0.0] * len(uses)
        """Joules as if each request were executed alone, by what a profile measured."""
        self.transfer_bytes, self.transfer_j, self.transfer_price = 0, 0.0, 0.0

    def add(self, log: Log) -> None:
        """Add the requests of a log."""
        target, src_len, tgt_len = log["target"], log["src_len"], log["tgt_len"]
        self.requests += len(target)
        self.span_s = max(self.span_s, float((log["arrival_s"] + log["latency_s"]).max()))
        # One pass for all targets: a mask for each takes twice as long. Sums of whole numbers are exact.
        targets = len(self._uses)
        counts = np.bincount(target, minlength=targets)
        src_tokens, tgt_tokens, execution_s = (
            np.bincount(target, column, targets) for column in (src_len, tgt_len, log["t_exe_s"])
        )
        self.executed += counts
        self.src_tokens += src_tokens
        self.tgt_tokens += tgt_tokens
        self.execution_s += execution_s
        for number, (use, path) in enumerate(zip(self._uses, self._paths, strict=True)):
            measured = None if use.power is None else use.power.measured
            by_node = any(len(leg.j_per_byte) > 1 for leg in path)
            total = int(src_tokens[number] + tgt_tokens[number])
            self.transfer_bytes += total * sum(leg.token_bytes for leg in path)
            if measured is None and not by_node:
                per_token_j, per_token_price = token_costs(path)
                self.transfer_j += per_token_j * total
                self.transfer_price += per_token_price * total
                continue
            there = np.flatnonzero(target == number)
            source, output = src_len[there], tgt_len[there]
            if measured is not None:
                self.alone_j[number] += float(measured.of(source, output, log["t_exe_s"][there]).sum())
            tokens = source.astype(np.int64) + output
            per_token_j, per_token_price = token_costs(path, log["node"][there])
            self.transfer_j += float((per_token_j * tokens).sum())
            self.transfer_price += float((per_token_price * tokens).sum())


def _device_energy(
    use: PowerUse, totals: _Totals, number: int, log: Log, account: BatchAccount | None, extra_s: float | None
) -> DeviceEnergy:
    """Return joules and money of the device of one target.

    `extra_s`: seconds of executions that answered no request; None without faults, and unused for a device that batches.
    """
    span_s, requests, power = totals.span_s, int(totals.executed[number]), use.power
    price = None if use.price_per_hour is None else use.price_per_hour * use.boxes * span_s / SECONDS_PER_HOUR
    if power is None:
        return DeviceEnergy(use.name, use.boxes, "unknown", None, None, None, requests, None, None, price)
    execution_s, wasted_j = float(totals.execution_s[number]), None
    if account is not None:
        src_tokens, steps = int(totals.src_tokens[number]), int(totals.tgt_tokens[number]) + requests
        if extra_s is None:
            per_request, dynamic_j = _batched(power, account, src_tokens, steps)
        else:
            per_request, dynamic_j = _batched(power, account, max(account.src_tokens, src_tokens), max(account.tokens, steps))
            wasted_j = dynamic_j - (per_request.per_src_token * src_tokens + per_request.per_tgt_token * steps)
    elif power.measured is not None:
        per_request, dynamic_j = power.measured, totals.alone_j[number]
        # The lengths of executions in vain are not recorded: they draw as the others do in the mean.
        watts = dynamic_j / execution_s if execution_s else float(power.dynamic_w(1))
        wasted_j = None if extra_s is None else watts * extra_s
    else:
        watts = _mean_w(power, use.boxes, log, number, execution_s)
        per_request, dynamic_j = RequestCost(watts), watts * execution_s
        wasted_j = None if extra_s is None else watts * extra_s
    if account is None and wasted_j is not None:
        dynamic_j += wasted_j
    return DeviceEnergy(
        device=use.name,
        boxes=use.boxes,
        kind=power.kind,
        idle_w=power.idle_w,
        busy_w=power.busy_w,
        load_w=power.load_w,
        requests=requests,
        static_j=power.idle_w * use.boxes * span_s,
        dynamic_j=dynamic_j,
        price=price,
        per_request=per_request,
        wasted_j=wasted_j,
    )


def _mean_w(power: BoxPower, boxes: int, log: Log, number: int, execution_s: float) -> float:
    """Return the watts above `idle_w` for each second of an execution, where each worker of a box executes one request.

    `execution_s`: seconds of all executions.
    """
    step_w, slope_w = power.dynamic_line
    if power.capacity == 1 or step_w == 0.0 or execution_s == 0.0:
        return step_w + slope_w
    there = log["target"] == number
    # The world records no start: a request is assumed to arrive after half of its transfer time, as in `device_timeline`.
    start_s = (log["arrival_s"] + log["t_tx_s"] / 2 + log["t_queue_s"])[there]
    busy_s = busy_seconds(log["server"][there], start_s, start_s + log["t_exe_s"][there], boxes)
    return slope_w + step_w * busy_s / execution_s


def busy_seconds(server: NDArray[Any], start_s: Column, end_s: Column, boxes: int) -> float:
    """Return the seconds in which a box executes at least one request, summed over the boxes."""
    order = np.lexsort((start_s, server))
    borders = np.searchsorted(server[order], np.arange(boxes + 1))
    starts, ends, total_s = start_s[order], end_s[order], 0.0
    for first, last in pairwise(borders.tolist()):
        if first < last:
            covered_until = np.maximum.accumulate(ends[first:last])
            begins = np.maximum(starts[first + 1 : last], covered_until[:-1])
            total_s += float(ends[first] - starts[first] + np.maximum(ends[first + 1 : last] - begins, 0.0).sum())
    return total_s


def _batched(power: BoxPower, account: BatchAccount, src_tokens: int, steps: int) -> tuple[RequestCost, float]:
    """Return the dynamic joules of a request on boxes that batch, and of all requests together.

    `src_tokens` and `steps`: source tokens and decode steps of all sentences.
    """
    if not steps or not src_tokens:
        return RequestCost(), 0.0
    step_j = float(np.dot(account.step_s, power.dynamic_w(np.arange(account.size + 1))))
    calls = ((account.encode_s, account.encodings), (account.refill_s, account.refills))
    together_j = sum(
        seconds * float(power.dynamic_w(min(account.sentences / count, account.size))) for seconds, count in calls if count
    )
    per_step_j = step_j / steps
    return RequestCost(0.0, together_j / src_tokens, per_step_j, per_step_j), step_j + together_j
