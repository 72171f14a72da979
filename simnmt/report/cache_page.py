"""What a cache saves: facts and table for the terminal and the page, and the figure of the page."""

from __future__ import annotations

import numpy as np

from simnmt.report.charts import Axis, Chart, Mark, Panel, numbers
from simnmt.report.page_template import Section, render_page
from simnmt.report.table import Column, Table
from simnmt.results.number_text import digits, duration, percent
from simnmt.workload.arrivals.process import DAY_S
from simnmt.workload.cache_savings import CacheSavings, Saving


def cache_facts(savings: CacheSavings, entries: int | None) -> list[tuple[str, str]]:
    """Return the (name, value) of each figure that stands in no table; `entries`: the size that was asked for."""
    reuse, rate_rps, characters = savings.reuse, savings.rate_rps, savings.characters_per_request
    facts = [
        ("requests", f"{savings.requests:,} of {reuse.distinct:,} different texts; {savings.source.account}"),
        ("repeats", f"{percent(reuse.repeated_share)} of the requests repeat an earlier one"),
    ]
    if rate_rps is not None:
        per_day = "" if characters is None else f", {digits(rate_rps * DAY_S * characters)} characters a day"
        facts.append(("rate", f"{digits(rate_rps)} requests/s{per_day}"))
    if savings.ttl_s is not None:
        facts.append(("lifetime", f"{duration(savings.ttl_s)} from the request that stored an entry"))
    if entries is not None:
        facts.append((f"{entries:,} entries", describe_saving(savings.saving(entries), rate_rps)))
    return facts


def describe_saving(row: Saving, rate_rps: float | None) -> str:
    """Return the sentence on a cache of one size."""
    text = f"the cache answers {percent(row.hit_share)} of the requests"
    if row.characters_saved_share is not None:
        text += f" and {percent(row.characters_saved_share)} of the characters"
    if rate_rps is not None and row.misses_rps is not None:
        text += f"; of {digits(rate_rps)} requests/s {digits(row.misses_rps)} remain"
    return text


def cache_table(savings: CacheSavings) -> Table:
    """Return the table by size."""
    columns = [Column("entries", "entries", 0), Column("hits, %", "hit_share", 1, scale=100.0)]
    if savings.ttl_s is not None:
        columns.append(Column("hits without a lifetime, %", "hit_share_without_ttl", 1, scale=100.0))
    if savings.rate_rps is not None:
        columns.append(Column("requests/s left", "misses_rps"))
    if savings.source.characters is not None:
        columns.append(Column("characters saved, %", "characters_saved_share", 1, scale=100.0))
        if savings.rate_rps is not None:
            columns.append(Column("characters/day left", "characters_left_per_day", 0))
    return Table("Savings by the size of a least-recently-used cache", columns, savings.rows, id="sizes")


def savings_panel(savings: CacheSavings, entries: int | None) -> Panel:
    """Return the figure of hits over sizes."""

    def draw() -> Chart:
        sizes, hover = [row.entries for row in savings.rows], "%{y:.1f} % with %{x:,} entries"

        def line(name: str, key: str, colour: str, dash: str = "solid") -> Mark:
            shares = numbers(100.0 * np.array([getattr(row, key) for row in savings.rows]))
            return Mark("line", sizes, shares, name, colour, dash=dash, symbol="circle", hover=hover)

        marks = [line("of the requests", "hit_share", "accent")]
        if savings.ttl_s is not None:
            marks.append(line("of the requests, without a lifetime", "hit_share_without_ttl", "policy-1", "dot"))
        if savings.source.characters is not None:
            marks.append(line("of the characters", "characters_saved_share", "policy-2", "dash"))
        if entries is not None:
            asked = savings.saving(entries)
            name, share = f"{entries:,} entries", 100.0 * asked.hit_share
            marks.append(Mark("points", [entries], [share], name, "accent", symbol="diamond", size=9.0, hover=hover))
        return Chart(marks, Axis("entries of the cache", log=True), Axis("answered by the cache, %", from_zero=True))

    return Panel("savings", "What a cache saves", "Share of hits by the size of the cache", draw, across=True)


def render_savings(savings: CacheSavings, entries: int | None) -> str:
    """Return the page as text."""
    facts, panels, tables = cache_facts(savings, entries), [savings_panel(savings, entries)], [cache_table(savings)]
    section = Section(f"{savings.requests:,} requests", "cache", facts=facts, panels=panels, tables=tables)
    return render_page("simnmt corpus cache", savings.source.name, [section])
