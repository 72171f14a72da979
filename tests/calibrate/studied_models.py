"""Models and texts of two small languages for studies of a part of the vocabulary, and contexts of theirs."""

from __future__ import annotations

from pathlib import Path

from simnmt.calibrate.harness import Case
from simnmt.nmt.checkpoint import save_checkpoint
from simnmt.nmt.models import build_model
from simnmt.nmt.subwords import learn_vocabulary
from simnmt.nmt.translation import Translator
from simnmt.nmt.vocabulary.contexts import collect
from simnmt.papers.fvp.study_clusters import DirectionContexts, by_sentence
from simnmt.papers.fvp.study_texts import Direction, held_out
from tests.nmt import toy_language

GRU = toy_language.GRU.model_copy(update={"src_vocab": 36, "tgt_vocab": 36})


QUIET = Case(lambda: {"seconds": 1.0})
"""Reference work by which no round is disturbed, however busy the box is that runs the tests."""
MARKS = {"pad": 0, "unk": 1, "start": 2, "eos": 3}


def models_and_text(place: Path) -> Path:
    """Models that have learnt nothing, whose words change from source to source all the same, and text."""
    subwords = learn_vocabulary([text for pair in toy_language.pairs(300) for text in pair], 36, side="whole", **MARKS)
    for name, seed in (("m", 4), ("other", 5)):
        save_checkpoint(place / name, build_model(GRU, seed=seed), GRU)
        for side in ("source.model", "target.model"):
            (place / name / side).write_bytes(subwords)
    for part, first, last in (("train", 0, 60), ("held", 60, 100)):
        for side, suffix in ((0, "one"), (1, "other")):
            lines = [pair[side] for pair in toy_language.pairs(100, seed=2)[first:last]]
            (place / f"{part}.{suffix}").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return place


def direction(made: Path, label: str = "one-other") -> Direction:
    """Of these texts, the other way round as well."""
    one, other = ("one", "other") if label == "one-other" else ("other", "one")
    return Direction(label, made / f"train.{one}", made / f"held.{one}", made / f"held.{other}", made / f"train.{other}")


def contexts_of(made: Path, translator: Translator, sentences: int = 30) -> DirectionContexts:
    """Of the first training sentences, and of the development half."""
    texts = direction(made)
    lines = texts.train.read_text().splitlines()[:sentences]
    development = by_sentence(collect(translator.model, translator.encode(held_out(texts, 10)[1].sources), 3))
    return DirectionContexts("one-other", by_sentence(collect(translator.model, translator.encode(lines), 3)), development)
