"""Train a translation model: from parallel text to a folder with its best weights, its vocabularies and training.json.

At the end the held-out text is translated and scored by sacrebleu.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from simnmt.nmt.architecture import Architecture, TransformerArchitecture
from simnmt.nmt.checkpoint import load_weights, save_checkpoint
from simnmt.nmt.errors import TrainingError, need, within_memory
from simnmt.nmt.models import TranslationModel, build_model
from simnmt.nmt.step_model import pad
from simnmt.nmt.subwords import SOURCE_TOKENIZER, TARGET_TOKENIZER, Subwords, learn_vocabulary
from simnmt.nmt.training.recipe import Corpus, CorpusFiles, Pair, Recipe, read_training_corpus
from simnmt.nmt.training.trainer import (
    DEFAULT_BUDGET,
    Budget,
    Learner,
    Progress,
    Rows,
    Tell,
    batch_slices,
    check_finite,
    epoch_batches,
    machine_facts,
    train,
    training_folder,
    write_account,
)
from simnmt.nmt.translation import Translator


@dataclass(frozen=True, slots=True)
class EncodedPairs:
    """Token ids of sentence pairs, each sentence with its end mark."""

    src: list[list[int]]
    tgt: list[list[int]]

    @classmethod
    def of(cls, pairs: Sequence[Pair], source: Subwords, target: Subwords, max_tokens: int) -> EncodedPairs:
        """Encode both sides and leave out pairs with a side of more than `max_tokens` tokens."""
        sides = zip(source.encode(src for src, _ in pairs), target.encode(tgt for _, tgt in pairs), strict=True)
        kept = [(src, tgt) for src, tgt in sides if max(len(src), len(tgt)) <= max_tokens]
        return cls([src for src, _ in kept], [tgt for _, tgt in kept])

    @property
    def lengths(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Tokens of source and target of each pair, end marks included."""
        src, tgt = (np.array([len(ids) for ids in side], np.int64) for side in (self.src, self.tgt))
        return src, tgt


class TranslationLearner(Learner):
    """A translation model and its parallel text; the weights that are best on the development part are kept."""

    def __init__(
        self,
        model: TranslationModel,
        recipe: Recipe,
        device: torch.device,
        pairs: EncodedPairs,
        dev: EncodedPairs | None = None,
    ) -> None:
        """`dev`: the development part; None for steps without measurements."""
        model.to(device)
        optimizer = torch.optim.Adam(model.parameters(), betas=(0.9, 0.98), eps=1e-9)
        super().__init__(model, optimizer, device, recipe.seed, recipe.clip_norm)
        self.recipe, self.pairs, self.dev, self.look_every = recipe, pairs, dev, recipe.validate_every

    def batches(self, epoch: int) -> list[Rows]:
        src, tgt = self.pairs.lengths
        # Target first: the output layer costs most, for padding as much as for words.
        return epoch_batches(np.maximum(src, tgt), self.recipe.batch_tokens, seed=self.seed, epoch=epoch, by=(src, tgt))

    def loss(self, rows: Rows, draw: np.random.Generator) -> Tensor:
        total, tokens = self._sum_of_losses(self.pairs, rows, self.recipe.label_smoothing)
        return total / tokens

    def rates(self, step: int, share: float) -> list[float]:
        return [self.recipe.rate(step)]

    def stepped(self, step: int) -> None:
        getattr(self.model, "clip_weights", lambda: None)()

    def look(self, progress: Progress, folder: Path) -> dict[str, float]:
        """Measure the development loss, and keep the weights if they are the best so far."""
        assert self.dev is not None
        loss = self.mean_loss(self.dev)
        check_finite(loss, progress.steps)
        if loss < min((point["dev_loss"] for point in progress.curve), default=math.inf):
            save_checkpoint(folder, self.model, self.recipe.architecture)
        return {"dev_loss": loss}

    @torch.inference_mode()
    def mean_loss(self, pairs: EncodedPairs) -> float:
        """Return the mean loss per target token in nats, the logarithm of the perplexity, without smoothing and dropout."""
        self.model.eval()
        order = np.lexsort(pairs.lengths)
        batches = [order[run] for run in batch_slices(np.maximum(*pairs.lengths)[order], self.recipe.batch_tokens)]
        losses = [within_memory(str(self.device), partial(self._sum_of_losses, pairs, rows, 0.0)) for rows in batches]
        return sum(total.item() for total, _ in losses) / sum(tokens for _, tokens in losses)

    def _sum_of_losses(self, pairs: EncodedPairs, rows: Rows, smoothing: float) -> tuple[Tensor, int]:
        """Return the sum of the losses of some pairs, and the number of their target tokens."""
        marks = self.recipe.architecture
        src, src_lengths = pad([pairs.src[row] for row in rows], marks.pad_token)
        tgt_out, _ = pad([pairs.tgt[row] for row in rows], marks.pad_token)
        tgt_in = tgt_out.roll(1, dims=1)
        tgt_in[:, 0] = marks.start_token
        src, src_lengths, tgt_in, tgt_out = (tensor.to(self.device) for tensor in (src, src_lengths, tgt_in, tgt_out))
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.recipe.precision == "bfloat16"):
            logits = self.model(src, src_lengths, tgt_in)
        total = functional.cross_entropy(
            logits.flatten(0, 1).float(),
            tgt_out.flatten(),
            ignore_index=marks.pad_token,
            label_smoothing=smoothing,
            reduction="sum",
        )
        return total, sum(len(pairs.tgt[row]) for row in rows)


