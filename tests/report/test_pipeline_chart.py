"""Pipelines as pictures: each box is where its layer's time is."""

from __future__ import annotations

import xml.etree.ElementTree as ET

import pytest

from simnmt.report.pipelines import LABEL, PLOT, DrawnPipeline, pipeline_svg
from simnmt.streaming.plan.timeline import Work, timeline


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


def test_the_last_bar_ends_at_the_latency_whatever_is_computed_besides_the_layers() -> None:
    result = timeline([1.0, 1.0], Work([0.5, 0.5], 0.75, 1.25, before_s=0.4))
    svg = pipeline_svg("p", [DrawnPipeline("one", result)])
    assert result.latency_s == pytest.approx(3.25)
    embedding, head = boxes(svg, "later")[:2], boxes(svg, "later")[2:]
    assert embedding == pytest.approx([0.0, 0.5 / 3.25], abs=2e-3)
    assert sum(head) == pytest.approx(1.0, abs=2e-3)


def test_what_takes_no_time_has_no_box_and_names_are_text() -> None:
    svg = pipeline_svg("a & b", [DrawnPipeline("<i>", timeline([0.0, 0.0], Work([0.5, 0.5])), [0, 6])])
    assert boxes(svg, "io") == []
    texts = ["".join(element.itertext()) for element in ET.fromstring(svg).iter() if element.tag.endswith("text")]
    assert "<i>" in texts
    assert "6" in texts
    assert "layer 6 computed, 500 to 1" in svg
