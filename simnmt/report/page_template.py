"""Fill a page template of this folder so that the page opens without a network; group claim records and verdicts for it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from simnmt.base import VERSION
from simnmt.report import assets
from simnmt.report.assets import packed
from simnmt.report.typography import DASH, typeset

_HERE = Path(__file__).resolve().parent

Record = Mapping[str, Any]


def fill_template(template: str, scripts: Sequence[str], drawings: Iterable[Record], **content: Any) -> str:
    """A page that opens from disk without a network, as text to be written as UTF-8.

    `scripts`: names of our own, in order; `drawings`: sections of figures, each with a `content` that the scripts draw.
    """
    environment = Environment(
        loader=FileSystemLoader(_HERE), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters["typeset"] = _prose
    return environment.get_template(template).render(
        version=VERSION,
        drawings=[
            {**drawing, "packed": packed(json.dumps(drawing["content"], separators=(",", ":"), allow_nan=False).encode())}
            for drawing in drawings
        ],
        style=_asset("page.css"),
        script=Markup("\n").join(map(_asset, scripts)),
        plotly=Markup(assets.packed_plotly()),
        **content,
    )


def _prose(text: str) -> Markup:
    """Numbers set as everywhere, and what stands in backticks as code."""
    return Markup(re.sub("`([^`]+)`", r"<code>\1</code>", str(escape(typeset(text)))))


def claim_groups(records: Sequence[Record], doubts: Sequence[Record] = ()) -> list[list[dict[str, Any]]]:
    """The records of each claim together, in the order of the first of them.

    `doubts`: the profiles with warnings; a claim that rests on measurements of such a profile says so in its `basis`.
    """
    doubtful = {name for doubt in doubts for name in doubt.get("parts", doubt["devices"])}
    groups: dict[str, list[dict[str, Any]]] = {}
    for record in records:
        basis = record["basis"]
        if basis == "measured" and (record.get("profiles") or record.get("device")) in doubtful:
            basis = "measured, doubtful"
        groups.setdefault(record["bare"], []).append({**record, "basis": basis, "ours": record["ours"] or DASH})
    return list(groups.values())


def verdict_matrix(records: Sequence[Record]) -> dict[str, Any]:
    """Verdicts by claim and device, of the claims that are made of devices; None where a claim is made of others."""
    devices = list(dict.fromkeys(record["device"] for record in records if record["device"]))
    verdicts = {(record["bare"], record["device"]): record["verdict"] for record in records if record["device"]}
    claims = {record["bare"]: record["claim"] for record in records if record["device"]}
    lines = [
        {"bare": bare, "claim": claim, "verdicts": [verdicts.get((bare, device)) for device in devices]}
        for bare, claim in claims.items()
    ]
    return {"devices": devices, "lines": lines}


def _asset(name: str) -> Markup:
    """Our own style or script, which goes in as it stands."""
    return Markup((_HERE / name).read_text(encoding="utf-8"))
