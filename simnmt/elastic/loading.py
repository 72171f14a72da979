"""An encoder by what a user names: a folder of ours, one of `transformers`, or a preset with random weights."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from simnmt.elastic.encoder_weights import EncoderWeights
from simnmt.elastic.errors import ElasticError
from simnmt.elastic.tokenizer import Tokenizer
from simnmt.elastic.training.folder import ACCOUNT_FILE, class_names, is_elastic_folder, load_elastic

PRESETS = ("bert-base",)


@dataclass(frozen=True, slots=True, eq=False)
class LoadedEncoder:
    """Weights, and what turns text into their tokens and classes into names."""

    weights: EncoderWeights
    tokenizer: Tokenizer | None
    """None: token ids alone can be run."""
    label_names: tuple[str, ...]


def load_encoder(model: str | os.PathLike[str], *, seed: int = 1) -> LoadedEncoder:
    """The encoder in a folder, or of a preset's name; `seed`: of random weights, where there are no others.

    Raises `ElasticError`, naming the folder and the remedy.
    """
    path = Path(model)
    if is_elastic_folder(path):
        weights, pieces = load_elastic(path)
        return LoadedEncoder(weights, pieces, class_names(path, weights.configuration.classes))
    if path.is_dir():
        if (path / ACCOUNT_FILE).is_file():
            raise ElasticError("its training has not ended", path=path, remedy="give its simnmt sti train again")
        from simnmt.elastic.hugging_face_encoders import load_hugging_face

        return LoadedEncoder(*load_hugging_face(path, seed=seed))
    if os.fspath(model) in PRESETS:
        from simnmt.elastic.hugging_face_encoders import bert_base

        weights = bert_base(seed=seed)
        return LoadedEncoder(weights, None, tuple(str(index) for index in range(weights.configuration.classes)))
    remedy = f"name a folder that simnmt sti train wrote or one of transformers, or {', '.join(PRESETS)}"
    raise ElasticError("no such model", path=model, remedy=remedy)
