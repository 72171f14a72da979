"""Write two packages of Argos Translate, de-en and en-de, whose model copies: `python copying_packages.py FOLDER`.

Run by the Python of LibreTranslate's environment. Sizes are those of an Argos model: a Transformer of 6 + 6 layers, 512 wide,
24,000 pieces, int8. The weights are random, but nothing is added to the state except by the last cross-attention: position n
of the decoder attends to the source's token n and outputs that token. The splitter ends sentences at ".", "!", "?" before a
space; an LSTM of the size of MiniSBD's runs beside, with no weight in the result.
"""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import numpy as np
import onnx
from ctranslate2.specs import TransformerSpec
from onnx import TensorProto, helper, numpy_helper
from pieces import CONTROL, make_pieces
from sentencepiece import sentencepiece_model_pb2 as sentencepiece

LAYERS, WIDTH, HEADS, FEED_FORWARD, LONGEST = 6, 512, 8, 2048, 2048
HEAD = WIDTH // HEADS
"""The first HEAD components of a state encode its position, the others its token."""
GAIN = 0.1
"""Of the scores: a copied token has 45, any other at most 10."""
RANDOM = np.random.default_rng(48)


def draw(*shape: int) -> np.ndarray:
    return RANDOM.standard_normal(shape, np.float32) * np.float32(shape[-1] ** -0.5)


def write_tokenizer(path: Path, tokens: list[str]) -> None:
    """Write a SentencePiece model of these tokens, of which the first three are control tokens."""
    model = sentencepiece.ModelProto()
    model.trainer_spec.model_type = sentencepiece.TrainerSpec.BPE
    model.normalizer_spec.name = "identity"
    kinds = [sentencepiece.ModelProto.SentencePiece.UNKNOWN, *[sentencepiece.ModelProto.SentencePiece.CONTROL] * 2]
    for index, token in enumerate(tokens):
        kind = kinds[index] if index < len(kinds) else sentencepiece.ModelProto.SentencePiece.NORMAL
        model.pieces.add(piece=token, score=-float(index), type=kind)
    path.write_bytes(model.SerializeToString())


