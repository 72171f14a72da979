"""Ids of the Hugging Face Hub: a small Hub on loopback, its cache, and what is said where neither helps."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.command_line import ROOT
from tests.nmt.loopback_hub import Hub
from tests.nmt.pretrained_folders import nllb_folder


@pytest.fixture(scope="module")
def shelf(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files of the only model of the Hub, with some that no one needs."""
    folder = nllb_folder(tmp_path_factory.mktemp("hub") / "nllb")
    (folder / "pytorch_model.bin").write_bytes(b"not needed beside safetensors")
    (folder / "onnx").mkdir()
    (folder / "onnx" / "encoder_model.onnx").write_bytes(b"of ONNX Runtime")
    (folder / "modeling_mine.py").write_text("raise SystemExit('the code was run')")
    return folder


@pytest.fixture(scope="module")
def hub(shelf: Path) -> Iterator[Hub]:
    with Hub(shelf) as hub:
        yield hub


PROGRAM = """
import sys
from simnmt.nmt.errors import NmtError
from simnmt.nmt.hub import TORCH_WEIGHTS, model_path

for model in sys.argv[2:]:
    try:
        print(model_path(model, eval(sys.argv[1])))
    except NmtError as error:
        print(error, file=sys.stderr)
assert "torch" not in sys.modules
"""


def resolve(cache: Path, url: str, *models: str, weights: str = "TORCH_WEIGHTS", **variables: str) -> tuple[str, str]:
    """Print the paths of models in a process with this cache, where the Hub is at `url`; return output and errors."""
    hub_only = {"HF_ENDPOINT": url, "HF_HOME": str(cache), "PYTHONPATH": str(ROOT), "NO_PROXY": "*"}
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("HF_", "HUGGING"))}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, weights, *models], env=inherited | hub_only | variables, text=True, capture_output=True,
        cwd=cache.parent, timeout=60, check=True,
    )  # fmt: skip
    return done.stdout.strip(), done.stderr


NOWHERE = "http://127.0.0.1:9"
"""Where nothing listens."""


def test_an_id_is_downloaded_once_and_then_found_in_the_cache_without_a_network(hub: Hub, shelf: Path, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    out, err = resolve(cache, hub.url, "me/tiny-model")
    assert err == ""
    assert (Path(out) / "model.safetensors").read_bytes() == (shelf / "model.safetensors").read_bytes()
    assert {file.name for file in Path(out).iterdir()} == {
        file.name for file in shelf.iterdir() if file.name not in ("pytorch_model.bin", "modeling_mine.py", "onnx")
    }
    assert resolve(cache, NOWHERE, "me/tiny-model") == (out, "")
    assert resolve(cache, NOWHERE, "me/tiny-model", HF_HUB_OFFLINE="1") == (out, "")


@pytest.mark.deep
def test_only_the_weights_that_an_engine_reads_are_downloaded(hub: Hub, tmp_path: Path) -> None:
    out, _ = resolve(tmp_path / "cache", hub.url, "me/tiny-model", weights="()")
    assert not (Path(out) / "model.safetensors").exists()


@pytest.mark.deep
def test_an_id_that_is_not_in_the_cache_is_refused_in_one_line_without_a_network(tmp_path: Path) -> None:
    out, err = resolve(tmp_path / "cache", NOWHERE, "me/tiny-model")
    assert out == ""
    assert err.startswith("me/tiny-model is not in the cache of the Hugging Face Hub, ")
    assert err.count("\n") == 1
