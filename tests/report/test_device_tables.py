"""What a run's page says of batches, streamed models, energy and money; one without them has nothing of it."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import simnmt
from simnmt.cli.run_text import format_result
from simnmt.report.page import render
from simnmt.report.pipelines import LABEL, PLOT, DrawnPipeline, pipeline_svg, planned_pipelines_svg
from simnmt.report.run_tables import STREAM_COLUMNS, batch_table, energy_table, plans_table, stream_table
from simnmt.results.device_accounts import BatchAccount, BoxesAccount, PlannedDevice, PlannedState, StreamAccount
from simnmt.streaming.plan.timeline import Work, timeline

SIZE = 4
OF_BATCHES = {
    "mean_batch": 2.5, "full_share": 0.25, "below_8_share": 1.0, "padding_share": 0.104,
    "busy_share": 0.75, "mean_queue_s": 0.0125, "first_token_mean_s": 0.031,
    "first_token_p95_s": 0.062, "sentences_per_s": 41.2, "tokens_per_s": 1048.0,
    "busy_sentences_per_s": 55.0, "busy_tokens_per_s": None,
}  # fmt: skip


def batch_account(steps: tuple[int, ...], size: int = SIZE) -> BatchAccount:
    """So many steps with 1, 2, ... active; each takes 1 ms and one more per active sentence."""
    counts = np.array([0, *steps], np.int64)
    step_s = counts * (1 + np.arange(size + 1)) * 1e-3
    return BatchAccount(size, counts, step_s, 0.01, 0.002, 3, 2, 30, 36, 8)


@pytest.fixture
def batched(make_result: Callable[..., Any]) -> Any:
    """Two policies with batches in the cloud, one that sent nothing there, two without."""
    result = make_result(requests=500, networks=("cp1",), workloads=("office",), name="batched")
    accounts = {
        "cloud": (None, batch_account((1, 2, 3, 4))),
        "cnmt": (None, batch_account((10, 0, 0, 10))),
        "edge": (None, batch_account((0, 0, 0, 0))),
    }
    result.cells[0] = replace(result.cells[0], batches=accounts)
    for row in result.summary_rows:
        row |= {f"cloud_{key}": value if row["policy"] in ("cloud", "cnmt") else None for key, value in OF_BATCHES.items()}
    return result


def test_a_line_of_numbers_for_each_policy_that_used_the_device(batched: Any) -> None:
    table = batch_table(batched.cells[0], batched.summary_rows)
    assert table is not None
    lines = {line.name.text: {cell.key: (cell.text, cell.small) for cell in line.cells} for line in table.lines[()]}
    assert list(lines) == ["edge", "cloud", "cnmt"], "an account with sentences counts, even one without a step"
    assert lines["cnmt"] == {
        "mean_batch": ("2.5", ""), "full_share": ("25.0", ""), "below_8_share": ("100.0", ""), "padding_share": ("10.4", ""),
        "busy_share": ("75.0", ""), "mean_queue_s": ("12.5", ""), "first_token_mean_s": ("31", "p95 62"),
        "sentences_per_s": ("41.2", "55 while busy"), "tokens_per_s": ("1\u202f048", ""),
    }  # fmt: skip


MODEL = "a <b>translation</b> model"
OF_STREAMS = {
    "cold_share": 0.125, "cold_mean_s": 0.4125, "first_turn_mean_s": 0.25, "later_turn_mean_s": None, "stall_share": 0.3,
    "missed_share": 0.0, "cold_decision_regret_s": 0.0875, "read_mean_bytes": 30_300_000.0, "mean_buffer_bytes": 7_650_000.0,
    "peak_buffer_bytes": 19_700_000.0, "peak_shard_bytes": 32_200_000.0, "compute_busy_share": 0.02, "disk_busy_share": 0.01,
}  # fmt: skip


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


def account(requests: tuple[int, int]) -> StreamAccount:
    """So many cold and warm requests."""
    boxes = BoxesAccount(1, 1.0, 0.5, 10, 20, 25, 30.0, 40)
    return StreamAccount(np.array(requests), np.ones(2), np.zeros(2), np.zeros(2, np.int64), boxes)


@pytest.fixture
def streamed(make_result: Callable[..., Any]) -> Any:
    """A gateway that streams: two policies used it, one did not."""
    result = make_result(requests=500, networks=("cp1",), workloads=("office",), name="streamed")
    accounts = {"edge": (account((1, 9)), None), "cnmt": (account((3, 4)), None), "cloud": (account((0, 0)), None)}
    result.cells[0] = replace(result.cells[0], planned=(PLANNED, None), streams=accounts)
    for row in result.summary_rows:
        row |= {f"gateway_{key}": value if row["policy"] in ("edge", "cnmt") else None for key, value in OF_STREAMS.items()}
    return result


def test_policies_that_used_the_model_have_a_line_of_the_summarys_numbers(streamed: Any) -> None:
    lines = stream_table(streamed.cells[0], streamed.summary_rows, "gateway").lines[()]
    assert [line.name.text for line in lines] == ["edge", "cnmt"]
    texts = {cell.key: cell.text for cell in lines[0].cells}
    assert list(texts) == [column.value for column in STREAM_COLUMNS[1:]]
    assert texts["cold_share"] == "12.5" and texts["cold_mean_s"] == "412.5"
    assert texts["later_turn_mean_s"] == "\u2013" and texts["read_mean_bytes"] == "30.3"
    assert [cell.small for cell in lines[0].cells if cell.small] == ["peak 19.7"]


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


def test_the_page_shows_plans_picture_and_numbers_and_escapes_names(streamed: Any) -> None:
    page = render(streamed)
    assert 'data-table="streams"' in page and page.count('<svg class="pipelines"') == 1
    assert "a &lt;b&gt;translation&lt;/b&gt; model" in page and MODEL not in page
    assert "2 of 4 encoder and 1 of 4 decoder layers" in page
    assert re.search(r'data-column="cold_decision_regret_s" data-value="0.0875"><span class="value">87.5<', page)


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
