"""What candidate lists change of a trained model's translations, and what they gain beside Amdahl's (SHARP-02, XP-07):
`python -m benchmarks.candidate_lists --model fr-en --json`.

The model is a folder that `simnmt nmt train` wrote, with its text still in place: lists are learnt from the part it was trained
on, and judged on the part that was held out. torch decodes with all of the vocabulary and with the lists in turn, greedily one
sentence after another, and with a beam of 2 in batches of 20. An attentional model is decoded by the sharp decoder as well,
with a beam of 6; its clock tells the output layer's part. Amdahl's prediction takes the rest of a step for unchanged;
`body_ratio` tells whether it is: where it is not 1, caches that the output layer's weights no longer pass through may serve
it better, or the box was not quiet.

`--ctranslate2` times MarianMT of 65,001 tokens, with random weights and random lists of 20 a token, under CTranslate2 with and
without the lists as its vocabulary map; of it only the whole can be timed, so the output layer's share is that of the
decoder's multiplications.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch

from benchmarks.printing import print_figures
from simnmt.base.errors import SimnmtError
from simnmt.kernels.sharp.model import SharpTranslation
from simnmt.nmt.attentional_model import AttentionalModel
from simnmt.nmt.engine import Work
from simnmt.nmt.errors import need
from simnmt.nmt.marian_model import MarianModel
from simnmt.nmt.models import load_model
from simnmt.nmt.sharp_translator import SharpTranslator
from simnmt.nmt.training.recipe import read_training_corpus, side_of
from simnmt.nmt.training.session import recorded
from simnmt.nmt.translation import Translator
from simnmt.nmt.vocabulary.active_columns import listed
from simnmt.nmt.vocabulary.builders import build_candidates
from simnmt.nmt.vocabulary.candidate_lists import CANDIDATES, CandidateLists
from simnmt.papers.fvp.study_decoding import Sentences, TimedSearch, VocabularyPart, decode_in_rounds
from simnmt.papers.fvp.study_texts import Sample
from simnmt.profile.decoder_settings import DecoderSettings

SETTINGS = {"b1": (1, 1), "b2": (2, 20)}
"""Beam and batch, as the papers name them."""
SHARP_BEAM = 6
WORK = (25, 25)
"""Source and target tokens of what CTranslate2 translates (SHARP-02)."""
BARS: dict[str, tuple[str, Any]] = {
    "largest_excess": ("<=", 0),
    **{f"{name}_measured_over_predicted": ("within", "10 %") for name in (*SETTINGS, "sharp")},
}
"""Of SHARP-02, in tokens beyond so many a source token and two; and of XP-07."""


def sizes(lists: CandidateLists, sources: Sequence[Sequence[int]], references: Sequence[Sequence[int]]) -> dict[str, Any]:
    """How long the lists are, and what of the reference they hold."""
    own = [lists.of(source) for source in sources]
    found = [float(np.isin(reference, each).sum()) for reference, each in zip(references, own, strict=True)]
    beyond = [len(each) - CANDIDATES * (len(source) - 1) for each, source in zip(own, sources, strict=True)]
    return {
        "candidates": float(np.mean([len(each) for each in own])),
        "active_share": float(np.mean([len(each) for each in own])) / lists.vocab,
        "largest_excess": max(beyond) - len(lists.always),
        "reference_tokens_listed": sum(found) / sum(map(len, references)),
        "list_bytes": lists.nbytes,
    }


def by_torch(
    translator: Translator, sentences: Sentences, lists: CandidateLists, cut: VocabularyPart, rounds: int
) -> dict[str, Any]:
    """Quality and speed of real decoding, with the fields of `Decoded`."""
    figures: dict[str, Any] = {}
    for name, (beam, batch) in SETTINGS.items():
        found = decode_in_rounds(
            translator,
            sentences,
            lambda audit, account: replace(listed(lists), audit=audit, account=account),
            cut,
            TimedSearch("held out", beam, batch, rounds),
            emitted=lists.vocab,
        )
        kept = ("identical", "near_ties", "token_agreement", "miss_rate", "layer_share", "layer_ratio", "predicted", "measured")
        figures |= {f"{name}_{field}": getattr(found, field) for field in kept}
        figures |= {f"{name}_bleu_dense": found.dense.bleu, f"{name}_bleu": found.part.bleu}
        figures[f"{name}_body_ratio"] = found.body_ratio
        figures[f"{name}_active_share"] = found.share.mean
        figures[f"{name}_measured_over_fused"] = found.measured_over_fused
        figures[f"{name}_measured_over_predicted"] = found.measured / found.predicted
    return figures


def by_sharp(
    model: AttentionalModel, translator: Translator, sentences: Sentences, lists: CandidateLists, rounds: int
) -> dict[str, Any]:
    """The same of the sharp decoder with its exact techniques, whose clock tells the output layer's part."""
    settings = DecoderSettings(beam=SHARP_BEAM, fused=True, embeddings="precomputed", attention="precomputed", merge=True)
    sharp = SharpTranslator([model], settings, max_len=100)
    states = [sharp.encode(source) for source in sentences.sources]
    ways: dict[str, CandidateLists | None] = {"full": None, "listed": lists}
    found: dict[str, list[SharpTranslation]] = {}
    whole_s: dict[str, list[float]] = {way: [] for way in ways}
    layer_s: dict[str, list[float]] = {way: [] for way in ways}
    body_s: dict[str, list[float]] = {way: [] for way in ways}
    for _ in range(rounds):
        for way, own in ways.items():
            begin_s = time.perf_counter()
            found[way] = [
                sharp.decode(each, candidates=None if own is None else own.of(source).astype(np.int64), clock=True)
                for each, source in zip(states, sentences.sources, strict=True)
            ]
            whole_s[way].append(time.perf_counter() - begin_s)
            stages = [each.stage_s for each in found[way] if each.stage_s is not None]
            layer_s[way].append(sum(each.product_s + each.search_s for each in stages))
            body_s[way].append(sum(each.body_s for each in stages))
    full, short = found["full"], found["listed"]
    figures: dict[str, Any] = {
        "sharp_identical": sum(one.tokens == other.tokens for one, other in zip(full, short, strict=True)) / len(full),
        "sharp_bleu_dense": _bleu(translator, sentences, [each.tokens for each in full]),
        "sharp_bleu": _bleu(translator, sentences, [each.tokens for each in short]),
    }
    steps = {way: sum(each.steps for each in found[way]) for way in ways}
    if any(layer_s["full"]):
        a_step = steps["listed"] / steps["full"]
        ratio = _median_ratio(layer_s["full"], layer_s["listed"]) * a_step
        figures["sharp_body_ratio"] = _median_ratio(body_s["full"], body_s["listed"]) * a_step
        share = median(own / all_s for own, all_s in zip(layer_s["full"], whole_s["full"], strict=True))
        figures |= {"sharp_layer_share": share, "sharp_layer_ratio": ratio, "sharp_predicted": 1 / (1 - share + share / ratio)}
        measured = _median_ratio(whole_s["full"], whole_s["listed"]) * a_step
        figures |= {"sharp_measured": measured, "sharp_measured_over_predicted": measured / figures["sharp_predicted"]}
    return figures


