"""Load an encoder by folder or preset name, and write the folder of a trained one.

A folder of `simnmt sti train` holds configuration, weights, vocabulary and a record of the training. Classifiers of
`transformers` in a local folder, fine-tuned or as a configuration alone, and presets with random weights can be loaded too.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from torch import Tensor

from simnmt.base.errors import describe_error
from simnmt.base.files import MOST_MODEL_BYTES, check_model_folder, read_bounded, written_whole
from simnmt.nmt.checkpoint import TRAINING_FILE, WEIGHTS_FILE, TensorFileError, read_tensors, write_tensors
from simnmt.nmt.errors import need
from simnmt.streaming.encoder import EncoderConfiguration, EncoderWeights, check_resident, random_resident
from simnmt.streaming.errors import StreamingError
from simnmt.streaming.shards import SEGMENTS, LayerWeights
from simnmt.streaming.texts import PIECES_FILE, TOKENIZER_FILES, HuggingFaceTokenizer, Pieces, Tokenizer

ENCODER_FILE = "encoder.json"
VERSION = 1
PRESETS = ("bert-base",)
_AGAIN = "train again, or copy the folder again"
_CLASSIFIER = "name a folder of a fine-tuned BERT, RoBERTa, CamemBERT or DistilBERT classifier"


@dataclass(frozen=True, slots=True, eq=False)
class LoadedEncoder:
    """The weights of an encoder, its tokenizer and the names of its classes."""

    weights: EncoderWeights
    tokenizer: Tokenizer | None
    """None if the encoder accepts only token ids."""
    label_names: tuple[str, ...]


def load_encoder(model: str | os.PathLike[str], *, seed: int = 1) -> LoadedEncoder:
    """Return the encoder in a folder or of a preset; `seed` draws the weights if a folder holds none.

    Raises `StreamingError` with the folder and the remedy.
    """
    path = Path(model)
    if (path / ENCODER_FILE).is_file():
        return _load_elastic(path)
    if (path / TRAINING_FILE).is_file():
        raise StreamingError("its training has not ended", path=path, remedy="give its simnmt sti train again")
    if path.is_dir():
        return load_hugging_face(path, seed=seed)
    if os.fspath(model) in PRESETS:
        return LoadedEncoder(bert_base(seed=seed), None, ("0", "1"))
    remedy = f"name a folder that simnmt sti train wrote or one of transformers, or {', '.join(PRESETS)}"
    raise StreamingError("no such model", path=model, remedy=remedy)


def save_encoder(folder: Path, weights: EncoderWeights, account: Mapping[str, Any]) -> None:
    """Write a trained encoder and its account; `encoder.json`, which marks the folder, comes last. Raises `StreamingError`."""
    tensors = dict(weights.resident)
    for index in range(weights.geometry.layers):
        tensors |= {f"layers.{index}.{name}.weight": tensor for name, tensor in weights.layer(index)._asdict().items()}
    configuration = {"schema_version": VERSION, **asdict(weights.configuration)}
    try:
        write_tensors(folder / WEIGHTS_FILE, tensors)
        for name, content in ((TRAINING_FILE, account), (ENCODER_FILE, configuration)):
            with written_whole(folder / name) as partial:
                text = json.dumps(content, indent=1, allow_nan=False, ensure_ascii=False)
                partial.write_text(f"{text}\n", encoding="utf-8")
    except (OSError, SafetensorError) as error:
        raise _unusable(folder, error) from None


def _load_elastic(path: Path) -> LoadedEncoder:
    document = _read_json(path / ENCODER_FILE)
    if document.pop("schema_version", None) != VERSION:
        raise StreamingError(f"not an encoder of version {VERSION}", path=path / ENCODER_FILE, remedy=_AGAIN)
    configuration = EncoderConfiguration.from_json(document, path / ENCODER_FILE)
    try:
        tensors, _ = read_tensors(path / WEIGHTS_FILE)
        pieces = Pieces(read_bounded(path / PIECES_FILE, MOST_MODEL_BYTES))
    except OSError as error:
        raise _unusable(path, error) from None
    except TensorFileError:
        raise StreamingError("damaged, or no safetensors file", path=path / WEIGHTS_FILE, remedy=_AGAIN) from None

    def matrix(index: int, name: str) -> Tensor:
        tensor = tensors.pop(f"layers.{index}.{name}.weight", None)
        if tensor is None or tuple(tensor.shape) != configuration.matrix_shape(name):
            what = f"layers.{index}.{name}.weight is missing or of another shape"
            raise StreamingError(what, path=path / WEIGHTS_FILE, remedy=_AGAIN)
        return tensor

    matrices = [LayerWeights(*(matrix(index, name) for name in SEGMENTS)) for index in range(configuration.layers)]
    check_resident(configuration, tensors, path / WEIGHTS_FILE)
    if pieces.size != configuration.vocabulary:
        raise StreamingError("weights and vocabulary are of two models", path=path, remedy=_AGAIN)
    names = _read_json(path / TRAINING_FILE).get("label_names")
    if not isinstance(names, list) or len(set(map(str, names))) != configuration.classes:
        raise StreamingError(f"no label_names of {configuration.classes} classes", path=path / TRAINING_FILE, remedy=_AGAIN)
    weights = EncoderWeights(configuration, tensors, matrices.__getitem__, origin=os.fspath(path))
    return LoadedEncoder(weights, pieces, tuple(map(str, names)))


def _read_json(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(read_bounded(path))
    except OSError as error:
        raise _unusable(path, error) from None
    except (ValueError, RecursionError):
        content = None
    if not isinstance(content, dict):
        raise StreamingError("no JSON object", path=path, remedy=_AGAIN)
    return content


def _unusable(path: Path, error: Exception) -> StreamingError:
    return StreamingError(f"cannot be used: {getattr(error, 'strerror', None) or error}", path=path, remedy=_AGAIN)


def bert_base(*, seed: int = 1) -> EncoderWeights:
    """Return BERT-base with random weights, drawn layer by layer: for measuring speed and size, not accuracy."""
    configuration = EncoderConfiguration("bert", 12, 12, 768, 3072, 30_522, 512, 2, separator_token=102)

    def generator(number: int) -> torch.Generator:
        return torch.Generator().manual_seed(seed * 1_000 + number)

    def layer(index: int) -> LayerWeights:
        drawn = generator(index)
        shapes = map(configuration.matrix_shape, SEGMENTS)
        return LayerWeights(*(0.02 * torch.randn(shape, generator=drawn) for shape in shapes))

    resident = random_resident(configuration, generator(999), 0.02)
    return EncoderWeights(configuration, resident, layer, origin="bert-base", random=True)


_BERT_PARTS = {
    "q": "attention.self.query",
    "k": "attention.self.key",
    "v": "attention.self.value",
    "o": "attention.output.dense",
    "norm_attention": "attention.output.LayerNorm",
    "ffn_in": "intermediate.dense",
    "ffn_out": "output.dense",
    "norm_ffn": "output.LayerNorm",
}
_DISTIL_PARTS = {
    "q": "attention.q_lin",
    "k": "attention.k_lin",
    "v": "attention.v_lin",
    "o": "attention.out_lin",
    "norm_attention": "sa_layer_norm",
    "ffn_in": "ffn.lin1",
    "ffn_out": "ffn.lin2",
    "norm_ffn": "output_layer_norm",
}
_ROBERTA_HEAD = ("classifier.dense", "classifier.out_proj")
_NAMES = {
    "bert": ("bert.encoder.layer", _BERT_PARTS, "bert.pooler.dense", "classifier"),
    "roberta": ("roberta.encoder.layer", _BERT_PARTS, *_ROBERTA_HEAD),
    "camembert": ("roberta.encoder.layer", _BERT_PARTS, *_ROBERTA_HEAD),
    "distilbert": ("distilbert.transformer.layer", _DISTIL_PARTS, "pre_classifier", "classifier"),
}
"""By kind of model: names in `transformers` of a layer, of the matrices and norms in it, of the dense layer before the
classifier, and of the classifier."""


def load_hugging_face(path: Path, *, seed: int = 1) -> LoadedEncoder:
    """Return the classifier in a folder of `transformers`; runs no code of the folder and never reads from the network.

    Without a file of weights, they are drawn with `seed` and marked as random. Raises `StreamingError` for an unknown kind of
    model, for weights that are damaged or lack the pooler or the classifier, and for sizes that heads do not divide.
    """
    need("transformers")
    from transformers import AutoConfig

    from simnmt.nmt.pretrained_config import quiet_transformers

    try:
        check_model_folder(path)
        files = {name: read_bounded(path / name, MOST_MODEL_BYTES) for name in TOKENIZER_FILES if (path / name).is_file()}
    except OSError as error:
        what = f"cannot be read: {error.strerror}"
        raise StreamingError(what, path=error.filename or path, remedy=_CLASSIFIER) from None
    try:
        with quiet_transformers():
            # Explicit: without a value, transformers asks the user whether to run code of the folder.
            config = AutoConfig.from_pretrained(path, local_files_only=True, trust_remote_code=False)
        tokenizer = HuggingFaceTokenizer(files) if files.keys() - {"config.json", "tokenizer_config.json"} else None
    except StreamingError as error:  # an error without the path
        raise StreamingError(error.what, path=path) from None
    except Exception as error:  # many kinds of errors
        what = f"no configuration of transformers: {describe_error(error)}"
        raise StreamingError(what, path=path, remedy=_CLASSIFIER) from None
    configuration = _configuration_of(config, path, None if tokenizer is None else tokenizer.separator)
    if sorted(config.id2label) != list(range(configuration.classes)):
        raise StreamingError("id2label does not number the classes from 0 without gaps", path=path)
    random = not any(path.glob("model.safetensors*")) and not any(path.glob("pytorch_model.bin*"))
    weights = _taken(_load_model(path, config, seed if random else None), configuration, os.fspath(path), random)
    check_resident(configuration, weights.resident, path)
    return LoadedEncoder(weights, tokenizer, tuple(str(config.id2label[index]) for index in range(configuration.classes)))


def _configuration_of(config: Any, path: Path, separator: int | None) -> EncoderConfiguration:
    kind = config.model_type
    if kind not in _NAMES:
        raise StreamingError(f"holds a model of type {kind}", path=path, remedy=_CLASSIFIER)
    distil, roberta = kind == "distilbert", kind in ("roberta", "camembert")
    activation = config.activation if distil else config.hidden_act
    for unusable, what in (
        (activation not in ("gelu", "relu"), f"its feed-forward activation is {activation}, neither gelu nor relu"),
        (getattr(config, "position_embedding_type", None) not in (None, "absolute"), "its positions are not absolute"),
        (getattr(config, "is_decoder", False), "it is a decoder, which reads from left to right"),
        (config.num_labels < 2, "its head has one output, a number and no class"),
        (roberta and config.pad_token_id is None, "no pad_token_id, from which its positions are counted"),
    ):
        if unusable:
            raise StreamingError(what, path=path, remedy=_CLASSIFIER)
    offset = config.pad_token_id + 1 if roberta else 0
    fields = {
        "kind": kind,
        "layers": config.num_hidden_layers,
        "heads": config.num_attention_heads,
        "width": config.hidden_size,
        "ffn": config.hidden_dim if distil else config.intermediate_size,
        "vocabulary": config.vocab_size,
        "positions": config.max_position_embeddings - offset,
        "classes": config.num_labels,
        "activation": activation,
        "norm_epsilon": 1e-12 if distil else config.layer_norm_eps,
        "head_activation": "relu" if distil else "tanh",
        "padding_token": config.pad_token_id or 0,
        "separator_token": separator if kind == "bert" and config.type_vocab_size > 1 else None,
        "position_offset": offset,
    }
    return EncoderConfiguration.from_json(fields, path, remedy="correct its config.json, or name another folder")


def _load_model(path: Path, config: Any, seed: int | None) -> Any:
    """Return the model of a folder, or of its configuration with random weights drawn with `seed`."""
    from transformers import AutoModelForSequenceClassification

    from simnmt.nmt.models import WEIGHTS_ONLY_HOLDS
    from simnmt.nmt.pretrained_config import quiet_transformers

    auto: Any = AutoModelForSequenceClassification  # untyped
    try:
        with quiet_transformers(), torch.random.fork_rng([]):
            if seed is not None:
                torch.manual_seed(seed)
                return auto.from_config(config, trust_remote_code=False)
            model, report = auto.from_pretrained(
                path,
                config=config,
                local_files_only=True,
                trust_remote_code=False,
                weights_only=True,
                use_safetensors=None if WEIGHTS_ONLY_HOLDS else True,
                attn_implementation="eager",  # otherwise config.json may name code to download
                output_loading_info=True,
                dtype=torch.float32,
            )
    except Exception as error:  # pickle, zip, safetensors and torch have their own errors; memory may be short
        raise StreamingError(f"no usable weights: {describe_error(error)}", path=path, remedy=_CLASSIFIER) from None
    if lacking := sorted(report["missing_keys"]):
        what = f"the weights lack {lacking[0]}"
        raise StreamingError(what, path=path, remedy="fine-tune the model on a classification task first")
    return model


def _taken(model: Any, configuration: EncoderConfiguration, origin: str, random: bool) -> EncoderWeights:
    """Return the tensors of a transformers model under our names."""
    layer, parts, head, classifier = _NAMES[configuration.kind]
    state = {name: tensor.detach() for name, tensor in model.state_dict().items()}
    at = f"{layer.partition('.')[0]}.embeddings"
    resident = {
        "embeddings.word": state[f"{at}.word_embeddings.weight"],
        "embeddings.position": state[f"{at}.position_embeddings.weight"],
    }
    if f"{at}.token_type_embeddings.weight" in state:
        resident["embeddings.type"] = state[f"{at}.token_type_embeddings.weight"]
    dense = {"embeddings.norm": f"{at}.LayerNorm", "classifier": classifier, "head": head}
    layers: list[LayerWeights] = []
    for index in range(configuration.layers):
        theirs = {ours: f"{layer}.{index}.{name}" for ours, name in parts.items()}
        layers.append(LayerWeights(**{name: state[f"{theirs[name]}.weight"].float() for name in SEGMENTS}))
        resident |= {f"layers.{index}.{name}.bias": state[f"{theirs[name]}.bias"] for name in SEGMENTS}
        dense |= {f"layers.{index}.{name}": theirs[name] for name in ("norm_attention", "norm_ffn")}
    for ours, name in dense.items():
        resident |= {f"{ours}.{kind}": state[f"{name}.{kind}"] for kind in ("weight", "bias")}
    return EncoderWeights(configuration, resident, layers.__getitem__, origin=origin, random=random)
