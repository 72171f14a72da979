"""The ONNX Runtime engine on small exported models, whose decoder is written here with the inputs that optimum gives it."""

from __future__ import annotations

import shutil
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.optional_packages import skip_file_without

skip_file_without("onnxruntime", extra="onnxruntime")
pytest.importorskip("onnx", reason="the package onnx, which exports the models of these tests, is not installed")

from simnmt.batching import mini  # noqa: E402
from simnmt.nmt.engine import DecodeRequest, Work  # noqa: E402
from simnmt.nmt.engines import load_engine  # noqa: E402
from simnmt.nmt.errors import NmtError  # noqa: E402
from simnmt.nmt.marian_model import PretrainedModel  # noqa: E402
from simnmt.nmt.models import load_model  # noqa: E402
from simnmt.nmt.searches import make_search  # noqa: E402
from simnmt.nmt.slot_decoder import SlotDecoder  # noqa: E402
from tests.command_line import ROOT  # noqa: E402
from tests.nmt.pretrained_folders import FOLDERS  # noqa: E402


class Encoder(nn.Module):
    def __init__(self, model: PretrainedModel) -> None:
        super().__init__()
        self.encoder = model.hf.get_encoder()

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        states: Tensor = self.encoder(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state
        return states


class Decoder(nn.Module):
    """A step of a Marian decoder: the first one projects the source, further ones read keys and values."""

    def __init__(self, model: PretrainedModel, *, first: bool) -> None:
        super().__init__()
        self.model, self.first = model, first
        self.hf = model.hf

    def forward(self, mask: Tensor, tokens: Tensor, *rest: Tensor) -> tuple[Tensor, ...]:
        decoder = self.hf.model.decoder
        rows, split = tokens.shape[0], self.model._split
        if self.first:
            (states,) = rest
            source = [(split(k(states)), split(v(states))) for k, v in self.model._source_projections()]
            empty = torch.zeros(rows, self.model.heads, 0, self.model.architecture.head_width)
            past = [(empty, empty)] * len(source)
        else:
            past = list(zip(rest[0::4], rest[1::4], strict=True))
            source = list(zip(rest[2::4], rest[3::4], strict=True))
        # As a tensor, since a number would be a constant of the exported graph.
        position = torch.zeros(1, dtype=torch.int64) if self.first else torch._shape_as_tensor(past[0][0])[2:3]
        hidden = decoder.embed_tokens(tokens) * self.model.architecture.d_model**0.5
        hidden = hidden + decoder.embed_positions.weight[position]
        within, outputs = mask.bool()[:, None, None, :], []
        for layer, (old_keys, old_values), (keys, values) in zip(decoder.layers, past, source, strict=True):
            own, cross = layer.self_attn, layer.encoder_attn
            own_keys = torch.cat((old_keys, split(own.k_proj(hidden))), dim=2)
            own_values = torch.cat((old_values, split(own.v_proj(hidden))), dim=2)
            hidden = layer.self_attn_layer_norm(hidden + own.out_proj(self._attend(own.q_proj(hidden), own_keys, own_values)))
            attended = cross.out_proj(self._attend(cross.q_proj(hidden), keys, values, within))
            hidden = layer.encoder_attn_layer_norm(hidden + attended)
            hidden = layer.final_layer_norm(hidden + layer.fc2(layer.activation_fn(layer.fc1(hidden))))
            outputs += [own_keys, own_values, *((keys, values) if self.first else ())]
        return self.hf.lm_head(hidden) + self.hf.final_logits_bias, *outputs

    def _attend(self, query: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None = None) -> Tensor:
        scores = self.model._split(query) @ keys.transpose(2, 3) * keys.shape[-1] ** -0.5
        if mask is not None:
            scores = scores.masked_fill(~mask, -1e9)
        return (scores.softmax(dim=-1) @ values).transpose(1, 2).reshape(query.shape)


def export(folder: Path, model: PretrainedModel) -> None:
    """Write the three files of optimum's export with past keys and values."""
    tokens, mask = torch.randint(2, 9, (2, 5)), torch.ones(2, 5, dtype=torch.int64)
    layers = range(model.architecture.decoder_layers)

    def names(kind: str, parts: tuple[str, ...]) -> list[str]:
        return [f"{kind}.{layer}.{part}.{what}" for layer in layers for part in parts for what in ("key", "value")]

    def write(name: str, module: nn.Module, inputs: tuple[Tensor, ...], given: list[str], made: list[str]) -> None:
        axes = {one: {0: "batch", (2 if "." in one else 1): f"length of {one}"} for one in [*given, *made] if one != "logits"}
        with warnings.catch_warnings(), torch.no_grad():
            warnings.simplefilter("ignore")
            torch.onnx.export(
                module, inputs, str(folder / f"{name}.onnx"), input_names=given, output_names=made,
                dynamic_axes=axes | {"logits": {0: "batch"}}, dynamo=False, opset_version=17,
            )  # fmt: skip

    model.hf.set_attn_implementation("eager")
    encoder = Encoder(model)
    states = encoder(tokens, mask)
    write("encoder_model", encoder, (tokens, mask), ["input_ids", "attention_mask"], ["last_hidden_state"])
    both, own = ("decoder", "encoder"), ("decoder",)
    first = Decoder(model, first=True)
    given = ["encoder_attention_mask", "input_ids"]
    with torch.no_grad():
        _, *cached = first(mask, tokens[:, :1], states)
    write(
        "decoder_model", first, (mask, tokens[:, :1], states), [*given, "encoder_hidden_states"],
        ["logits", *names("present", both)],
    )  # fmt: skip
    write(
        "decoder_with_past_model", Decoder(model, first=False), (mask, tokens[:, :1], *cached),
        [*given, *names("past_key_values", both)], ["logits", *names("present", own)],
    )  # fmt: skip


def merge(folder: Path) -> None:
    """Write decoder_model_merged.onnx as optimum does: an If over both decoders, in place of them."""
    import onnx
    from onnx import helper

    first, later = (onnx.load(folder / f"{name}.onnx").graph for name in ("decoder_model", "decoder_with_past_model"))
    outputs = list(first.output)
    kept = [one.name for one in outputs if ".encoder." in one.name]
    same = [helper.make_node("Identity", [name.replace("present", "past_key_values")], [name]) for name in kept]
    branches = [
        helper.make_graph([*graph.node, *more], name, [], outputs, initializer=list(graph.initializer))
        for name, graph, more in (("first", first, []), ("later", later, same))
    ]
    for branch in branches:
        for value in branch.output:
            value.name += f" {branch.name}"
        for node in branch.node:
            node.output[:] = [
                f"{name} {branch.name}" if name in {one.name for one in outputs} else name for name in node.output
            ]
            node.input[:] = [f"{name} {branch.name}" if name in {one.name for one in outputs} else name for name in node.input]
    choice = helper.make_node(
        "If", ["use_cache_branch"], [one.name for one in outputs], then_branch=branches[1], else_branch=branches[0]
    )
    flag = helper.make_tensor_value_info("use_cache_branch", onnx.TensorProto.BOOL, [1])
    inputs = {one.name: one for one in [*first.input, *later.input]}
    graph = helper.make_graph([choice], "merged", [*inputs.values(), flag], outputs)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, folder / "decoder_model_merged.onnx")
    for name in ("decoder_model", "decoder_with_past_model"):
        (folder / f"{name}.onnx").unlink()


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An OPUS-MT folder with its export beside the weights."""
    folder = FOLDERS["opus"](tmp_path_factory.mktemp("onnx") / "opus")
    model = load_model(str(folder)).model
    assert isinstance(model, PretrainedModel)
    export(folder, model)
    return folder


def sources(model: PretrainedModel) -> list[list[int]]:
    draw = torch.Generator().manual_seed(3)
    return [[*torch.randint(5, 90, (length,), generator=draw).tolist(), model.eos_token] for length in (4, 9, 6, 13, 7)]


def translated(engine: Any, texts: list[list[int]], beam: int, **limits: int) -> list[Any]:
    decoder = engine.sentence_decoder(mini(len(texts)), beam)
    for key, source in enumerate(texts):
        decoder.arrive(key, DecodeRequest(source, **limits))
    decoder.batcher.close()
    done: dict[int, Any] = {}
    while decoder.busy:
        done |= dict(decoder.act()[1])
    return [done[key] for key in range(len(texts))]


@pytest.mark.parametrize("beam", [1, 3])
@pytest.mark.parametrize("limits", [{"forced_len": 20}, {"max_len": 30}], ids=str)
def test_it_finds_the_translations_of_torch(exported: Path, beam: int, limits: dict[str, int]) -> None:
    model = load_model(str(exported)).model
    texts = sources(model)
    engine = load_engine(str(exported), backend="onnxruntime", threads=1)
    theirs = translated(engine, texts, beam, **limits)
    search = lambda: make_search(model, beam, scored=True)  # noqa: E731
    decoder = SlotDecoder(model, beam=beam, capacity=len(texts), search=search)
    keys = range(len(texts))
    decoder.join(decoder.encode(texts), keys, [limits.get("forced_len")] * len(texts), [limits.get("max_len")] * len(texts))
    ours: dict[int, Any] = {}
    while decoder.active:
        ours |= dict(decoder.step())
    assert [one.tokens for one in theirs] == [ours[key].tokens for key in keys]
    assert [one.steps for one in theirs] == [ours[key].steps for key in keys]
    if theirs[0].score is not None:
        assert [one.score for one in theirs] == pytest.approx([ours[key].score for key in keys], abs=1e-4)
    assert len({one.tokens for one in theirs}) > 1


@pytest.mark.parametrize("beam", [1, 3])
def test_a_merged_decoder_finds_the_same(exported: Path, tmp_path: Path, beam: int) -> None:
    folder = tmp_path / "merged"
    shutil.copytree(exported, folder)
    merge(folder)
    texts = sources(load_model(str(exported)).model)
    apart, merged = (
        translated(load_engine(str(place), backend="onnxruntime", threads=1), texts, beam, max_len=12)
        for place in (exported, folder)
    )
    assert merged == apart


def test_it_times_the_encoder_and_each_step(exported: Path) -> None:
    engine = load_engine(str(exported), backend="onnxruntime", threads=1)
    timing = engine.run(Work(5, 7, batch=3, beam=2))
    assert timing.encode_s is not None and timing.steps_s is not None
    assert len(timing.steps_s) == 7 and min(timing.encode_s, *timing.steps_s) > 0
    assert timing.encode_s + sum(timing.steps_s) <= timing.total_s
    assert (engine.account.backend, engine.account.architecture["kind"]) == ("onnxruntime", "transformer")
    with pytest.raises(NmtError, match="a target of 129 tokens where the model has 128 positions"):
        engine.run(Work(5, 129))
    engine.close()
    with pytest.raises(NmtError, match="closed"):
        engine.run(Work(2, 2))


def test_a_folder_named_onnx_and_exports_alone_suffice_without_torch(exported: Path, tmp_path: Path) -> None:
    (tmp_path / "model" / "onnx").mkdir(parents=True)
    shutil.copy(exported / "config.json", tmp_path / "model")
    for file in exported.glob("*.onnx"):
        shutil.copy(file, tmp_path / "model" / "onnx")
    code = (
        "import sys\nfrom simnmt.nmt.engines import load_engine\nfrom simnmt.nmt.engine import Work\n"
        "sys.modules['torch'] = None\n"
        "print(load_engine(sys.argv[1], backend='onnxruntime', threads=1).run(Work(3, 4)).total_s > 0)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "model")], env={"PYTHONPATH": str(ROOT)}, text=True, capture_output=True,
        timeout=60, check=False,
    )  # fmt: skip
    assert done.stdout == "True\n", done.stderr
    with pytest.raises(NmtError, match=r"no usable weights|only holds weights for ONNX Runtime"):
        load_model(str(tmp_path / "model"))


@pytest.mark.parametrize(
    ("gone", "message"),
    [
        (("encoder_model.onnx",), "holds no encoder_model.onnx (export it with optimum-cli"),
        (("decoder_with_past_model.onnx",), "holds neither decoder_model_merged.onnx nor decoder_with_past_model.onnx"),
        (("config.json",), "ONNX Runtime runs exported folders alone"),
    ],
    ids=["encoder", "decoder", "configuration"],
)
def test_a_folder_without_an_export_is_refused_in_one_line(
    exported: Path, tmp_path: Path, gone: tuple[str, ...], message: str
) -> None:
    shutil.copytree(exported, tmp_path / "model")
    for name in gone:
        (tmp_path / "model" / name).unlink()
    with pytest.raises(NmtError) as caught:
        load_engine(str(tmp_path / "model"), backend="onnxruntime")
    assert message in str(caught.value) and "\n" not in str(caught.value)


def test_a_damaged_export_is_refused_in_one_line(exported: Path, tmp_path: Path) -> None:
    shutil.copytree(exported, tmp_path / "model")
    (tmp_path / "model" / "decoder_model.onnx").write_bytes(b"no model")
    with pytest.raises(NmtError, match="no usable model for ONNX Runtime: ") as caught:
        load_engine(str(tmp_path / "model"), backend="onnxruntime")
    assert "\n" not in str(caught.value)
    with pytest.raises(NmtError, match="no bfloat16 with ONNX Runtime on this cpu"):
        load_engine(str(exported), backend="onnxruntime", compute_type="bfloat16")
    with pytest.raises(NmtError, match=r"holds no encoder_model_quantized\.onnx"):
        load_engine(str(exported), backend="onnxruntime", compute_type="int8")
