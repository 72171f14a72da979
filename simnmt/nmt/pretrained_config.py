"""Architectures of Hugging Face folders, read from their config.json without running code in them; needs no torch."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from logging import CRITICAL
from pathlib import Path
from typing import Any, cast

from simnmt.base.errors import describe_error
from simnmt.base.files import check_model_folder
from simnmt.nmt.architecture import TransformerArchitecture, architecture_of
from simnmt.nmt.errors import NmtError
from simnmt.nmt.families import CONFIG_KEYS, FAMILIES

FOLDER_REMEDY = "name a folder of Marian, M2M100, NLLB or mBART as transformers saves it, with config.json and weights"


def read_pretrained_architecture(folder: str | os.PathLike[str]) -> TransformerArchitecture:
    """Return the architecture of a Hugging Face folder. Raises `NmtError`, and `InputError` for a pointer of Git LFS."""
    check_model_folder(Path(folder))
    from transformers import AutoConfig

    try:
        with quiet_transformers():
            # Without `trust_remote_code=False` the user is asked whether to run the folder's code.
            config: Any = AutoConfig.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    except Exception as error:  # transformers checks each value in a way of its own
        raise NmtError(f"no Hugging Face configuration: {describe_error(error)}", path=folder, remedy=FOLDER_REMEDY) from None
    kind = next((kind for kind, family in FAMILIES.items() if family.model_type == config.model_type), None)
    if kind is None:
        types = ", ".join(family.model_type for family in FAMILIES.values())
        what = f"holds a model of type {config.model_type} where one of {types} is read"
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


@contextmanager
def quiet_transformers() -> Iterator[None]:
    """Suppress progress bars and advice of `transformers` until the block ends; these settings are global."""
    from transformers.utils import logging

    log: Any = logging  # untyped
    bars, verbosity = log.is_progress_bar_enabled(), log.get_verbosity()
    log.disable_progress_bar()
    log.set_verbosity(CRITICAL)
    try:
        yield
    finally:
        log.set_verbosity(verbosity)
        if bars:
            log.enable_progress_bar()
