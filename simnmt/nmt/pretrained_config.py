"""Models of Hugging Face: ids become folders, and their config.json an architecture, without running code; needs no torch."""

from __future__ import annotations

import logging
import os
import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, cast

from simnmt.base.errors import describe_error
from simnmt.base.files import check_model_folder
from simnmt.nmt.architecture import CONFIG_KEYS, FAMILIES, LlamaArchitecture, TransformerArchitecture, architecture_of
from simnmt.nmt.errors import NmtError, need

_ID = re.compile(r"[A-Za-z0-9][\w.-]{0,95}/[A-Za-z0-9][\w.-]{0,95}", re.ASCII)
_TEXTS = ("config.json", "generation_config.json", "*tokenizer*.json", "special_tokens_map.json", "added_tokens.json")
_VOCABULARIES = ("*vocab*.json", "*.spm", "*.model", "vocab.txt", "merges.txt")
_SAFETENSORS = ("model*.safetensors", "model.safetensors.index.json")
_PICKLES = ("pytorch_model*.bin", "pytorch_model.bin.index.json")
"""Taken where there are no safetensors."""


def model_path(model: str, *, weights: bool = False) -> str:
    """Return the folder of a model that is named by a Hugging Face id; any other name or path unchanged.

    A file or folder of that name comes first. `weights`: whether they are needed beside configuration and tokeniser. Raises
    `NmtError` for an id that does not exist, and for one that is neither in the cache nor can be downloaded.
    """
    is_id = _ID.fullmatch(model) is not None and Path(model).suffix not in (".yaml", ".yml", ".json")
    return str(_downloaded(model, weights)) if is_id and not Path(model).exists() else model


@cache
def _downloaded(model: str, weights: bool) -> Path:
    hub, errors = need("huggingface_hub"), need("huggingface_hub.errors")
    try:
        patterns = [*_TEXTS, *_VOCABULARIES, *(_SAFETENSORS if weights else ())]
        folder = Path(hub.snapshot_download(model, allow_patterns=patterns))
        if weights and not any(folder.rglob(_SAFETENSORS[0])):
            folder = Path(hub.snapshot_download(model, allow_patterns=[*_PICKLES]))
    except errors.RepositoryNotFoundError:
        what = "no such folder here, and no such model on the Hugging Face Hub"
        raise NmtError(what, path=model, remedy="check the id; a private model needs HF_TOKEN") from None
    except (OSError, ValueError) as error:  # of the library, of its HTTP client, of the disk
        what = f"not in the cache {hub.constants.HF_HUB_CACHE}, and not downloaded: {describe_error(error)}"
        remedy = "check the network, or name a folder that holds the model"
        raise NmtError(what, path=model, remedy=remedy) from None
    logging.getLogger("simnmt.nmt").info("model %s: in the cache at %s", model, folder)
    return folder


_FAMILY_NAMES = ", ".join([*(family.model_type for family in FAMILIES.values()), "llama"])
FOLDER_REMEDY = f"name a folder of {_FAMILY_NAMES} as transformers saves it, with config.json and weights"


