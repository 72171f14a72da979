"""What a training is asked to do: its recipe and its budget."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest

from simnmt.nmt.errors import NmtError
from simnmt.nmt.training.recipe import Budget, Recipe, recipe_for
from tests.nmt import toy_language
from tests.nmt.test_training import QUICK


def test_the_rate_rises_linearly_and_falls_with_the_root() -> None:
    recipe = replace(QUICK, peak_rate=1e-3, warmup_steps=100)
    assert [recipe.rate(step) for step in (1, 50, 100, 400)] == pytest.approx([1e-5, 5e-4, 1e-3, 5e-4])


def test_the_first_reached_limit_uses_up_a_budget() -> None:
    budget = Budget(epochs=2, steps=100, minutes=1)
    assert budget.used(epochs=0.5, steps=10, seconds=6.0) == pytest.approx(0.25)
    assert budget.used(epochs=0.5, steps=100, seconds=6.0) == 1.0
    assert budget.used(epochs=0.5, steps=10, seconds=66.0) > 1.0


def test_a_recipe_by_name_has_a_small_model_and_one_by_file_the_models_sizes(tmp_path: Path) -> None:
    assert recipe_for("gru", vocab=500).architecture.src_vocab == recipe_for("gru", vocab=500).architecture.tgt_vocab == 500
    assert recipe_for("transformer").architecture.src_vocab == 8_000
    path = tmp_path / "mine.json"
    path.write_text(toy_language.GRU.model_dump_json())
    assert recipe_for(str(path), seed=9) == Recipe(toy_language.GRU, seed=9)
    twice = tmp_path / "twice.json"
    twice.write_text(toy_language.GRU.model_copy(update={"start_token": 3}).model_dump_json())
    for given, what in (
        ({"model": str(twice)}, "two of pad_token, unk_token, eos_token and start_token are the same"),
        ({"model": "gur"}, "no model 'gur'"),
        ({"model": str(path), "vocab": 7}, "--vocab 7 is not what the architecture says"),
        ({"model": "gru", "heldout": 0}, "heldout is 0"),
        ({"model": "gru", "seed": -1}, "seed is -1"),
        ({"model": "transformer", "vocab": 3}, "3 is no token of a vocabulary of 3"),
        ({"model": "gru", "vocab": 2_000_000}, "src_vocab"),
        ({"model": "gru", "batch_tokens": 0}, "batch_tokens is 0"),
        ({"model": "gru", "precision": "int4"}, "no precision 'int4'"),
        ({"model": "gru", "dropout": 1.0}, "a dropout of 1.0"),
        ({"model": "gru", "peak_rate": math.nan}, "a learning rate of nan"),
    ):
        with pytest.raises(NmtError, match=what) as caught:
            recipe_for(**given)
        assert "\n" not in str(caught.value)
