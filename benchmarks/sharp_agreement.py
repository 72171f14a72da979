"""What the sharp decoder's techniques change of a trained model's translations (SHARP-10):
`python -m benchmarks.sharp_agreement --model fr-en --json`.

The model is a folder that `simnmt nmt train --model sharp` wrote, with its text still in place: the sources are the part that
was held out. Techniques that are identities should give the very sentences of torch's beam search, with the same sums of
log-probabilities and no length penalty, near ties aside, which rounding decides. Those that add noise are
held teacher-forced against float32, along its own translations, by the share of steps whose likeliest word is the same; and by
the change in BLEU. A second `--model` of the same vocabulary makes an ensemble with the first, whose BLEU is told (SHARP-14).
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from benchmarks.printing import print_figures
from simnmt.base.errors import SimnmtError
from simnmt.calibrate.sharp_agreement import same_words
from simnmt.kernels.sharp.model import SharpTranslation
from simnmt.nmt.agreement import NEAR_TIE
from simnmt.nmt.attentional_model import AttentionalModel
from simnmt.nmt.engine import Hypothesis
from simnmt.nmt.errors import need
from simnmt.nmt.models import load_model
from simnmt.nmt.searches import BeamSearch
from simnmt.nmt.sharp_translator import SharpTranslator
from simnmt.nmt.slot_decoder import SlotDecoder
from simnmt.nmt.subwords import SOURCE_TOKENIZER, TARGET_TOKENIZER, Subwords
from simnmt.nmt.training.recipe import read_training_corpus, side_of
from simnmt.nmt.training.session import recorded
from simnmt.profile.decoder_settings import DecoderSettings

MAX_LEN = 100
BATCH = 64
KEPT: dict[str, Any] = {"embeddings": "precomputed", "attention": "precomputed", "merge": True}
IDENTITIES: dict[str, dict[str, Any]] = {
    "float32": {},
    "embeddings": {"embeddings": "precomputed"},
    "frequent_embeddings": {"embeddings": "frequent", "frequent_words": 800},
    "attention": {"attention": "precomputed"},
    "merge": {"merge": True},
    "fused": {"fused": True},
    "all_identities": {**KEPT, "fused": True},
}
NOISE: dict[str, dict[str, Any]] = {
    "int16": {"gemm": "int16"},
    "table": {"activations": "table"},
    "polynomial": {"activations": "polynomial"},
    "int16_and_table": {**KEPT, "gemm": "int16", "activations": "table"},
    "int16_and_polynomial": {**KEPT, "gemm": "int16", "activations": "polynomial"},
}
BARS: dict[str, tuple[str, Any]] = {
    **{f"{name}_other_sentences": ("=", 0) for name in IDENTITIES},
    **{f"{name}_equal_tokens": (">=", 0.999) for name in NOISE},
    **{f"{name}_bleu_change": ("<", 0.02) for name in NOISE},
}
"""Of SHARP-10. A sentence that differs by a near tie is counted apart."""


@dataclass(frozen=True, slots=True)
class Text:
    """What is translated."""

    sources: list[list[int]]
    references: list[str]
    target: Subwords

    @classmethod
    def held_out(cls, folder: Path, most: int) -> Text:
        """The first sentences of the part that a training set aside to be judged by."""
        text, recipe = recorded(folder)
        heldout = read_training_corpus(text, heldout=recipe.heldout, seed=recipe.seed).heldout[:most]
        source, target = (Subwords.read(folder / name) for name in (SOURCE_TOKENIZER, TARGET_TOKENIZER))
        return cls(source.encode(side_of(heldout, 0)), side_of(heldout, 1), target)

    def bleu(self, found: Sequence[Sequence[int]]) -> float:
        """Of translations in the order of the sources."""
        texts = self.target.decode([list(tokens) for tokens in found])
        return float(need("sacrebleu.metrics").BLEU().corpus_score(texts, [self.references]).score)


def model_of(folder: Path) -> AttentionalModel:
    """A trained attentional model; ends the program with a line for another."""
    model = load_model(str(folder)).model
    if not isinstance(model, AttentionalModel):
        raise SystemExit(f"{folder}: no attentional model (give one that was trained with --model sharp)")
    return model


def by_torch(model: AttentionalModel, sources: Sequence[Sequence[int]], width: int) -> list[Hypothesis]:
    """torch's beam search without a length penalty, batch by batch, in the order of the sources."""
    found: dict[int, Hypothesis] = {}
    order = sorted(range(len(sources)), key=lambda at: len(sources[at]))
    for first in range(0, len(order), BATCH):
        batch = order[first : first + BATCH]
        decoder = SlotDecoder(
            model, max_len=MAX_LEN, capacity=BATCH, search=lambda: BeamSearch(model, width, length_penalty=0.0)
        )
        decoder.join(decoder.encode([sources[at] for at in batch]), batch)
        while decoder.active:
            found.update(decoder.step())
    return [found[at] for at in range(len(sources))]


