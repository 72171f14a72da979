"""Batches of the devices that form them: how many sentences were active, step by step and over the whole run, per policy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from simnmt.report import thinning
from simnmt.report.typography import DASH, is_number, number, significant
from simnmt.results import Cell
from simnmt.results.batch_columns import FEW
from simnmt.results.batches import BatchAccount
from simnmt.results.summary import Row

MOST_BARS = 64
"""Of the sizes of a batch; larger ones are grouped, evenly."""
TIMELINE_NUMBERS = 40_000
"""Of all timelines of a page, so that neither many cells nor many policies make it heavy."""
FEWEST_CHANGES = 100

COLUMNS = (
    ("mean_batch", "mean batch", 1.0, ""),
    ("full_share", "full, % of steps", 100.0, ""),
    ("below_8_share", "below 8, % of steps", 100.0, ""),
    ("padding_share", "padding, % of source tokens", 100.0, ""),
    ("busy_share", "at work, % of the time", 100.0, ""),
    ("mean_queue_s", "waiting, ms", 1e3, ""),
    ("first_token_mean_s", "to the first token, ms", 1e3, "first_token_p95_s"),
    ("sentences_per_s", "sentences/s", 1.0, "busy_sentences_per_s"),
    ("tokens_per_s", "tokens/s", 1.0, "busy_tokens_per_s"),
)
"""Key of the summary behind the device's name, head, factor, and what stands below it."""


def batching_devices(cell: Cell) -> list[int]:
    """Numbers of the devices that formed batches under any policy, in the targets' order."""
    return [
        number
        for number in range(len(cell.devices))
        if any(number < len(accounts) and accounts[number] is not None for accounts in cell.batches.values())
    ]


def batches(cell: Cell, cells: int = 1) -> list[dict[str, Any]]:
    """Per batching device what its figures show, empty where there is none; `cells`: on the page."""
    devices = batching_devices(cell)
    share = TIMELINE_NUMBERS // max(2 * cells * len(devices) * len(cell.logs), 1)
    changes = max(share, FEWEST_CHANGES)
    return [
        {"device": device, "policies": [_drawn(_account(cell, policy, device), changes) for policy in cell.logs]}
        for device in devices
    ]


def batch_lines(cell: Cell, rows: Sequence[Row]) -> list[dict[str, Any]]:
    """Per batching device one line of numbers for each policy that used it, as text; `rows`: the cell's own."""
    by_policy = {row["policy"]: row for row in rows}
    return [
        {
            "name": cell.devices[device].name,
            "lines": [
                {"policy": policy, "figures": _figures(by_policy.get(policy, {}), cell.devices[device].name)}
                for policy in cell.logs
                if (account := _account(cell, policy, device)) is not None and account.sentences
            ],
        }
        for device in batching_devices(cell)
    ]


def most_used(cell: Cell) -> int:
    """Number of the policy whose batches are shown first: the one with the most steps that batch, the first among equals."""
    steps = [
        sum(int(account.steps.sum()) for account in cell.batches.get(policy, ()) if account is not None) for policy in cell.logs
    ]
    return steps.index(max(steps))


def _account(cell: Cell, policy: str, device: int) -> BatchAccount | None:
    accounts = cell.batches.get(policy, ())
    return accounts[device] if device < len(accounts) else None


def _drawn(account: BatchAccount | None, changes: int) -> dict[str, Any] | None:
    """A policy's batches at one device; None where it had none."""
    if account is None or not account.steps.sum():
        return None
    wide = -(-account.size // MOST_BARS)
    first = np.arange(1, account.size + 1, wide)
    # Never a step with nobody active.
    steps, seconds = (np.add.reduceat(each[1:], first - 1) for each in (account.steps, account.step_s))
    shown = account.timeline[:changes]
    return {
        "size": account.size,
        "least": first.tolist(),
        "most": np.minimum(first + wide - 1, account.size).tolist(),
        "steps": thinning.numbers(100.0 * steps / steps.sum(), 4),
        "time": thinning.numbers(100.0 * seconds / seconds.sum(), 4) if seconds.sum() else thinning.numbers(0.0 * steps, 4),
        "step": shown[:, 0].tolist(),
        "active": shown[:, 1].tolist(),
        "words": _words(account),
    }


def _words(account: BatchAccount) -> str:
    total = int(account.steps.sum())
    return (
        f"{number(total, 0)} steps, {significant(account.mean_active, 3)} of {account.size} active on average; full in "
        f"{number(100 * account.share_full, 1)} % of them, fewer than {FEW} in {number(100 * account.share_below(FEW), 1)} %."
    )


def _figures(row: Row, device: str) -> list[dict[str, str]]:
    return [
        _figure(row.get(f"{device}_{key}"), row.get(f"{device}_{below}") if below else None, key, below, factor)
        for key, _, factor, below in COLUMNS
    ]


def _figure(value: object, second: object, key: str, below: str, factor: float) -> dict[str, str]:
    text = DASH
    if is_number(value):
        text = number(factor * value, 1) if key.endswith("_share") else significant(factor * value, 4)
    beside = ""
    if is_number(second):
        shown = significant(factor * second, 4)
        beside = f"p95 {shown}" if below.startswith("first_token") else f"{shown} at work"
    return {"key": key, "text": text, "beside": beside}
