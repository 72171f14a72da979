"""Train a model: from parallel text to a folder with its best weights, its vocabularies and training.json.

A session takes steps until the budget is used up. At the end the held-out text is translated and scored by sacrebleu.
"""

from __future__ import annotations

import hashlib
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from simnmt.nmt.architecture import Architecture
from simnmt.nmt.checkpoint import load_weights, save_checkpoint
from simnmt.nmt.errors import TrainingError, need
from simnmt.nmt.models import build_model
from simnmt.nmt.subwords import SOURCE_TOKENIZER, TARGET_TOKENIZER, Subwords, learn_vocabulary
from simnmt.nmt.training.learner import EncodedPairs, Learner, diverged, epoch_batches
from simnmt.nmt.training.recipe import DEFAULT_BUDGET, Budget, Corpus, CorpusFiles, Pair, Recipe, read_training_corpus, side_of
from simnmt.nmt.training.session import (
    MOST_COUNT,
    NotNegative,
    NotNegativeReal,
    Progress,
    TrainingFolder,
    TrainingSession,
    TrainingState,
    machine_facts,
    training_place,
)
from simnmt.nmt.translation import Translator

StepOrNone = Annotated[int, Field(ge=-1, le=MOST_COUNT)]
"""A step, or -1 for none."""


@dataclass(slots=True)
class TranslationTrainingState(TrainingState):
    """The progress of the training of a translation model."""

    step_seconds: NotNegativeReal = 0.0
    """Seconds of steps only."""
    pairs: NotNegative = 0
    """Sentence pairs of all steps, repetitions included."""
    tgt_tokens: NotNegative = 0
    loss_sum: float = 0.0
    """Sum of the smoothed loss since the last measurement of the development part, in nats."""
    loss_tokens: NotNegative = 0
    """Target tokens since that measurement."""
    looked_at: StepOrNone = -1
    """The step of the last measurement of the development part."""
    best_loss: float | None = None
    """The least loss of the development part, in nats per token."""
    best_step: StepOrNone = -1
    curves: list[dict[str, float]] = field(default_factory=list)
    """A point per measurement."""
    sittings: NotNegative = 0
    """Sessions of the training."""


class TranslationSession(TrainingSession[Learner, TranslationTrainingState]):
    """The training of a translation model, which keeps the weights that are best on the development part."""

    def __init__(
        self, folder: TrainingFolder, identity: Mapping[str, Any], learner: Learner, budget: Budget, tell: Progress
    ) -> None:
        super().__init__(folder, identity, learner, TranslationTrainingState(), tell)
        self.budget, self.recipe = budget, learner.recipe
        self.standing.sittings += 1

    def read(self, pairs: EncodedPairs, dev: EncodedPairs, account: Mapping[str, Any]) -> None:
        """Set the training and development parts, and the content of training.json beside the progress."""
        self.pairs, self.dev, self.account = pairs, dev, account

    def batches(self) -> list[NDArray[np.int64]]:
        """See `TrainingSession`."""
        recipe = self.recipe
        return epoch_batches(self.pairs.lengths, recipe.batch_tokens, seed=recipe.seed, epoch=self.standing.epoch)

    def share(self, batches: int) -> float:
        """See `TrainingSession`."""
        standing = self.standing
        return self.budget.used(epochs=standing.epoch + standing.batch / batches, steps=standing.step, seconds=standing.seconds)

    def learn(self, rows: NDArray[np.int64], share: float) -> None:
        """See `TrainingSession`."""
        standing, begun_s = self.standing, time.perf_counter()
        batch = self.pairs.batch(rows, self.learner.device)
        standing.loss_sum += self.learner.step(batch, standing.step + 1)
        standing.loss_tokens += batch.tgt_tokens
        standing.tgt_tokens += batch.tgt_tokens
        standing.pairs += len(rows)
        standing.step_seconds += time.perf_counter() - begun_s

    def look_if_due(self) -> None:
        """See `TrainingSession`."""
        if self.standing.step and self.standing.step % self.recipe.validate_every == 0:
            self.look_at_end()

    def look_at_end(self) -> None:
        """Measure the development loss, at most once per step, and keep the weights if they are the best so far.

        Raises `TrainingError` for a loss that is not finite.
        """
        standing, begun_s = self.standing, time.perf_counter()
        if standing.looked_at == standing.step:
            return
        loss = self.learner.mean_loss(self.dev.in_order(self.recipe.batch_tokens, self.learner.device))
        if not math.isfinite(loss):
            raise diverged(standing.step)
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
        self.save()

    def save(self) -> None:
        """See `TrainingSession`; also writes training.json, and the weights if none were kept yet."""
        if self.standing.best_loss is None:
            self._keep()
        super().save()
        self.folder.write_account({**self.account, "training": self.progress()})

    def _keep(self) -> None:
        save_checkpoint(self.folder.path, self.learner.model, self.recipe.architecture)

    def progress(self) -> dict[str, Any]:
        """Return the progress for training.json."""
        standing = self.standing
        step_s = standing.step_seconds
        rates = {
            "sentences_per_s": standing.pairs / step_s if step_s else None,
            "tgt_tokens_per_s": standing.tgt_tokens / step_s if step_s else None,
        }
        return {name: value for name, value in asdict(standing).items() if name not in ("loss_sum", "loss_tokens")} | rates

    def message(self) -> str:
        """See `TrainingSession`."""
        standing = self.standing
        best = "" if standing.best_loss is None else f", perplexity {math.exp(min(standing.best_loss, 99.0)):.1f}"
        rate = standing.tgt_tokens / standing.step_seconds if standing.step_seconds else 0.0
        return f"epoch {standing.epoch + 1}, step {standing.step:,}{best}, {rate:,.0f} tokens/s"