def by_ctranslate2(rounds: int) -> dict[str, Any]:
    """MarianMT under CTranslate2, one thread, with and without a map of random lists."""
    from simnmt.nmt.ctranslate2_engine import CTranslate2Engine  # here, since it imports transformers

    loaded = load_model("marian", seed=1)
    model = loaded.model
    assert isinstance(model, MarianModel)
    architecture, draw, vocab = model.architecture, np.random.default_rng(1), model.vocab
    may = np.setdiff1d(np.arange(vocab), [architecture.pad_token, architecture.start_token])
    columns = draw.choice(may, vocab * CANDIDATES).astype(np.int32)
    starts = np.arange(vocab + 1, dtype=np.int64) * CANDIDATES
    always = np.array(sorted([architecture.eos_token, architecture.unk_token]), np.int32)
    lists = CandidateLists(starts, columns, np.zeros(len(columns), np.float32), always, vocab)
    width, layers, ffn = architecture.d_model, architecture.decoder_layers, architecture.ffn
    body = layers * (6 * width * width + 2 * width * ffn)
    figures: dict[str, Any] = {
        "ctranslate2_vocab": vocab,
        "ctranslate2_layer_share_of_products": vocab * width / (vocab * width + body),
    }
    for compute_type in ("float32", "int8"):
        engines = [CTranslate2Engine(loaded, "cpu", 1, compute_type, 1, own) for own in (None, lists)]
        for batch in (1, 20):
            work, taken_s = Work(*WORK, batch=batch), [list[float](), list[float]()]
            for number in range(rounds + 1):
                for engine, seconds in zip(engines, taken_s, strict=True):
                    timing = engine.run(work)
                    if number:
                        seconds.append(timing.total_s)
            name = f"ctranslate2_{compute_type}_batch_{batch}"
            figures |= {f"{name}_ms": 1e3 * median(taken_s[0]), f"{name}_mapped_ms": 1e3 * median(taken_s[1])}
            figures[f"{name}_gain"] = _median_ratio(*taken_s)
        for engine in engines:
            engine.close()
    return figures


