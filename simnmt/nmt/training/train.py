"""From parallel text to a folder with a trained model, its vocabulary and an account of how it came about."""

from __future__ import annotations

import hashlib
import importlib.metadata
import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from simnmt.nmt.architecture import Architecture
from simnmt.nmt.checkpoint import load_weights, save_checkpoint
from simnmt.nmt.models import build_model
from simnmt.nmt.training.corpus import Corpus, Text, read_training_corpus, text_of
from simnmt.nmt.training.encoded import EncodedPairs
from simnmt.nmt.training.errors import TrainingError
from simnmt.nmt.training.folder import TrainingFolder
from simnmt.nmt.training.interrupts import held_back
from simnmt.nmt.training.learner import Learner
from simnmt.nmt.training.recipe import DEFAULT_BUDGET, Budget, Recipe
from simnmt.nmt.training.scores import score
from simnmt.nmt.training.state import Standing, load_state, save_state
from simnmt.nmt.training.subwords import Subwords, learn_vocabulary
from simnmt.nmt.translation import Translator, device_named

SAVE_EVERY_S = 120.0
"""What a power cut costs at most; an interrupt costs nothing."""

Progress = Callable[[str, float | None], None]
"""Told what is being done and which share of it is done, None where nobody knows."""


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
    translations that BLEU and chrF judge.

    Raises `CorpusError` and `TrainingError` for what cannot be used; any other exception, an interrupt among them, passes
    through after all complete steps have been kept.
    """
    tell = progress or (lambda stage, share: None)
    where = device_named(device)
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
        sitting = _Sitting(folder, corpus, source, target, learner, standing, identity, tell)
        sitting.account["text"] = text.as_json()
        sitting.account["device"] = str(where)
        sitting.account["threads"] = torch.get_num_threads()
        sitting.run(budget)
        return sitting.finish(beam)


class _Sitting:
    """One stretch of training, from where the last one stopped."""

    def __init__(
        self,
        folder: TrainingFolder,
        corpus: Corpus,
        source: Subwords,
        target: Subwords,
        learner: Learner,
        standing: Standing,
        identity: dict[str, Any],
        tell: Progress,
    ) -> None:
        self.folder, self.learner, self.standing, self.identity, self.tell = folder, learner, standing, identity, tell
        self.corpus, self.source, self.target = corpus, source, target
        recipe = self.recipe = learner.recipe
        encode = (source, target, recipe.architecture, recipe.max_tokens)
        self.pairs = EncodedPairs.of(corpus.train, *encode)
        self.dev = EncodedPairs.of(corpus.dev, *encode)
        if not (self.pairs.src and self.dev.src):
            what = f"no sentence pair of at most {recipe.max_tokens} tokens"
            raise TrainingError(what, remedy="give a text with one sentence a line")
        self.account: dict[str, Any] = {
            "schema_version": 1,
            **identity,
            "data": corpus.as_json() | {"too_long": self.pairs.too_long},
            "vocabulary": {
                "src": source.size,
                "tgt": target.size,
                "src_sha256": hashlib.sha256(source.model).hexdigest(),
                "tgt_sha256": hashlib.sha256(target.model).hexdigest(),
                "src_tokens_per_sentence": _mean(self.pairs.lengths.src.tolist()),
                "tgt_tokens_per_sentence": _mean(self.pairs.lengths.tgt.tolist()),
            },
            "parameters": sum(weights.numel() for weights in learner.model.parameters()),
            "versions": _versions(),
        }

    def run(self, budget: Budget) -> None:
        """Step until the budget is used up; whatever ends it, the last complete step is kept."""
        standing, recipe = self.standing, self.recipe
        saved_s = time.monotonic()
        try:
            epoch, batches = -1, list[NDArray[np.int64]]()
            while (share := self._share(budget, len(batches))) < 1.0:
                if epoch != standing.epoch:
                    epoch = standing.epoch
                    batches = self.pairs.epoch(recipe.batch_tokens, seed=recipe.seed, epoch=epoch)
                    continue
                if standing.step % recipe.validate_every == 0 and standing.looked_at != standing.step and standing.step:
                    self._look()
                with held_back():
                    self._step(batches)
                    if time.monotonic() - saved_s > SAVE_EVERY_S:
                        self._save()
                        saved_s = time.monotonic()
                self.tell(self._words(), share)
            if standing.looked_at != standing.step:
                self._look()
        except BaseException:
            with held_back():
                if standing.best_loss is None:
                    self._keep()
                self._save()
            raise
        with held_back():
            self._save()

    def _share(self, budget: Budget, batches: int) -> float:
        standing = self.standing
        epochs = standing.epoch + (standing.batch / batches if batches else 0.0)
        return budget.used(epochs=epochs, steps=standing.step, seconds=standing.seconds)

    def _step(self, batches: list[NDArray[np.int64]]) -> None:
        standing, begun_s = self.standing, time.perf_counter()
        rows = batches[standing.batch]
        batch = self.pairs.batch(rows, self.learner.device)
        loss = self.learner.step(batch, standing.step + 1)
        standing.step += 1
        standing.loss_sum += loss
        standing.loss_tokens += batch.tgt_tokens
        standing.tgt_tokens += batch.tgt_tokens
        standing.pairs += len(rows)
        standing.batch += 1
        if standing.batch == len(batches):
            standing.epoch, standing.batch = standing.epoch + 1, 0
        spent_s = time.perf_counter() - begun_s
        standing.seconds += spent_s
        standing.step_seconds += spent_s

    def _look(self) -> None:
        """Measure the development loss, and keep the weights if they are the best so far."""
        standing, begun_s = self.standing, time.perf_counter()
        loss = self.learner.mean_loss(self.dev.in_order(self.recipe.batch_tokens, self.learner.device))
        with held_back():
            standing.seconds += time.perf_counter() - begun_s
            if standing.best_loss is None or loss < standing.best_loss:
                standing.best_loss, standing.best_step = loss, standing.step
                self._keep()
            point = {"step": standing.step, "epoch": standing.epoch, "seconds": round(standing.seconds, 3), "dev_loss": loss}
            if standing.loss_tokens:
                point["train_loss"] = standing.loss_sum / standing.loss_tokens
            standing.curves.append(point)
            standing.loss_sum, standing.loss_tokens = 0.0, 0
            standing.looked_at = standing.step
            self._save()

    def _keep(self) -> None:
        save_checkpoint(self.folder.path, self.learner.model, self.recipe.architecture)

    def _save(self) -> None:
        save_state(self.folder.state, self.identity, self.learner, self.standing)
        self.folder.write_account(self.account | {"training": self._progress()})

    def _progress(self) -> dict[str, Any]:
        standing = self.standing
        rates = {
            "sentences_per_s": standing.pairs / standing.step_seconds if standing.step_seconds else None,
            "tgt_tokens_per_s": standing.tgt_tokens / standing.step_seconds if standing.step_seconds else None,
        }
        return {name: value for name, value in asdict(standing).items() if name not in ("loss_sum", "loss_tokens")} | rates

    def _words(self) -> str:
        standing = self.standing
        best = "" if standing.best_loss is None else f", perplexity {math.exp(min(standing.best_loss, 99.0)):.1f}"
        rate = standing.tgt_tokens / standing.step_seconds if standing.step_seconds else 0.0
        return f"epoch {standing.epoch + 1}, step {standing.step:,}{best}, {rate:,.0f} tokens/s"

    def finish(self, beam: int) -> dict[str, Any]:
        """Judge the best weights by the held-out part, and write the whole account."""
        load_weights(self.folder.path, self.learner.model)
        translator = Translator(self.learner.model, self.source, self.target, beam=beam)
        self.tell("translating the held-out part", None)
        self.account["result"] = score(
            translator, self.corpus.heldout, progress=lambda share: self.tell("translating the held-out part", share)
        ) | {"step": self.standing.best_step, "dev_perplexity": math.exp(min(self.standing.best_loss or 0.0, 99.0))}
        account = self.account | {"training": self._progress()}
        self.folder.write_account(account)
        return account


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


def _mean(numbers: Sequence[int]) -> float:
    return sum(numbers) / len(numbers)