SAMPLES = 10
"""Translations kept as samples."""


def score(
    translator: Translator, heldout: Sequence[Pair], *, progress: Callable[[float], None] | None = None
) -> dict[str, Any]:
    """Translate the sources of `heldout`, compare them with its targets, and return scores and seconds.

    Chinese targets are split into characters, as by sacrebleu's `zh`; the signature records this.
    """
    metrics = need("sacrebleu.metrics")
    sources, references = side_of(heldout, 0), side_of(heldout, 1)
    begun_s = time.perf_counter()
    translations = []
    for translation in translator.stream(sources):
        translations.append(translation)
        if progress is not None:
            progress(len(translations) / len(sources))
    seconds = time.perf_counter() - begun_s
    texts = [translation.text for translation in translations]
    bleu = metrics.BLEU(tokenize=_tokenizer(references))
    chrf = metrics.CHRF()
    return {
        "pairs": len(heldout),
        "bleu": bleu.corpus_score(texts, [references]).score,
        "bleu_signature": str(bleu.get_signature()),
        "chrf": chrf.corpus_score(texts, [references]).score,
        "chrf_signature": str(chrf.get_signature()),
        "beam": translator.beam,
        "seconds": seconds,
        "sentences_per_s": len(texts) / seconds,
        "unfinished": sum(not translation.ended for translation in translations),
        "samples": [
            {"source": src, "reference": ref, "translation": text}
            for src, ref, text in list(zip(sources, references, texts, strict=True))[:SAMPLES]
        ],
    }


def _tokenizer(texts: Sequence[str]) -> str:
    letters = [char for text in texts[:1000] for char in text if char.isalpha()]
    han = sum("\u4e00" <= char <= "\u9fff" for char in letters)
    return "zh" if han > len(letters) / 2 else "13a"


def format_summary(account: Mapping[str, Any], out: Path) -> str:
    """Format the training.json of a training: its duration, and the quality of its model, which is in `out`."""
    data, done, result = account["data"], account["training"], account["result"]
    manner = "greedy" if result["beam"] == 1 else f"beam {result['beam']}"
    lines = [
        f"trained on {data['train']:,} pairs: {done['step']:,} steps, {done['pairs'] / data['train']:.2f} epochs, "
        f"{done['seconds']:,.0f} s" + (f" ({done['sentences_per_s']:,.0f} sentences/s)" if done["sentences_per_s"] else ""),
        f"best after {result['step']:,} steps: perplexity {result['dev_perplexity']:.2f} on {data['dev']:,} pairs",
        f"on {result['pairs']:,} held-out pairs, {manner}: BLEU {result['bleu']:.1f}, chrF {result['chrf']:.1f} "
        f"({result['sentences_per_s']:,.0f} sentences/s)",
        f"  BLEU {result['bleu_signature']}",
        f"  chrF {result['chrf_signature']}",
        *(f"  {sample['source']} => {sample['translation']}" for sample in result["samples"][:3]),
        f"model: {out}",
    ]
    return "\n".join(lines)