def _median_ratio(ones: Iterable[float], others: Iterable[float]) -> float:
    return median(one / other for one, other in zip(ones, others, strict=True))


def _bleu(translator: Translator, sentences: Sentences, found: Sequence[Sequence[int]]) -> float:
    texts = translator.target.decode([list(tokens) for tokens in found])
    return float(need("sacrebleu.metrics").BLEU().corpus_score(texts, [list(sentences.references or ())]).score)


def measure(asked: argparse.Namespace) -> dict[str, Any]:
    """Figures by name."""
    figures: dict[str, Any] = {}
    if asked.model is not None:
        translator = Translator.load(asked.model, threads=1)
        text, recipe = recorded(asked.model)
        corpus = read_training_corpus(text, heldout=recipe.heldout, seed=recipe.seed)
        begin_s = time.perf_counter()
        lists = build_candidates(translator, side_of(corpus.train, 0), side_of(corpus.train, 1), always=asked.always)
        figures |= {"pairs": len(corpus.train), "built_s": time.perf_counter() - begin_s}
        heldout = corpus.heldout[: asked.sentences]
        sentences = Sentences.of(translator, Sample(side_of(heldout, 0), side_of(heldout, 1)))
        references = [ids[:-1] for ids in translator.target.encode(sentences.references or ())]
        figures |= {"sentences": len(sentences.sources), "always": asked.always, **sizes(lists, sentences.sources, references)}
        cut = VocabularyPart("ibm1", candidates=CANDIDATES, always=asked.always)
        figures |= by_torch(translator, sentences, lists, cut, asked.rounds)
        if isinstance(translator.model, AttentionalModel):
            figures |= by_sharp(translator.model, translator, sentences, lists, asked.rounds)
    if asked.ctranslate2:
        figures |= by_ctranslate2(asked.rounds)
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, metavar="DIR")
    parser.add_argument("--always", type=int, default=0)
    parser.add_argument("--sentences", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--ctranslate2", action="store_true")
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    if asked.model is None and not asked.ctranslate2:
        parser.error("give --model, --ctranslate2 or both")
    torch.set_num_threads(1)
    try:
        figures = measure(asked)
    except SimnmtError as error:
        sys.exit(str(error))
    print_figures(figures, BARS, as_json=asked.json)


if __name__ == "__main__":
    main()
