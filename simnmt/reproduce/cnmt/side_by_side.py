"""Table I, its ratios and its networks, with a column per part: published, inferred, measured."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from simnmt.reproduce.cnmt import published
from simnmt.reproduce.cnmt.parts import Part
from simnmt.reproduce.cnmt.ratios import compare_ratios, mean_absolute_errors
from simnmt.reproduce.cnmt.table_one import mean_absolute_difference

TABLE_TITLE = "C-NMT, Table I: change of total time, %, negative is faster"
RATIO_TITLE = "Total time over the gateway's"


def cells(parts: Sequence[Part]) -> list[dict[str, Any]]:
    """The 36 cells of Table I in its order: `published_percent`, and `KEY_percent` of each part, None where it has none."""
    found = {
        part.name: {(c["workload"], c["policy"], c["network"], c["baseline"]): c["ours_percent"] for c in part.found.cells}
        for part in parts
    }
    return [
        {
            "workload": workload,
            "policy": policy,
            "network": network,
            "baseline": baseline,
            "published_percent": published.variation_percent(workload, network, policy, baseline),
            **{f"{part.key}_percent": found[part.name].get((workload, policy, network, baseline)) for part in parts},
        }
        for workload, policy in published.TABLE_ONE
        for network in published.NETWORKS
        for baseline in published.BASELINES
    ]


def ratios(parts: Sequence[Part]) -> list[dict[str, Any]]:
    """The 24 ratios: published both ways, each part's, and the inferred part's error and role in the fit.

    The measured parts have no error: other devices on other networks have other ratios.
    """
    inferred = parts[0].found.ratios
    ours = {
        part.name: {(ratio.workload, ratio.network, ratio.policy): ratio.ours for ratio in compare_ratios(part.rows)}
        for part in parts
    }
    return [
        {
            "workload": ratio.workload,
            "network": ratio.network,
            "policy": ratio.policy,
            "published": list(ratio.published),
            "role": ratio.role,
            "error": ratio.error,
            **{part.key: ours[part.name].get((ratio.workload, ratio.network, ratio.policy)) for part in parts},
        }
        for ratio in inferred
    ]


def errors(parts: Sequence[Part]) -> dict[str, float]:
    """Mean absolute relative error of the inferred part's ratios: all, per data set, fitted and test apart."""
    return mean_absolute_errors(parts[0].found.ratios)


def networks(parts: Iterable[Part]) -> list[dict[str, Any]]:
    """Per part, data set and network: its mean RTT, where it comes from, and the share that the oracle sends away."""
    rows = []
    for part in parts:
        shares = {(r["workload"], r["network"]): r["offloaded_share"] for r in part.rows if r["policy"] == "oracle"}
        rows += [
            {
                "profiles": part.name,
                "workload": cell.workload,
                "network": cell.network,
                "mean_rtt_ms": 1e3 * cell.series.mean_s,
                "kind": cell.series.kind,
                "source": cell.series.source,
                "oracle_offloaded_share": shares.get((cell.workload, cell.network)),
            }
            for cell in part.cells
        ]
    return rows


def _number(value: float | None, form: str) -> str:
    return "-" if value is None else format(value, form)


def _lines(rows: Sequence[Mapping[str, str]], words: int) -> list[str]:
    """Aligned columns under their heads; the first `words` to the left, numbers to the right."""
    names = list(rows[0])
    widths = {name: max(len(name), *(len(row[name]) for row in rows)) for name in names}

    def line(values: Mapping[str, str]) -> str:
        aligned = (
            values[name].ljust(widths[name]) if at < words else values[name].rjust(widths[name])
            for at, name in enumerate(names)
        )
        return "  ".join(aligned).rstrip()

    return [line({name: name for name in names}), *map(line, rows)]


def table_as_text(parts: Sequence[Part]) -> str:
    """Table I for a terminal: a row per data set, policy and origin."""
    rows = []
    found = cells(parts)
    origins = {"published": "published_percent"} | {part.name: f"{part.key}_percent" for part in parts}
    for workload, policy in published.TABLE_ONE:
        own = [cell for cell in found if (cell["workload"], cell["policy"]) == (workload, policy)]
        for origin, key in origins.items():
            row = {"data": workload.upper(), "policy": published.LABELS[policy], "profiles": origin}
            heads = (f"{c['network'].upper()} {published.LABELS[c['baseline']]}" for c in own)
            rows.append(row | {head: _number(cell[key], "+.2f") for head, cell in zip(heads, own, strict=True)})
    mean = mean_absolute_difference(parts[0].found.cells)
    told = [] if mean is None else [f"mean absolute difference of the inferred over 36 cells: {mean:.2f} points"]
    return "\n".join([f"{TABLE_TITLE} (Chen et al., ISCAS 2022, and ours)", *_lines(rows, 3), *told])


def ratios_as_text(parts: Sequence[Part]) -> str:
    """The ratios for a terminal, with the errors of the inferred fit under them."""
    rows = []
    for ratio in ratios(parts):
        one, other = ratio["published"]
        others = {part.name: _number(ratio[part.key], ".4f") for part in parts[1:]}
        rows.append(
            {
                "data": ratio["workload"].upper(),
                "network": ratio["network"].upper(),
                "policy": published.LABELS[ratio["policy"]],
                "published, two ways": f"{one:.4f}" if one == other else f"{one:.4f} | {other:.4f}",
                "inferred": _number(ratio["inferred"], ".4f"),
                "error %": f"{100 * ratio['error']:+.2f}",
                "role": ratio["role"],
                **others,
            }
        )
    told = ", ".join(f"{group} {100 * error:.2f} %" for group, error in errors(parts).items())
    return "\n".join([RATIO_TITLE, *_lines(rows, 3), f"mean absolute error of the inferred: {told}"])


def networks_as_text(rows: Sequence[Mapping[str, Any]]) -> str:
    """The networks for a terminal."""
    lines = [
        {
            "profiles": row["profiles"],
            "data": row["workload"].upper(),
            "network": row["network"].upper(),
            "mean RTT, ms": f"{row['mean_rtt_ms']:.1f}",
            "oracle sends away, %": _number(_percent(row["oracle_offloaded_share"]), ".1f"),
        }
        for row in rows
    ]
    return "\n".join(["Networks of each replay (synthetic shapes)", *_lines(lines, 3)])


def _percent(share: float | None) -> float | None:
    return None if share is None else 100 * share
