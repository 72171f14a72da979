"""Write two packages of Argos Translate, de-en and en-de, whose model copies: `python copying_packages.py FOLDER`.

Run by the Python of LibreTranslate's environment. Sizes are those of an Argos model: a Transformer of 6 + 6 layers, 512 wide,
24,000 pieces, int8. Most of its weights are random and add nothing to the state. Three sublayers copy: in the encoder, all
positions read the sentence's ratio of lengths, which its first token decides, and choose their place in the output by it; in
the decoder, a place attends to the source token whose place is nearest and outputs it. A ratio other than 1 leaves tokens out
or repeats some, so that the lengths of source and target differ as those of languages do, and a plane can be fitted to both.
The splitter ends sentences at ".", "!", "?" before a space; an LSTM of the size of MiniSBD's runs beside, with no weight in
the result.
"""

from __future__ import annotations

import json
import shutil
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
RATIOS = (0.81, 1.0, 1.23)
"""Output tokens per source token."""
# The components of a state: the token's place in the output at each ratio, the chosen one (in the decoder: its place), the
# ratio that the token stands for and that of the sentence, and a code of the token.
PLACES = [slice(HEAD * index, HEAD * (index + 1)) for index in range(len(RATIOS))]
CHOSEN = slice(HEAD * 3, HEAD * 4)
OWN_RATIO, SENTENCE_RATIO = slice(256, 259), slice(259, 262)
CODE = slice(262, WIDTH)
CODES = WIDTH - 262
MARK = 4.0
"""Value of a ratio's component."""
GAIN = 0.2
"""Of the scores: a copied token has 50, any other at most 15."""
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
    embeddings = np.zeros((len(tokens), WIDTH), np.float32)
    embeddings[:, CODE] = RANDOM.permuted(np.tile(np.float32([-1, 1]), (len(tokens), CODES // 2)), axis=1)
    embeddings[np.arange(len(tokens)), OWN_RATIO.start + RANDOM.integers(len(RATIOS), size=len(tokens))] = MARK
    frequencies = RANDOM.uniform(0, np.pi, HEAD // 2)  # random: no two distances have nearly equal encodings
    source_places, target_places = (np.zeros((LONGEST, WIDTH), np.float32) for _ in range(2))
    for place, ratio in zip(PLACES, RATIOS, strict=True):
        source_places[:, place] = _waves(ratio, frequencies)
    target_places[:, CHOSEN] = _waves(1.0, frequencies)

    for side, places in ((spec.encoder, source_places), (spec.decoder, target_places)):
        side.scale_embeddings = False
        side.position_encodings.encodings = places
        _normalise(side.layer_norm)
        for layer in side.layer:
            _random_attention(layer.self_attention)
            _normalise(layer.ffn.layer_norm)
            _fill(layer.ffn.linear_0, draw(FEED_FORWARD, WIDTH))
            _fill(layer.ffn.linear_1, np.zeros((WIDTH, FEED_FORWARD)))
    for layer in spec.decoder.layer:
        _random_attention(layer.attention)
    # Standard deviations of the state where a norm divides by them: of places, codes, marks.
    before, after = (((96 + CODES + marks * MARK**2) / WIDTH) ** 0.5 for marks in (1, 2))
    _read_first_token(spec.encoder.layer[0].self_attention, before)
    _choose_place(spec.encoder.layer[0].ffn, after)
    _copy_token(spec.decoder.layer[-1].attention)
    spec.encoder.embeddings[0].weight = embeddings
    spec.decoder.embeddings.weight = np.zeros_like(embeddings)
    scores = np.zeros_like(embeddings)
    scores[:, CODE] = GAIN * embeddings[:, CODE]
    _fill(spec.decoder.projection, scores)
    spec.config.add_source_eos = True
    spec.register_source_vocabulary(tokens)
    spec.register_target_vocabulary(tokens)
    spec.validate()
    spec.optimize(quantization="int8")
    folder.mkdir()
    spec.save(str(folder))


def _waves(ratio: float, frequencies: np.ndarray) -> np.ndarray:
    """Return the encodings of the places 0, ratio, 2 ratio ...; the product of two depends on their distance, greatest at 0."""
    angles = ratio * np.arange(LONGEST)[:, None] * frequencies
    return np.concatenate([np.cos(angles), np.sin(angles)], axis=1)


def _normalise(norm: Any) -> None:
    norm.gamma, norm.beta = np.ones(WIDTH, np.float32), np.zeros(WIDTH, np.float32)


def _fill(linear: Any, weight: np.ndarray, bias: np.ndarray | None = None) -> None:
    linear.weight = np.ascontiguousarray(weight, np.float32)
    linear.bias = np.zeros(len(weight), np.float32) if bias is None else bias.astype(np.float32)


def _random_attention(attention: Any) -> None:
    """Attend at random, and add nothing to the state."""
    _normalise(attention.layer_norm)
    parts = (3,) if len(attention.linear) == 2 else (1, 2)
    for linear, part in zip(attention.linear, parts, strict=False):
        _fill(linear, draw(part * WIDTH, WIDTH))
    _fill(attention.linear[-1], np.zeros((WIDTH, WIDTH)))


def _read_first_token(attention: Any, deviation: float) -> None:
    """Copy the first token's own ratio to the sentence's ratio of all positions, by the first head."""
    weight, bias, out = np.zeros((3 * WIDTH, WIDTH)), np.zeros(3 * WIDTH), np.zeros((WIDTH, WIDTH))
    bias[: HEAD // 2] = 8.0  # the query: place 0, whose cosines are 1 and whose sines are 0
    weight[WIDTH : WIDTH + HEAD, PLACES[1]] = np.eye(HEAD)
    weight[2 * WIDTH : 2 * WIDTH + 3, OWN_RATIO] = np.eye(3)
    out[SENTENCE_RATIO, :3] = deviation * np.eye(3)
    _fill(attention.linear[0], weight, bias)
    _fill(attention.linear[1], out)


def _choose_place(network: Any, deviation: float) -> None:
    """Write the place at the sentence's ratio: units of other ratios are negative, and ReLU makes them 0."""
    hidden, bias, out = draw(FEED_FORWARD, WIDTH), np.zeros(FEED_FORWARD), np.zeros((WIDTH, FEED_FORWARD))
    row = 0
    for index, place in enumerate(PLACES):
        for sign in (1.0, -1.0):
            units = slice(row, row := row + HEAD)
            hidden[units] = 0.0
            hidden[units, place] = sign * np.eye(HEAD)
            hidden[units, SENTENCE_RATIO.start + index] = 4.0 * deviation / MARK
            bias[units] = -4.0
            out[CHOSEN, units] = sign * deviation * np.eye(HEAD)
    _fill(network.linear_0, hidden, bias)
    _fill(network.linear_1, out)


def _copy_token(attention: Any) -> None:
    """Attend to the source token whose chosen place is nearest, in all heads, and write its code."""
    query, value = np.zeros((WIDTH, WIDTH)), np.zeros((WIDTH, WIDTH))
    for head in range(HEADS):
        query[head * HEAD : (head + 1) * HEAD, CHOSEN] = 2.0 * np.eye(HEAD)
    value[:CODES, CODE] = np.eye(CODES)
    _fill(attention.linear[0], query)
    _fill(attention.linear[1], np.concatenate([query, value]))
    _fill(attention.linear[2], 4.0 * value.T)


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