def read_pretrained_architecture(folder: str | os.PathLike[str]) -> TransformerArchitecture | LlamaArchitecture:
    """Return the architecture of a Hugging Face folder. Raises `NmtError`, and `InputError` for a pointer of Git LFS."""
    check_model_folder(Path(folder))
    need("transformers")
    try:
        config = read_pretrained("AutoConfig", folder)
    except Exception as error:  # transformers checks each value in a way of its own
        raise NmtError(f"no Hugging Face configuration: {describe_error(error)}", path=folder, remedy=FOLDER_REMEDY) from None
    if getattr(config, "auto_map", None):
        what = "config.json names Python code to be run (auto_map), which is never done"
        raise NmtError(what, path=folder, remedy="give a model that transformers itself implements")
    if config.model_type == "llama":
        return _llama_architecture(config, folder)
    kind = next((kind for kind, family in FAMILIES.items() if family.model_type == config.model_type), None)
    if kind is None:
        what = f"holds a model of type {config.model_type} where one of {_FAMILY_NAMES} is read"
        raise NmtError(what, path=folder, remedy=FOLDER_REMEDY)
    for name, encoder, decoder in (
        ("attention heads", config.encoder_attention_heads, config.decoder_attention_heads),
        ("feed-forward width", config.encoder_ffn_dim, config.decoder_ffn_dim),
        ("vocabulary", config.vocab_size, getattr(config, "decoder_vocab_size", None) or config.vocab_size),
    ):
        if encoder != decoder:
            raise NmtError(f"{name}: {encoder} in the encoder, {decoder} in the decoder", path=folder, remedy=FOLDER_REMEDY)
    content = {field: getattr(config, key, None) for field, key in CONFIG_KEYS.items()}
    if content["activation"] == "silu":
        content["activation"] = "swish"
    if content["start_token"] is None:
        content["start_token"] = getattr(config, FAMILIES[kind].usual_start)
    content |= {"kind": kind, "unk_token": FAMILIES[kind].unk_token}
    return cast(TransformerArchitecture, architecture_of(content, folder))


_LLAMA_KEYS = {
    "layers": "num_hidden_layers",
    "d_model": "hidden_size",
    "heads": "num_attention_heads",
    "kv_heads": "num_key_value_heads",
    "head_width": "head_dim",
    "ffn": "intermediate_size",
    "vocab": "vocab_size",
    "max_positions": "max_position_embeddings",
    "tied": "tie_word_embeddings",
}
_ROTARY_TYPES = ("default", "linear", "llama3")
"""Those whose angles do not depend on the length of the text."""


def _llama_architecture(config: Any, folder: str | os.PathLike[str]) -> LlamaArchitecture:
    if (rotary := config.rope_parameters["rope_type"]) not in _ROTARY_TYPES or config.hidden_act != "silu":
        what = f"rotary positions of type {rotary} with {config.hidden_act}; read are {', '.join(_ROTARY_TYPES)} with silu"
        raise NmtError(what, path=folder, remedy="give another model")
    ends = config.eos_token_id if isinstance(config.eos_token_id, list) else [config.eos_token_id]
    if None in ends or not ends:
        raise NmtError("config.json has no eos_token_id, which ends a translation", path=folder, remedy="add it")
    marks = {"eos_token": ends[0], "pad_token": config.pad_token_id, "start_token": config.bos_token_id}
    marks = {name: ends[0] if token is None else token for name, token in marks.items()}
    content = {field: getattr(config, key) for field, key in _LLAMA_KEYS.items()} | marks
    content |= {"kind": "llama", "unk_token": marks["start_token"]}  # a tokeniser of bytes has no unknown words
    return cast(LlamaArchitecture, architecture_of(content, folder))


def read_pretrained(auto: str, folder: str | os.PathLike[str], **options: Any) -> Any:
    """Return what this class of `transformers` reads from a folder; runs no code of the folder, and never asks the network."""
    import transformers

    with quiet_transformers(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a tokeniser recommends further packages
        # Without `trust_remote_code=False` the user is asked whether to run the folder's code.
        return getattr(transformers, auto).from_pretrained(folder, local_files_only=True, trust_remote_code=False, **options)


@contextmanager
def quiet_transformers() -> Iterator[None]:
    """Suppress progress bars and advice of `transformers` until the block ends; these settings are global."""
    from transformers.utils import logging as hf_logging

    log: Any = hf_logging  # untyped
    bars, verbosity = log.is_progress_bar_enabled(), log.get_verbosity()
    log.disable_progress_bar()
    log.set_verbosity(logging.CRITICAL)
    try:
        yield
    finally:
        log.set_verbosity(verbosity)
        if bars:
            log.enable_progress_bar()
