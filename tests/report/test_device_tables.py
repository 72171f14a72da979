"""What a run's page says of batches, streamed models, energy and money; one without them has nothing of it."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

import simnmt
from simnmt.cli.run_text import format_result
from simnmt.report.page import render
from simnmt.report.pipelines import LABEL, PLOT, DrawnPipeline, pipeline_svg, planned_pipelines_svg
from simnmt.report.run_tables import batch_table, energy_table, plans_table, stream_table
from simnmt.results.device_accounts import PlannedDevice, PlannedState
from simnmt.streaming.plan.timeline import Work, timeline


def assert_holds(table: Any, rows: list[dict[str, Any]], device: str) -> None:
    """Each cell is the number of the summary, and policies without any have no line."""
    used = {row["policy"]: row for row in rows if row[f"{device}_{table.columns[1].value}"] is not None}
    assert {line.name.text: {cell.key: cell.value for cell in line.cells} for line in table.lines[()]} == {
        policy: {column.value: row[f"{device}_{column.value}"] for column in table.columns[1:]} for policy, row in used.items()
    }
    assert 0 < len(used) < len(rows)


def test_a_line_of_numbers_for_each_policy_that_used_the_device_in_batches() -> None:
    result = simnmt.run("@batched-cloud", requests=200, replications=2)
    table = batch_table(result.cells[0], result.summary_rows)
    assert table is not None
    assert_holds(table, result.summary_rows, "cloud")
    first = {cell.key: cell for cell in table.lines[()][0].cells}
    assert first["sentences_per_s"].small.endswith("while busy") and first["first_token_mean_s"].small.startswith("p95 ")


MODEL = "a <b>translation</b> model"


def state(name: str, load_s: float, held: int, read: int) -> PlannedState:
    """Two of four encoder layers and one of four decoder layers of 0.1 s each, of which the first and third are read."""
    first = max(load_s, 0.0)
    third = max(first + 0.2, 2 * load_s)
    return PlannedState(
        name=name, layers=2, decoder_layers=1, slices=2, bits=((2, 4), (6, 2)), held_bytes=held, read_bytes=read,
        latency_s=third + 0.3, stall_s=third - 0.2,
        load=((0.0, load_s), (load_s, load_s), (load_s, 2 * load_s)),
        compute=((first, first + 0.1), (first + 0.1, first + 0.2), (third, third + 0.1)),
    )  # fmt: skip


PLANNED = PlannedDevice(
    deadline_s=0.9, src_len=30, tgt_len=28, preload_bytes=2_000_000, cache_bytes=20_000_000, cold_read_bytes=None,
    working_bytes=16_800_000, plans=2,
    kind="measured", model=MODEL, all_layers=4, all_decoder_layers=4, all_slices=2,
    states=(state("cold", 0.05, 0, 32_200_000), state("turn 1 on", 0.0, 32_200_000, 0)),
)  # fmt: skip


@pytest.fixture(scope="module")
def streamed() -> simnmt.Run:
    return simnmt.run("@sti-gateway", requests=200, replications=1)


def test_policies_that_used_the_model_have_a_line_of_the_summarys_numbers(streamed: simnmt.Run) -> None:
    cell = streamed.cells[0]
    assert_holds(stream_table(cell, streamed.summary_rows, "gateway"), streamed.summary_rows, "gateway")


def test_each_state_of_the_plan_has_a_line() -> None:
    lines = plans_table("gateway", PLANNED).lines[()]
    assert [line.name.text for line in lines] == ["cold", "turn 1 on"]
    assert [cell.text for cell in lines[0].cells] == ["32.2", "0", "4 of 2, 2 of 6", "550", "50"]


def test_the_picture_has_a_box_for_each_layer_at_its_time_and_numbers_the_decoders_on() -> None:
    svg = str(planned_pipelines_svg(PLANNED, "gateway, as planned"))
    titles = re.findall(r"<title>(.*?)</title>", svg)
    assert titles[0] == "gateway, as planned"
    assert "layer 0 read, 0 to 50 ms" in titles and "layer 4 read, 50 to 100 ms" in titles, "the decoder's first is the fifth"
    assert "layer 0 computed, 50 to 150 ms" in titles and "layer 0 computed, 0 to 100 ms" in titles
    assert "waiting for layer 0, 0 to 50 ms" in titles
    assert any(title.endswith("later decoder steps, 350 to 550 ms") for title in titles)
    assert titles[-1] == "deadline 900 ms"
    assert not any("layer 1 read" in title for title in titles), "nothing of it is read"


def test_the_page_shows_plans_picture_and_numbers_and_escapes_names(streamed: simnmt.Run) -> None:
    cell = replace(streamed.cells[0], planned=(PLANNED, None))
    page = render(replace(streamed, cells=[cell]))
    assert 'data-table="streams"' in page and page.count('<svg class="pipelines"') == 1
    assert "a &lt;b&gt;translation&lt;/b&gt; model" in page and MODEL not in page
    assert "2 of 4 encoder and 1 of 4 decoder layers" in page


def test_a_run_without_streamed_models_has_nothing_of_it(make_result: Callable[..., Any]) -> None:
    page = render(make_result(requests=200, networks=("cp1",), workloads=("office",)))
    assert 'data-table="streams"' not in page and '<svg class="pipelines"' not in page


def boxes(svg: str, kind: str) -> list[float]:
    """Begin and width of one box of a kind after the other, in parts of the longest pipeline."""
    elements = [
        element for element in ET.fromstring(svg).iter() if element.tag.endswith("rect") and element.get("class") == kind
    ]
    pairs = [(float(element.get("x", "")) - LABEL, float(element.get("width", ""))) for element in elements]
    return [number / PLOT for pair in pairs for number in pair]


def test_boxes_lie_where_the_times_are() -> None:
    svg = pipeline_svg("p", [DrawnPipeline("one", timeline([1.0, 1.0], Work([0.5, 0.5], 1.5)))], 4.0)
    assert boxes(svg, "io") == pytest.approx([0.0, 0.25, 0.25, 0.25], abs=2e-3)
    assert boxes(svg, "compute") == pytest.approx([0.25, 0.125, 0.5, 0.125], abs=2e-3)
    assert boxes(svg, "stall") == pytest.approx([0.0, 0.25, 0.375, 0.125], abs=2e-3)
    assert boxes(svg, "later") == pytest.approx([0.625, 0.375], abs=2e-3)


@pytest.fixture
def priced(make_scenario: Callable[..., dict[str, Any]]) -> simnmt.Run:
    scenario = make_scenario(policies={"edge": {}, "cloud": {}, "cnmt": {}})
    scenario["devices"]["gateway"]["power"] = {"idle_w": 5, "busy_w": 15}
    scenario["devices"]["cloud"] |= {"power": {"idle_w": 100, "busy_w": 150}, "price_per_hour": 3, "workers": 4}
    scenario["networks"]["cp1"]["joules_per_byte"] = 1e-4
    return simnmt.run(scenario, requests=200, replications=2)


def test_a_page_shows_joules_and_money_of_each_policy(priced: simnmt.Run) -> None:
    page, row = render(priced), priced.summary_rows[1]
    for key in ("mean_energy_j", "mean_static_j", "mean_dynamic_j", "mean_transfer_j", "mean_cost"):
        assert len(re.findall(f'data-column="{key}"', page)) == 3
    table = energy_table(priced.summary_rows)
    assert table is not None
    line = next(line for lines in table.lines.values() for line in lines if line.name.text == row["policy"])
    assert line.cells[0].value == pytest.approx(row["mean_energy_j"])


def test_the_terminal_has_a_table_of_them_with_the_columns_that_are_known(priced: simnmt.Run) -> None:
    text = format_result(priced)
    header = next(line for line in text.splitlines() if "static J" in line)
    assert "money" in header


def test_a_device_of_unknown_power_is_named_with_the_remedy(make_scenario: Callable[..., dict[str, Any]]) -> None:
    scenario = make_scenario(policies={"edge": {}})
    scenario["devices"]["gateway"]["power"] = {"idle_w": 5, "busy_w": 15}
    result = simnmt.run(scenario, requests=50, replications=1)
    assert any("the power of cloud" in note for note in result.notes)