def train_translation(
    text: CorpusFiles,
    out: Path,
    recipe: Recipe,
    *,
    budget: Budget = DEFAULT_BUDGET,
    device: str = "cpu",
    threads: int | None = None,
    beam: int = 1,
    progress: Tell | None = None,
) -> dict[str, Any]:
    """Train until the budget is used up, or resume the training in `out` until then; return its training.json.

    From the first measurement on, `out` is a checkpoint folder with the best weights so far. The same text and recipe
    give the same weights on the same machine and number of threads, in any number of sessions. `beam`: of the translations for
    BLEU and chrF.

    Raises `CorpusError` and `TrainingError` for unusable input, also while another process trains in `out`.
    """
    report = progress or (lambda stage, share: None)
    report("reading text", None)
    corpus = read_training_corpus(text, heldout=recipe.heldout, seed=recipe.seed)
    account = {"schema_version": 1, "recipe": recipe.as_json(), "sha256": corpus.sha256}
    with training_folder(out, account, partial(_learn_vocabularies, corpus, recipe.architecture), device, threads) as where:
        source, target = (Subwords.read(out / name) for name in _TOKENIZERS)
        pairs, dev = (EncodedPairs.of(part, source, target, recipe.max_tokens) for part in (corpus.train, corpus.dev))
        if not (pairs.src and dev.src):
            what = f"no sentence pair of at most {recipe.max_tokens} tokens"
            raise TrainingError(what, path=text.src, remedy="give a text with one sentence a line")
        model = build_model(recipe.architecture, seed=recipe.seed, dropout=recipe.dropout)
        account |= {
            "data": {**corpus.counts, "sha256": corpus.sha256, "too_long": len(corpus.train) - len(pairs.src)},
            "vocabulary": {"src": source.size, "tgt": target.size},
            "parameters": sum(weights.numel() for weights in model.parameters()),
            **machine_facts(where, "transformers", "sacrebleu"),
        }
        done = train(TranslationLearner(model, recipe, where, pairs, dev), out, account, budget, report)
        load_weights(out, model)
        translator = Translator(model.eval(), source, target, beam=beam)
        result = score(translator, corpus.heldout, partial(report, "translating the held-out part"))
        best = min(done.curve, key=lambda point: point["dev_loss"])
        result |= {"step": best["step"], "dev_perplexity": math.exp(min(best["dev_loss"], 99.0))}
        account |= {"training": done.as_json(), "result": result}
        write_account(out, account)
        return account


_TOKENIZERS = (SOURCE_TOKENIZER, TARGET_TOKENIZER)


def _learn_vocabularies(corpus: Corpus, architecture: Architecture) -> dict[str, bytes]:
    """Learn the vocabularies of source and target by file: one for both if the model shares its embeddings."""
    marks = {name: getattr(architecture, f"{name}_token") for name in ("pad", "eos", "unk", "start")}
    src, tgt = [source for source, _ in corpus.train], [target for _, target in corpus.train]
    if isinstance(architecture, TransformerArchitecture):
        return dict.fromkeys(_TOKENIZERS, learn_vocabulary([*src, *tgt], architecture.vocab, side="whole", **marks))
    sides = ((src, architecture.src_vocab, "source"), (tgt, architecture.tgt_vocab, "target"))
    learnt = [learn_vocabulary(lines, size, side=side, **marks) for lines, size, side in sides]
    return dict(zip(_TOKENIZERS, learnt, strict=True))


def score(translator: Translator, heldout: Sequence[Pair], progress: Callable[[float], None]) -> dict[str, Any]:
    """Translate the sources of `heldout`, compare them with its targets, and return scores, seconds and ten samples.

    Chinese targets are split into characters, as by sacrebleu's `zh`; the signature records this.
    """
    metrics = need("sacrebleu.metrics")
    sources, references = [source for source, _ in heldout], [target for _, target in heldout]
    begun_s, translations = time.perf_counter(), []
    for translation in translator.stream(sources):
        translations.append(translation)
        progress(len(translations) / len(sources))
    seconds = time.perf_counter() - begun_s
    texts = [translation.text for translation in translations]
    letters = [char for text in references[:1000] for char in text if char.isalpha()]
    chinese = sum("\u4e00" <= char <= "\u9fff" for char in letters) > len(letters) / 2
    bleu, chrf = metrics.BLEU(tokenize="zh" if chinese else "13a"), metrics.CHRF()
    samples = zip(sources[:10], references, texts, strict=False)
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
        "samples": [{"source": src, "reference": ref, "translation": text} for src, ref, text in samples],
    }


def format_summary(account: Mapping[str, Any], out: Path) -> str:
    """Format the training.json of a training: its duration, and the quality of its model, which is in `out`."""
    data, done, result = account["data"], account["training"], account["result"]
    lines = [
        f"trained on {data['train']:,} pairs: {done['steps']:,} steps, {done['examples'] / data['train']:.2f} epochs, "
        f"{done['seconds']:,.0f} s",
        f"on {result['pairs']:,} held-out pairs, beam {result['beam']}: perplexity {result['dev_perplexity']:.2f}, "
        f"BLEU {result['bleu']:.1f}, chrF {result['chrf']:.1f} ({result['sentences_per_s']:,.0f} sentences/s)",
        *(f"  {sample['source']} => {sample['translation']}" for sample in result["samples"][:3]),
        f"model: {out}",
    ]
    return "\n".join(lines)