def train(
    text: CorpusFiles,
    out: Path,
    recipe: Recipe,
    *,
    budget: Budget = DEFAULT_BUDGET,
    device: str = "cpu",
    threads: int | None = None,
    beam: int = 1,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Train until the budget is used up, or resume the training in `out` until then; return its training.json.

    From the first save on, `out` is a checkpoint folder with the best weights so far. The same text and recipe
    give the same weights on the same machine and number of threads, in any number of sessions. `beam`: of the translations for
    BLEU and chrF, in which unknown words stay.

    Raises `CorpusError` and `TrainingError` for unusable input, also while another process trains in `out`; any other
    exception, such as an interrupt, passes through, and the same call goes on from the last save.
    """
    names, report = (SOURCE_TOKENIZER, TARGET_TOKENIZER), progress or (lambda stage, share: None)
    TrainingFolder(out, *names)  # refuses an unusable folder before it is made
    with training_place(out, device, threads) as where:
        folder = TrainingFolder(out, *names)
        report("reading", None)
        corpus = read_training_corpus(text, heldout=recipe.heldout, seed=recipe.seed)
        identity = {"recipe": recipe.as_json(), "corpus": corpus.sha256}
        begun = {"schema_version": 1, **identity, "text": text.as_json()}
        folder.refuse_other(identity)
        if not folder.begun:
            report("learning subwords", None)
            models = _learn_vocabularies(corpus, recipe.architecture)
            folder.begin(begun, models)
        source, target = _vocabularies(folder, recipe.architecture)
        learner = Learner(build_model(recipe.architecture, seed=recipe.seed, dropout=recipe.dropout), recipe, where)
        session = TranslationSession(folder, identity, learner, budget, report)
        encode = (source, target, recipe.architecture, recipe.max_tokens)
        pairs, dev = EncodedPairs.of(corpus.train, *encode), EncodedPairs.of(corpus.dev, *encode)
        if not (pairs.src and dev.src):
            what = f"no sentence pair of at most {recipe.max_tokens} tokens"
            raise TrainingError(what, path=text.src, remedy="give a text with one sentence a line")
        account = {
            **begun,
            "data": corpus.as_json() | {"too_long": pairs.too_long},
            "vocabulary": _vocabulary_facts(source, target, pairs),
            "parameters": sum(weights.numel() for weights in learner.model.parameters()),
            **machine_facts(where, "transformers", "sacrebleu"),
        }
        session.read(pairs, dev, account)
        session.run()
        standing = session.standing
        load_weights(folder.path, learner.model)
        stage = "translating the held-out part"
        report(stage, None)
        # Words copied from the source would score the replacement besides the model.
        translator = Translator(learner.model.eval(), source, target, beam=beam, keep_unknown=True)
        result = score(translator, corpus.heldout, progress=lambda share: report(stage, share))
        best = {"step": standing.best_step, "dev_perplexity": math.exp(min(standing.best_loss or 0.0, 99.0))}
        account |= {"training": session.progress(), "result": result | best}
        folder.write_account(account)
        return account


def _vocabulary_facts(source: Subwords, target: Subwords, pairs: EncodedPairs) -> dict[str, Any]:
    return {
        "src": source.size,
        "tgt": target.size,
        "src_sha256": hashlib.sha256(source.model).hexdigest(),
        "tgt_sha256": hashlib.sha256(target.model).hexdigest(),
        "src_tokens_per_sentence": float(pairs.lengths.src.mean()),
        "tgt_tokens_per_sentence": float(pairs.lengths.tgt.mean()),
    }


def _learn_vocabularies(corpus: Corpus, architecture: Architecture) -> list[bytes]:
    """Learn the vocabularies of source and target: one for both if the model shares its embeddings."""
    marks = {name: getattr(architecture, f"{name}_token") for name in ("pad", "eos", "unk", "start")}
    src, tgt = side_of(corpus.train, 0), side_of(corpus.train, 1)
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
