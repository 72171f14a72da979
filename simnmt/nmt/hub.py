"""Models of the Hugging Face Hub: an id becomes a folder of its cache, downloaded where there is a network."""

from __future__ import annotations

import logging
import re
import sys
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
_LOCAL = "or name a folder that holds the model"
_LOG = logging.getLogger("simnmt.nmt")


def model_path(model: str, *, weights: bool = False) -> str:
    """Return the folder of a model that is named by a Hugging Face id; any other name or path unchanged.

    A file or folder of that name comes first. `weights`: whether they are needed beside configuration and tokeniser. Raises
    `NmtError` for an id that does not exist, and for one that is neither in the cache nor can be downloaded.
    """
    if model in ARCHITECTURES or Path(model).exists() or not is_hub_id(model):
        return model
    return str(_downloaded(model, weights))


def is_hub_id(model: str) -> bool:
    """Return whether a text has the form of a Hugging Face id, such as Helsinki-NLP/opus-mt-de-en."""
    return _ID.fullmatch(model) is not None and Path(model).suffix not in (".yaml", ".yml", ".json")


@cache
def _downloaded(model: str, weights: bool) -> Path:
    """Return the folder of the cache that holds a model."""
    folder = _snapshot(model, [*_TEXTS, *_VOCABULARIES, *(_SAFETENSORS if weights else ())])
    if weights and not any(folder.rglob(_SAFETENSORS[0])):
        folder = _snapshot(model, [*_PICKLES])
    _LOG.info("model %s: in the cache at %s", model, folder)
    return folder


def _snapshot(model: str, patterns: list[str]) -> Path:
    hub, errors, utils = (need(f"huggingface_hub{part}") for part in ("", ".errors", ".utils"))
    quiet = not sys.stderr.isatty() and not utils.are_progress_bars_disabled()
    if quiet:
        utils.disable_progress_bars()
    try:
        return Path(hub.snapshot_download(model, allow_patterns=patterns))
    except errors.GatedRepoError:
        what = f"{model}: the Hugging Face Hub asks you to accept its terms first"
        raise NmtError(what, remedy=f"accept them on huggingface.co/{model} and set HF_TOKEN, {_LOCAL}") from None
    except (errors.RepositoryNotFoundError, errors.HFValidationError):
        what = f"no model {model} on the Hugging Face Hub, and no such folder here"
        raise NmtError(what, remedy="check the id; a private one needs HF_TOKEN") from None
    except errors.LocalEntryNotFoundError:
        what = (
            f"{model} is not in the cache of the Hugging Face Hub, {hub.constants.HF_HUB_CACHE}, and the Hub cannot be reached"
        )
        raise NmtError(what, remedy=f"connect to the network once, {_LOCAL}") from None
    except OSError as error:  # of the library, of its HTTP client, of the disk
        raise NmtError(f"{model} could not be downloaded: {describe_error(error)}", remedy=f"try again, {_LOCAL}") from None
    finally:
        if quiet:
            utils.enable_progress_bars()
