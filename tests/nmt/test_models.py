"""From names, files and folders to models: sizes, what survives a disk, and what is said of a damaged one."""

from __future__ import annotations

import builtins
import json
import pickle
from collections.abc import Callable
from pathlib import Path

import huggingface_hub
import pytest
import torch
from safetensors.torch import save_model

from simnmt.nmt.architecture import ARCHITECTURES as NAMED
from simnmt.nmt.architecture import RecurrentArchitecture, read_architecture
from simnmt.nmt.checkpoint import save_checkpoint
from simnmt.nmt.errors import NmtError
from simnmt.nmt.models import TranslationModel, build_model, load_model
from simnmt.nmt.pretrained_config import model_path
from simnmt.nmt.recurrent_model import RecurrentModel
from simnmt.nmt.transformer_model import TransformerModel
from tests.nmt.tiny import ARCHITECTURES, GRU, MARIAN, lively, sources, together


def test_the_three_models_have_the_sizes_of_the_paper() -> None:
    """CNMT-13: a 2-layer BiLSTM of 500, a 1-layer GRU of 256, and MarianMT; built without memory for weights."""
    with torch.device("meta"):
        bilstm, gru, marian = (build_model(NAMED[name]) for name in ("bilstm", "gru", "marian"))
    assert isinstance(bilstm, RecurrentModel)
    assert isinstance(gru, RecurrentModel)
    assert (bilstm.encoder.num_layers, bilstm.encoder.hidden_size, bilstm.encoder.bidirectional) == (2, 250, True)
    assert (bilstm.decoder.num_layers, bilstm.decoder.hidden_size) == (2, 500)
    assert (gru.encoder.num_layers, gru.encoder.hidden_size, gru.decoder.hidden_size) == (1, 256, 256)
    weights = {id(weight): weight.numel() for weight in marian.parameters()}
    assert sum(weights.values()) == pytest.approx(77.9e6, rel=0.01)  # opus-mt-en-zh's


def test_the_model_of_the_paper_on_top_up_batching_has_its_sizes() -> None:
    """FNI-13: a GRU of 512 units with two vocabularies of 85,000 pieces."""
    preset = NAMED["gru-512"]
    assert isinstance(preset, RecurrentArchitecture)
    assert (preset.kind, preset.hidden, preset.src_vocab, preset.tgt_vocab) == ("gru", 512, 85_000, 85_000)


@pytest.mark.parametrize("suffix", [".yaml", ".json"])
@pytest.mark.parametrize("name", ["bilstm", "marian"])
def test_an_architecture_is_read_from_yaml_and_json(tmp_path: Path, name: str, suffix: str) -> None:
    path = tmp_path / f"model{suffix}"
    fields = ARCHITECTURES[name].model_dump()
    lines = "\n".join(f"{key}: {json.dumps(value)}" for key, value in fields.items())
    path.write_text(json.dumps(fields) if suffix == ".json" else lines, encoding="utf-8")
    assert read_architecture(path) == ARCHITECTURES[name]


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("kind: lstm", "kind"),
        ("{kind: gru, layers: 1, hidden: 8, embedding: 8, src_vocab: 9, tgt_vocab: 9, hiden: 3}", "hiden"),
        ("{kind: gru, layers: 1.5, hidden: 8, embedding: 8, src_vocab: 9, tgt_vocab: 9}", "layers"),
        ("kind: \x00", ""),
    ],
)
def test_a_wrong_architecture_is_refused(tmp_path: Path, text: str, place: str) -> None:
    path = tmp_path / "model.yaml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(NmtError, match=f"{path}.*{place}"):
        load_model(str(path))


def assert_same_speech(one: TranslationModel, other: TranslationModel, alone: list[list[int]]) -> None:
    """The same tokens, and scores to their rounding: it may differ where the weights lie elsewhere in memory."""
    ones, others = (together(model, alone, max_len=30) for model in (one, other))
    assert [hypothesis.tokens for hypothesis in ones] == [hypothesis.tokens for hypothesis in others]
    assert [hypothesis.score for hypothesis in ones] == pytest.approx([hypothesis.score for hypothesis in others], rel=1e-6)


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_a_saved_and_loaded_model_translates_equally(tmp_path: Path, name: str) -> None:
    model = lively(name)
    alone, _, _ = sources(ARCHITECTURES[name], [3, 9, 5, 7])
    save_checkpoint(tmp_path / "model", model, ARCHITECTURES[name])
    again = load_model(str(tmp_path / "model"))
    assert (again.architecture, again.weights) == (ARCHITECTURES[name], "checkpoint")
    assert_same_speech(again.model, model, alone)


DAMAGES: dict[str, Callable[[Path], object]] = {
    "truncated": lambda weights: weights.write_bytes(weights.read_bytes()[:-100]),
    "torch's own form": lambda weights: torch.save({"projection.weight": torch.zeros(2)}, weights),
    "a folder": lambda weights: (weights.unlink(), weights.mkdir()),
    "of another width": lambda weights: save_model(build_model(GRU.model_copy(update={"hidden": 8})), weights),
    "of another kind": lambda weights: save_model(build_model(MARIAN), weights),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_weights_that_do_not_fit_are_refused(tmp_path: Path, damage: str) -> None:
    save_checkpoint(tmp_path, build_model(GRU), GRU)
    DAMAGES[damage](tmp_path / "model.safetensors")
    with pytest.raises(NmtError) as caught:
        load_model(str(tmp_path))
    assert str(tmp_path) in caught.value.path


def test_loading_a_pickle_runs_no_code(tmp_path: Path) -> None:
    """Weights in torch's form are read as weights only: what a pickle would call is not called."""
    model = lively("marian")
    assert isinstance(model, TransformerModel)
    model.hf.config.save_pretrained(tmp_path)
    (tmp_path / "pytorch_model.bin").write_bytes(pickle.dumps(Trap()))
    with pytest.raises(NmtError, match="weights"):
        load_model(str(tmp_path))


class Trap:
    def __reduce__(self) -> tuple[object, ...]:
        return (pytest.fail, ("a pickle was run",))


def test_code_beside_a_configuration_is_neither_run_nor_asked_about(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def asked(prompt: str = "") -> str:
        pytest.fail(f"asked {prompt}")

    monkeypatch.setattr(builtins, "input", asked)
    fields = {"model_type": "mine", "auto_map": {"AutoConfig": "mine.MineConfig"}}
    (tmp_path / "config.json").write_text(json.dumps(fields), encoding="utf-8")
    (tmp_path / "mine.py").write_text("raise SystemExit('the code was run')", encoding="utf-8")
    with pytest.raises(NmtError) as caught:
        load_model(str(tmp_path))
    assert caught.value.path == str(tmp_path)
    assert capfd.readouterr() == ("", "")


def test_an_id_is_taken_from_the_cache_or_refused_in_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a network."""
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    commit = "0123456789abcdef0123456789abcdef01234567"
    folder = tmp_path / "models--me--cached" / "snapshots" / commit
    folder.mkdir(parents=True)
    (folder / "config.json").touch()
    (tmp_path / "models--me--cached" / "refs").mkdir()
    (tmp_path / "models--me--cached" / "refs" / "main").write_text(commit)
    assert model_path("me/cached") == str(folder)
    with pytest.raises(NmtError, match="me/not-cached"):
        model_path("me/not-cached")