@torch.inference_mode()
def closest_call(model: AttentionalModel, source: Sequence[int], width: int) -> float:
    """The least gap in log-probability between a score that the beam keeps and one that it drops, over all steps."""
    state = model.start(model.encode(torch.tensor([list(source)]), torch.tensor([len(source)])), width)
    words, scores = torch.full((width,), model.start_token), torch.full((width,), -math.inf, dtype=torch.float64)
    scores[0], best, gap = 0.0, -math.inf, math.inf
    for _ in range(MAX_LEN):
        logits, state = model.step(state, words)
        logits[:, model.pad_token] = -math.inf
        ranked = (logits.double().log_softmax(1) + scores[:, None]).view(-1).topk(2 * width + 2)
        ended = ranked.indices % model.vocab == model.eos_token
        going_on = (~ended).nonzero()[: width + 1, 0]
        gap = min(gap, float(ranked.values[going_on[-2]] - ranked.values[going_on[-1]]))
        if ended[width - 1 : width + 1].any():
            gap = min(gap, float(ranked.values[width - 1] - ranked.values[width]))
        best = max([best, *ranked.values[:width][ended[:width]].tolist()])
        kept = going_on[:width]
        scores, words = ranked.values[kept], ranked.indices[kept] % model.vocab
        if best >= float(scores[0]):
            break
        state = model.reorder(state, ranked.indices[kept] // model.vocab)
    return gap


def measure(models: Sequence[AttentionalModel], text: Text, width: int) -> dict[str, Any]:
    """Figures by name."""
    model, figures = models[0], dict[str, Any]()

    def translator(how: dict[str, Any], members: Sequence[AttentionalModel] = (model,)) -> SharpTranslator:
        settings = DecoderSettings.model_validate({"beam": width} | how)
        return SharpTranslator(members, settings, max_len=MAX_LEN)

    plain = translator({})
    theirs = by_torch(model, text.sources, width)
    figures |= {"sentences": len(text.sources), "beam": width, "compiled": plain.compiled}
    figures["torch_bleu"] = text.bleu([each.tokens for each in theirs])
    said: list[SharpTranslation] = []
    for name, how in (IDENTITIES | NOISE).items():
        one = translator(how)
        found = one.translate(text.sources)
        if name == "float32":
            said = found
            figures["tokens"] = sum(len(each.tokens) + 1 for each in said)
            figures["float32_bleu"] = text.bleu([each.tokens for each in said])
        other = [at for at, each in enumerate(found) if each.tokens != theirs[at].tokens]
        figures[f"{name}_other_sentences"] = len(other)
        if name in IDENTITIES:
            near = [at for at in other if closest_call(model, text.sources[at], width) < NEAR_TIE]
            figures[f"{name}_near_ties"], figures[f"{name}_other_sentences"] = len(near), len(other) - len(near)
            continue
        same, total = same_words(plain, one, text.sources, [each.tokens for each in said], model.eos_token)
        figures[f"{name}_equal_tokens"] = same / total
        figures[f"{name}_bleu_change"] = abs(text.bleu([each.tokens for each in found]) - figures["float32_bleu"])
    if len(models) > 1:
        together = translator({}, models)
        figures["ensemble_bleu"] = text.bleu([each.tokens for each in together.translate(text.sources)])
        second = translator({}, models[1:2])
        figures["second_bleu"] = text.bleu([each.tokens for each in second.translate(text.sources)])
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, action="append", required=True, metavar="DIR")
    parser.add_argument("--sentences", type=int, default=1000)
    parser.add_argument("--beam", type=int, default=6)
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    try:
        models = [model_of(folder) for folder in asked.model]
        figures = measure(models, Text.held_out(asked.model[0], asked.sentences), asked.beam)
    except SimnmtError as error:
        sys.exit(str(error))
    print_figures(figures, BARS, as_json=asked.json)


if __name__ == "__main__":
    main()
