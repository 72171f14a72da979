"""Numbers of a group of requests that follow from the classes and the documents of its workloads."""

from __future__ import annotations

from math import inf

import numpy as np

from simnmt.experiment.accounts import Rows
from simnmt.experiment.cases import Group, Unit
from simnmt.results.requests import Columns, RequestLog
from simnmt.results.summary import Numbers


def documents_of(unit: Unit, group: Group, columns: Columns, counted: Rows) -> RequestLog | None:
    """Return the log of the counted requests whose workloads have documents; None if no workload of the scenario has any."""
    if "document" not in columns:
        return None
    names = [unit.parts[number].case.name for number in group.parts]
    with_documents = [
        number for number, name in zip(group.parts, names, strict=True) if unit.scenario.workloads[name].documents is not None
    ]
    if len(with_documents) == len(group.parts):
        return RequestLog(columns, counted)
    numbers = np.arange(len(columns["document"]))[counted]
    return RequestLog(columns, numbers[np.isin(columns["part"][numbers], with_documents)] if with_documents else numbers[:0])


def overdue_share(unit: Unit, group: Group, log: RequestLog) -> Numbers:
    """Return the share of the answered requests that waited longer than `max_wait_s` of their class at one of their devices.

    None in a group without such classes; no number at all in a scenario without them.
    """
    classes = unit.scenario.classes
    limits_s = [unit.scenario.max_wait_s[part.rank] for part in unit.parts] if classes else []
    if all(limit_s == inf for limit_s in limits_s):
        return {}
    if all(limits_s[number] == inf for number in group.parts):
        return {"overdue_share": None}
    limit_s = np.array(limits_s)[log["part"] if len(limits_s) > 1 else 0]
    waited_s = log["t_queue_s"]
    if "deferred_queue_s" in log:
        waited_s = np.maximum(waited_s, log["deferred_queue_s"])
    return {"overdue_share": float((waited_s > limit_s).mean())}
