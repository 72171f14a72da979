"""From parallel text to a folder with a trained model, its vocabulary and an account of how it came about."""

from __future__ import annotations

import hashlib
import importlib.metadata
import math
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from simnmt.files import sole_writer
from simnmt.nmt.architecture import Architecture
from simnmt.nmt.checkpoint import load_weights
from simnmt.nmt.devices import torch_device
from simnmt.nmt.models import build_model
from simnmt.nmt.subwords import Subwords
from simnmt.nmt.training.corpus import Corpus, Text, read_training_corpus, text_of
from simnmt.nmt.training.encoded import EncodedPairs
from simnmt.nmt.training.errors import TrainingError
from simnmt.nmt.training.folder import TrainingFolder
from simnmt.nmt.training.interrupts import held_back
from simnmt.nmt.training.learner import Learner
from simnmt.nmt.training.recipe import DEFAULT_BUDGET, Budget, Recipe
from simnmt.nmt.training.scores import score
from simnmt.nmt.training.sitting import Progress, Sitting
from simnmt.nmt.training.state import Standing, load_state
from simnmt.nmt.training.subwords import learn_vocabulary
from simnmt.nmt.translation import Translator


def train(
    text: Text,
    out: Path,
    recipe: Recipe,
    *,
    budget: Budget = DEFAULT_BUDGET,
    device: str = "cpu",
    threads: int | None = None,
    beam: int = 1,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Train until the budget is used up, or go on with the training in `out` until then; returns its training.json.

    What `out` holds at the end, and after any interrupt, is a checkpoint folder with the best weights so far. The same text
    and recipe give the same weights on the same machine and number of threads, in however many sittings. `beam`: of the
    translations that BLEU and chrF judge, in which unknown words stay.

    Raises `CorpusError` and `TrainingError` for what cannot be used, also while another process trains in `out`; any other
    exception, an interrupt among them, passes through after all complete steps have been kept.
    """
    TrainingFolder(out)  # refuses what cannot be used before a folder is made
    with sole_writer(out, TrainingError, "training"):
        return _train(text, out, recipe, budget, torch_device(device), threads, beam, progress or (lambda stage, share: None))


def _train(
    text: Text,
    out: Path,
    recipe: Recipe,
    budget: Budget,
    where: torch.device,
    threads: int | None,
    beam: int,
    tell: Progress,
) -> dict[str, Any]:
    folder = TrainingFolder(out)
    tell("reading", None)
    corpus = read_training_corpus(text, heldout=recipe.heldout, seed=recipe.seed)
    identity = {"recipe": recipe.as_json(), "corpus": corpus.sha256}
    folder.refuse_other(identity)
    with torch.random.fork_rng([where] if where.type == "cuda" else []), _threads(threads):
        if not folder.begun:
            tell("learning subwords", None)
            models = _learn_vocabularies(corpus, recipe.architecture)
            with held_back():
                folder.begin({"schema_version": 1, **identity, "text": text.as_json()}, models)
        source, target = _vocabularies(folder, recipe.architecture)
        learner = Learner(build_model(recipe.architecture, seed=recipe.seed, dropout=recipe.dropout), recipe, where)
        standing = load_state(folder.state, identity, learner) if folder.begun else Standing()
        standing.sittings += 1
        encode = (source, target, recipe.architecture, recipe.max_tokens)
        pairs, dev = EncodedPairs.of(corpus.train, *encode), EncodedPairs.of(corpus.dev, *encode)
        if not (pairs.src and dev.src):
            what = f"no sentence pair of at most {recipe.max_tokens} tokens"
            raise TrainingError(what, path=text.src, remedy="give a text with one sentence a line")
        account = {
            "schema_version": 1,
            **identity,
            "text": text.as_json(),
            "data": corpus.as_json() | {"too_long": pairs.too_long},
            "vocabulary": _about(source, target, pairs),
            "parameters": sum(weights.numel() for weights in learner.model.parameters()),
            "device": str(where),
            "threads": torch.get_num_threads(),
            "versions": _versions(),
        }
        sitting = Sitting(folder, pairs, dev, learner, standing, account, identity, tell)
        sitting.run(budget)
        load_weights(folder.path, learner.model)
        stage = "translating the held-out part"
        tell(stage, None)
        # Words copied from the source would score what the replacement can do beside what the model has learnt.
        translator = Translator(learner.model.eval(), source, target, beam=beam, keep_unknown=True)
        result = score(translator, corpus.heldout, progress=lambda share: tell(stage, share))
        best = {"step": standing.best_step, "dev_perplexity": math.exp(min(standing.best_loss or 0.0, 99.0))}
        account = {**account, "training": sitting.progress(), "result": result | best}
        folder.write_account(account)
        return account


def _about(source: Subwords, target: Subwords, pairs: EncodedPairs) -> dict[str, Any]:
    return {
        "src": source.size,
        "tgt": target.size,
        "src_sha256": hashlib.sha256(source.model).hexdigest(),
        "tgt_sha256": hashlib.sha256(target.model).hexdigest(),
        "src_tokens_per_sentence": float(pairs.lengths.src.mean()),
        "tgt_tokens_per_sentence": float(pairs.lengths.tgt.mean()),
    }


def _learn_vocabularies(corpus: Corpus, architecture: Architecture) -> list[bytes]:
    """The source's and the target's: one for both where the model shares its embeddings."""
    marks = {
        "pad": architecture.pad_token,
        "eos": architecture.eos_token,
        "unk": architecture.unk_token,
        "start": architecture.start_token,
    }
    src, tgt = text_of(corpus.train, 0), text_of(corpus.train, 1)
    if architecture.kind == "transformer":
        return [learn_vocabulary([*src, *tgt], architecture.vocab, side="whole", **marks)] * 2
    return [
        learn_vocabulary(src, architecture.src_vocab, side="source", **marks),
        learn_vocabulary(tgt, architecture.tgt_vocab, side="target", **marks),
    ]


def _vocabularies(folder: TrainingFolder, architecture: Architecture) -> tuple[Subwords, Subwords]:
    source, target = (Subwords.read(path) for path in folder.vocabularies)
    sizes = architecture.src_vocab, architecture.tgt_vocab
    for path, side, size in zip(folder.vocabularies, (source, target), sizes, strict=True):
        if (side.size, side.eos, side.unk) != (size, architecture.eos_token, architecture.unk_token):
            raise TrainingError("not the vocabulary of this model", path=path, remedy="start again in another folder")
    return source, target


@contextmanager
def _threads(number: int | None) -> Iterator[None]:
    before = torch.get_num_threads()
    if number is not None:
        torch.set_num_threads(number)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _versions() -> dict[str, str]:
    packages = ("simnmt", "torch", "transformers", "sentencepiece", "sacrebleu")
    return {name: importlib.metadata.version(name) for name in packages if _installed(name)}


def _installed(name: str) -> bool:
    try:
        importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return False
    return True
