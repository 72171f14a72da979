"""The documentation's examples of arrivals are ones that a scenario may say, and there is one of every kind."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any, get_args

import pytest
from pydantic import TypeAdapter
from ruamel.yaml import YAML

from simnmt.workload.arrivals import Arrivals

PAGE = Path(__file__).resolve().parents[2] / "docs" / "reference" / "arrivals.md"
BLOCKS = [
    YAML(typ="safe").load(block) for block in re.findall(r"^```yaml\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.M | re.S)
]
EXAMPLES = [keys["arrivals"] for block in BLOCKS for keys in block.get("workloads", {"": block}).values()]


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example["kind"])
def test_an_example_loads(tmp_path: Path, example: dict[str, Any]) -> None:
    for name in ("azure.csv", "rates.csv"):
        shutil.copy(Path(__file__).parent / "arrivals" / name, tmp_path)
    process = TypeAdapter(Arrivals).validate_python(example).process(tmp_path)
    if process.discipline == "open":
        assert process.mean_rate_rps == pytest.approx(2.5, rel=0.5)


def test_there_is_one_of_every_kind() -> None:
    kinds = {get_args(kind.model_fields["kind"].annotation)[0] for kind in get_args(get_args(Arrivals)[0])}
    assert {example["kind"] for example in EXAMPLES} == kinds
    for kind in kinds:
        assert f"[`{kind}`](#" in PAGE.read_text(encoding="utf-8")
