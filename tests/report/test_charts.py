"""The grammar of charts: what plotly is given, what a page carries, what a notebook shows, and thinner series."""

from __future__ import annotations

import base64
import gzip
import json
from typing import Any

import numpy as np
import plotly.graph_objects as go
import pytest
from hypothesis import given
from hypothesis import strategies as st

import simnmt
from simnmt.report.charts import (
    Axis,
    Chart,
    Control,
    Mark,
    Panel,
    extremes,
    light_palette,
    pack,
    quantile_shares,
    quantiles,
)


def unpacked(text: str) -> Any:
    return json.loads(gzip.decompress(base64.b64decode(text)))


def test_a_line_with_whiskers_gives_plotly_distances_from_the_line_and_none_where_no_end_is_known() -> None:
    mark = Mark("line", [1, 2, 3], [10.0, 20.0, None], "a", low=[8.0, None, None], high=[11.0, None, None])
    trace = mark.trace()
    assert (trace["type"], trace["mode"], trace["name"]) == ("scatter", "lines", "a")
    assert trace["error_y"]["array"] == [1.0, 0.0, 0.0] and trace["error_y"]["arrayminus"] == [2.0, 0.0, 0.0]


def test_a_band_is_one_outline_for_each_run_of_known_ends() -> None:
    low, high = [1.0, 1.0, None, 3.0, 3.0], [2.0, 2.0, None, 4.0, 4.0]
    trace = Mark("band", [0, 1, 2, 3, 4], [], low=low, high=high).trace()
    assert trace["x"] == [0, 1, 1, 0, None, 3, 4, 4, 3, None]
    assert trace["y"] == [2, 2, 1, 1, None, 4, 4, 3, 3, None]


def test_a_logarithmic_span_is_given_in_powers_of_ten_and_names_take_the_place_of_numbers() -> None:
    assert Axis("ms", log=True, span=(10.0, 1000.0)).layout()["range"] == pytest.approx([1.0, 3.0])
    layout = Axis(ticks={0: "a", 1: "b"}).layout()
    assert (layout["tickvals"], layout["ticktext"]) == ([0, 1], ["a", "b"])


def test_a_panel_has_a_chart_for_every_combination_of_options() -> None:
    controls = [
        Control("of", "Of", [("0", "zero"), ("1", "one")], "1"),
        Control("device", "At", [("0", "only")]),
        Control("y", "Axis", [("log", "log"), ("linear", "linear")]),
    ]
    drawn = Panel("p", "P", "a chart", lambda of, device, y: Chart([], reading=f"{of}{device}{y}"), controls)
    assert {options: chart.reading for options, chart in drawn.charts.items()} == {
        ("0", "0", "log"): "00log", ("0", "0", "linear"): "00linear",
        ("1", "0", "log"): "10log", ("1", "0", "linear"): "10linear",
    }  # fmt: skip
    assert drawn.chart.reading == "10log"


def test_long_lists_travel_once_however_many_charts_show_them() -> None:
    values = np.arange(100.0)
    chart = Chart([Mark("line", values, values, "a"), Mark("line", values, [1.0, 2.0], "b")])
    content = unpacked(pack([Panel("p", "P", "", lambda: chart)]))
    assert content["pool"] == [values.tolist()]
    first, second = content["charts"][0][""]["data"]
    assert first["x"] == first["y"] == second["x"] == {"pool": 0}
    assert second["y"] == [1.0, 2.0]
    assert pack([]) == pack([])


def test_a_notebook_shows_the_same_data_in_the_colours_of_light_mode() -> None:
    chart = Chart([Mark("points", [1], [2], "p", colour="policy-1")], Axis("x"), Axis("y", log=True))
    figure = go.Figure(chart.figure(light_palette()))
    assert figure.data[0].x == (1,)
    assert figure.data[0].marker.color == light_palette()["policy-1"] == "#2474b5"
    assert figure.layout.yaxis.type == "log"
    assert figure.layout.template.layout.font.color == light_palette()["soft"]


def test_a_run_shows_the_figures_of_its_page_in_a_notebook_and_lists_them_for_a_wrong_name() -> None:
    result = simnmt.run("@quickstart", requests=300, replications=1)
    assert isinstance(result, simnmt.Run)
    figure = result.figure("latency", network="cp2", y="beyond")
    assert isinstance(figure, go.Figure)
    assert [trace.name for trace in figure.data] == list(result.cells[1].logs)
    p50_ms = {row["policy"]: 1e3 * row["p50_latency_s"] for row in result.summary_rows if row["network"] == "cp2"}
    for trace in figure.data:
        assert np.interp(-0.5, -np.array(trace.y), trace.x) == pytest.approx(p50_ms[trace.name], rel=0.05)
    assert figure.layout.yaxis.type == "log"
    with pytest.raises(simnmt.InputError, match=r"speed.*latency, parts, plane, rtt"):
        result.figure("speed")
    with pytest.raises(simnmt.InputError, match=r"no choice y = 'round'.*y = within, beyond"):
        result.figure("latency", y="round")
    with pytest.raises(simnmt.InputError, match=r"this run has: .*cp1"):
        result.figure("latency", network="lan")


def test_500_quantiles_hold_the_distribution_of_100_000_latencies_within_a_thousandth() -> None:
    values = np.random.default_rng(1).gamma(2.0, 0.1, 100_000)
    shares = quantile_shares(values.size)
    drawn = quantiles(values, shares)
    assert 400 <= shares.size <= 560
    everywhere = np.sort(values)
    error = np.abs(np.interp(everywhere, drawn, shares) - np.arange(values.size) / (values.size - 1))
    assert error.max() < 4e-4
    assert drawn[0] == values.min()
    assert drawn[-1] == values.max()


@pytest.mark.parametrize("count", [1, 2, 10, 1_000])
def test_shares_rise_from_0_to_1_and_cut_no_request_in_two(count: int) -> None:
    shares = quantile_shares(count)
    assert shares[0] == 0
    assert shares[-1] == 1
    assert (np.diff(shares) > 0).all()


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=400), st.integers(4, 60))
def test_a_thinned_series_keeps_its_ends_its_peak_and_its_trough(values: list[float], most: int) -> None:
    column = np.array(values)
    kept = extremes(column, most)
    assert kept.size <= most
    assert (np.diff(kept) > 0).all()
    assert (kept[0], kept[-1]) == (0, column.size - 1)
    assert (column[kept].min(), column[kept].max()) == (column.min(), column.max())