def write_model(folder: Path, tokens: list[str]) -> None:
    """Write the Transformer in CTranslate2's format."""
    spec = TransformerSpec.from_config(LAYERS, HEADS)
    codes = np.zeros((len(tokens), WIDTH), np.float32)
    half = (WIDTH - HEAD) // 2
    codes[:, HEAD:] = RANDOM.permuted(np.tile(np.repeat(np.float32([-1, 1]), half), (len(tokens), 1)), axis=1)
    frequencies = RANDOM.uniform(0, np.pi, HEAD // 2)  # random: no two distances have nearly equal encodings
    angles = np.arange(LONGEST)[:, None] * frequencies
    positions = np.zeros((LONGEST, WIDTH), np.float32)
    positions[:, :HEAD] = np.concatenate([np.cos(angles), np.sin(angles)], axis=1)

    position_query = np.zeros((WIDTH, WIDTH), np.float32)
    for head in range(HEADS):
        position_query[head * HEAD : (head + 1) * HEAD, :HEAD] = 2 * np.eye(HEAD)
    token_value = np.zeros((WIDTH, WIDTH), np.float32)
    token_value[:-HEAD, HEAD:] = np.eye(WIDTH - HEAD)

    def attention(layer: object, copying: bool = False) -> None:
        normalise(layer.layer_norm)
        crossed = len(layer.linear) == 3
        shapes = [(WIDTH, WIDTH), (2 * WIDTH, WIDTH)] if crossed else [(3 * WIDTH, WIDTH)]
        weights = [*(draw(*shape) for shape in shapes), np.zeros((WIDTH, WIDTH), np.float32)]
        if copying:
            weights = [position_query, np.concatenate([position_query, token_value]), 4 * token_value.T]
        for linear, values in zip(layer.linear, weights, strict=True):
            fill(linear, values)

    def normalise(layer: object) -> None:
        layer.gamma, layer.beta = np.ones(WIDTH, np.float32), np.zeros(WIDTH, np.float32)

    def fill(linear: object, weight: np.ndarray) -> None:
        linear.weight, linear.bias = np.ascontiguousarray(weight, np.float32), np.zeros(len(weight), np.float32)

    for side in (spec.encoder, spec.decoder):
        side.scale_embeddings = False
        side.position_encodings.encodings = positions
        normalise(side.layer_norm)
        for layer in side.layer:
            attention(layer.self_attention)
            normalise(layer.ffn.layer_norm)
            fill(layer.ffn.linear_0, draw(FEED_FORWARD, WIDTH))
            fill(layer.ffn.linear_1, np.zeros((WIDTH, FEED_FORWARD)))
    for layer in spec.decoder.layer:
        attention(layer.attention, copying=layer is spec.decoder.layer[-1])
    spec.encoder.embeddings[0].weight = codes
    spec.decoder.embeddings.weight = np.zeros_like(codes)
    fill(spec.decoder.projection, GAIN * codes)
    spec.config.add_source_eos = True
    spec.register_source_vocabulary(tokens)
    spec.register_target_vocabulary(tokens)
    spec.validate()
    spec.optimize(quantization="int8")
    folder.mkdir()
    spec.save(str(folder))


def write_splitter(path: Path) -> None:
    """Write a MiniSBD model: from characters and features to scores of "inside", "end of token" and "end of sentence"."""
    characters = ["<PAD>", "<UNK>", " ", *map(chr, range(33, 127)), *"äöüßÄÖÜ"]
    hidden, width, features = 64, 32, 4
    ends = np.array([float(character in ".!?") for character in characters], np.float32)
    gaps = np.array([float(character in ("<PAD>", " ")) for character in characters], np.float32)
    constants = {
        "ends": ends, "gaps": gaps, "embedding": draw(len(characters), width),
        "one": np.int64([1]), "last": np.int64([2**31]), "axis": np.int64([1]), "pads": np.int64([0, 0, 0, 1]),
        "as_scores": np.float32([-10, 0, 10]), "base": np.float32([1, 0, 0]),
        "input_weights": draw(2, 4 * hidden, width + features), "state_weights": draw(2, 4 * hidden, hidden),
        "rows": np.int64([0, 0, 2 * hidden]), "nothing": np.zeros((2 * hidden, 3), np.float32), "score_axis": np.int64([2]),
    }  # fmt: skip
    nodes = [
        # A sentence ends at a mark before a gap.
        helper.make_node("Slice", ["units", "one", "last", "axis"], ["shifted"]),
        helper.make_node("Pad", ["shifted", "pads"], ["following"]),
        helper.make_node("Gather", ["ends", "units"], ["is_end"]),
        helper.make_node("Gather", ["gaps", "following"], ["before_gap"]),
        helper.make_node("Mul", ["is_end", "before_gap"], ["sentence_end"]),
        helper.make_node("Unsqueeze", ["sentence_end", "score_axis"], ["column"]),
        helper.make_node("Mul", ["column", "as_scores"], ["rule"]),
        helper.make_node("Add", ["rule", "base"], ["rule_scores"]),
        # The time of a real splitter.
        helper.make_node("Gather", ["embedding", "units"], ["vectors"]),
        helper.make_node("Concat", ["vectors", "features"], ["inputs"], axis=2),
        helper.make_node("Transpose", ["inputs"], ["by_time"], perm=[1, 0, 2]),
        helper.make_node(
            "LSTM", ["by_time", "input_weights", "state_weights"], ["states"], hidden_size=hidden, direction="bidirectional"
        ),
        helper.make_node("Transpose", ["states"], ["by_text"], perm=[2, 0, 1, 3]),
        helper.make_node("Reshape", ["by_text", "rows"], ["flat"]),
        helper.make_node("MatMul", ["flat", "nothing"], ["no_scores"]),
        helper.make_node("Add", ["rule_scores", "no_scores"], ["scores"]),
    ]
    graph = helper.make_graph(
        nodes,
        "splitter",
        [
            helper.make_tensor_value_info("units", TensorProto.INT64, ["texts", "characters"]),
            helper.make_tensor_value_info("features", TensorProto.FLOAT, ["texts", "characters", features]),
        ],
        [helper.make_tensor_value_info("scores", TensorProto.FLOAT, ["texts", "characters", 3])],
        [numpy_helper.from_array(values, name) for name, values in constants.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    metadata = {
        "lang_code": "de",
        "config": json.dumps({"feat_funcs": ["space_before", "capitalized", "numeric", "end_of_para"], "batch_size": 8}),
        "vocab": json.dumps({"_id2unit": characters, "_unit2id": {unit: index for index, unit in enumerate(characters)}}),
    }
    helper.set_model_props(model, metadata)
    onnx.checker.check_model(model)
    onnx.save(model, str(path))


def write_packages(folder: Path) -> None:
    """Write both packages; the second refers to the files of the first."""
    tokens = [*CONTROL, *make_pieces()]
    names = {"de": "German", "en": "English"}
    first, second = (folder / f"translate-{pair}-1_0" for pair in ("de_en", "en_de"))
    for package, source, target in ((first, "de", "en"), (second, "en", "de")):
        package.mkdir()
        metadata = {"package_version": "1.0", "argos_version": "1.9", "from_code": source, "from_name": names[source],
                    "to_code": target, "to_name": names[target]}  # fmt: skip
        (package / "metadata.json").write_text(json.dumps(metadata))
    write_tokenizer(first / "sentencepiece.model", tokens)
    write_model(first / "model", tokens)
    (first / "minisbd").mkdir()
    write_splitter(first / "minisbd" / "splitter.onnx")
    shutil.copytree(first / "minisbd", second / "minisbd")
    for name in ("sentencepiece.model", "model"):
        (second / name).symlink_to(Path("..") / first.name / name)


if __name__ == "__main__":
    write_packages(Path(sys.argv[1]))
