"""Write two packages of Argos Translate, de-en and en-de, whose model copies: `python copying_packages.py FOLDER`.

Run by the Python of LibreTranslate's environment. Sizes are those of an Argos model: a Transformer of 6 + 6 layers, 512 wide,
24,000 pieces, int8. The weights are random, but only the last cross-attention adds to the state: position n of the decoder
attends to the source's token n and outputs that token. Some pieces of the target have a blank at their end, so that source and
target differ in their words and a calibration can fit a plane to both. The splitter ends a sentence at each ".", "!" and "?".
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

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
SPLITS = 0.35
"""Share of the target's pieces that end with a blank."""
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
    for side in (spec.encoder, spec.decoder):
        side.scale_embeddings = False
        side.position_encodings.encodings = positions
        _normalise(side.layer_norm)
        for layer in side.layer:
            _random_attention(layer.self_attention)
            _normalise(layer.ffn.layer_norm)
            _fill(layer.ffn.linear_0, draw(FEED_FORWARD, WIDTH))
            _fill(layer.ffn.linear_1, np.zeros((WIDTH, FEED_FORWARD)))
    for layer in spec.decoder.layer:
        _random_attention(layer.attention)
    _copy_token(spec.decoder.layer[-1].attention)
    spec.encoder.embeddings[0].weight = codes
    spec.decoder.embeddings.weight = np.zeros_like(codes)
    _fill(spec.decoder.projection, GAIN * codes)
    spec.config.add_source_eos = True
    spec.register_source_vocabulary(tokens)
    splits = RANDOM.random(len(tokens)) < SPLITS
    splits[: len(CONTROL)] = False
    spec.register_target_vocabulary([f"{token}▁" if split else token for token, split in zip(tokens, splits, strict=True)])
    spec.validate()
    spec.optimize(quantization="int8")
    folder.mkdir()
    spec.save(str(folder))


def _normalise(norm: Any) -> None:
    norm.gamma, norm.beta = np.ones(WIDTH, np.float32), np.zeros(WIDTH, np.float32)


def _fill(linear: Any, weight: np.ndarray) -> None:
    linear.weight, linear.bias = np.ascontiguousarray(weight, np.float32), np.zeros(len(weight), np.float32)


def _random_attention(attention: Any) -> None:
    """Attend at random, and add nothing to the state."""
    _normalise(attention.layer_norm)
    parts = (3,) if len(attention.linear) == 2 else (1, 2)
    for linear, part in zip(attention.linear, parts, strict=False):
        _fill(linear, draw(part * WIDTH, WIDTH))
    _fill(attention.linear[-1], np.zeros((WIDTH, WIDTH)))


def _copy_token(attention: Any) -> None:
    """Attend to the source token of the same position, in all heads, and write its code."""
    query, value = np.zeros((WIDTH, WIDTH)), np.zeros((WIDTH, WIDTH))
    for head in range(HEADS):
        query[head * HEAD : (head + 1) * HEAD, :HEAD] = 2.0 * np.eye(HEAD)
    value[:-HEAD, HEAD:] = np.eye(WIDTH - HEAD)
    _fill(attention.linear[0], query)
    _fill(attention.linear[1], np.concatenate([query, value]))
    _fill(attention.linear[2], 4.0 * value.T)


def write_splitter(path: Path) -> None:
    """Write a MiniSBD model: from characters and features to scores of "inside", "end of token" and "end of sentence"."""
    characters = ["<PAD>", "<UNK>", " ", *map(chr, range(33, 127)), *"äöüßÄÖÜ"]
    scores = np.float32([(-9, 0, 10) if character in ".!?" else (1, 0, 0) for character in characters])
    names = {"units": (TensorProto.INT64, []), "features": (TensorProto.FLOAT, [4]), "scores": (TensorProto.FLOAT, [3])}
    *inputs, output = (
        helper.make_tensor_value_info(name, kind, ["texts", "characters", *size]) for name, (kind, size) in names.items()
    )
    gather = helper.make_node("Gather", ["table", "units"], ["scores"])
    graph = helper.make_graph([gather], "splitter", inputs, [output], [numpy_helper.from_array(scores, "table")])
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
    """Write both packages, of which the second refers to files of the first; with one alone LibreTranslate looks for others."""
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
    for name in ("sentencepiece.model", "model", "minisbd"):
        (second / name).symlink_to(Path("..") / first.name / name)


if __name__ == "__main__":
    write_packages(Path(sys.argv[1]))
