"""Models of the Hugging Face Hub: an id becomes a folder of its cache, downloaded where there is a network."""

from __future__ import annotations

import logging
import re
from functools import cache
from pathlib import Path

from simnmt.base.errors import describe_error
from simnmt.nmt.architecture import ARCHITECTURES
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
    return str(_downloaded(model, weights)) if is_id and not Path(model).exists() and model not in ARCHITECTURES else model


@cache
def _downloaded(model: str, weights: bool) -> Path:
    folder = _snapshot(model, [*_TEXTS, *_VOCABULARIES, *(_SAFETENSORS if weights else ())])
    if weights and not any(folder.rglob(_SAFETENSORS[0])):
        folder = _snapshot(model, [*_PICKLES])
    logging.getLogger("simnmt.nmt").info("model %s: in the cache at %s", model, folder)
    return folder


def _snapshot(model: str, patterns: list[str]) -> Path:
    hub = need("huggingface_hub")
    try:
        return Path(hub.snapshot_download(model, allow_patterns=patterns))
    except (OSError, ValueError) as error:  # of the library, of its HTTP client, of the disk
        what = f"not in the cache {hub.constants.HF_HUB_CACHE}, and not downloaded: {describe_error(error)}"
        remedy = "check the id, the network, and HF_TOKEN if the model is private, or name a folder that holds the model"
        raise NmtError(what, path=model, remedy=remedy) from None
