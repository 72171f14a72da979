"""What a run's page says and draws of streamed models, and that a run without them has nothing of it."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from simnmt.report.page import render
from simnmt.report.pipelines import planned_pipelines_svg
from simnmt.report.run_tables import STREAM_COLUMNS, plans_table, stream_table
from simnmt.results.device_accounts import BoxesAccount, PlannedDevice, PlannedState, StreamAccount

MODEL = "a <b>translation</b> model"
SAID = {
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
        row |= {f"gateway_{key}": value if row["policy"] in ("edge", "cnmt") else None for key, value in SAID.items()}
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


def test_what_is_computed_before_the_layers_is_no_wait_and_the_picture_ends_when_the_request_does() -> None:
    """An encoder alone, whose class is told after its last layer."""
    encoder = replace(
        PLANNED.states[1], decoder_layers=0, before_s=0.02, latency_s=0.27, load=((0.0, 0.01), (0.01, 0.02)),
        compute=((0.02, 0.12), (0.12, 0.22)),
    )  # fmt: skip
    titles = re.findall(r"<title>(.*?)</title>", str(planned_pipelines_svg(replace(PLANNED, states=(encoder,)), "gateway")))
    assert not any("waiting" in title for title in titles)
    assert any(title.endswith(", 0 to 20 ms") for title in titles) and any(
        title.endswith(", 220 to 270 ms") for title in titles
    )


def test_the_page_shows_plans_picture_and_numbers_and_escapes_names(streamed: Any) -> None:
    page = render(streamed)
    assert 'data-table="streams"' in page and page.count('<svg class="pipelines"') == 1
    assert "a &lt;b&gt;translation&lt;/b&gt; model" in page and MODEL not in page
    assert "2 of 4 encoder and 1 of 4 decoder layers" in page
    assert re.search(r'data-column="cold_decision_regret_s" data-value="0.0875"><span class="value">87.5<', page)


def test_a_run_without_streamed_models_has_nothing_of_it(make_result: Callable[..., Any]) -> None:
    page = render(make_result(requests=200, networks=("cp1",), workloads=("office",)))
    assert 'data-table="streams"' not in page and '<svg class="pipelines"' not in page
