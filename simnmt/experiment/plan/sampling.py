"""Candidates of a space that is too large to judge all of them: optuna proposes those that are worth a short run."""

from __future__ import annotations

from typing import Any

from simnmt.base.packages import named_if_missing
from simnmt.experiment.plan.candidates import Space
from simnmt.experiment.plan.search import Search

MOST_EXHAUSTIVE = 400
"""Most candidates that are all judged."""
TRIALS = 200
"""Candidates that are proposed otherwise, each after the outcomes of those before it."""
WORSE = 1e6
"""Value of a candidate that misses the level, above those of all that keep it; the sampler only ranks values."""


def add_sampled(search: Search, space: Space) -> None:
    """Add the candidates to a search that optuna proposes, each judged on the first rung.

    Raises `MissingPackage` if optuna is not installed.
    """
    with named_if_missing("plan"):
        import optuna
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    sampler = optuna.samplers.TPESampler(seed=space.first.scenario.seed % 2**32, n_startup_trials=TRIALS // 5)
    study = optuna.create_study(sampler=sampler)
    values: dict[tuple[int, ...], float] = {}
    for _ in range(TRIALS):
        trial = study.ask()
        places = tuple(_suggest(trial, name, count) for name, count in space.axes)
        if places not in values:
            values[places] = _value(search, space, places)
        study.tell(trial, values[places])


def _suggest(trial: Any, name: str, count: int) -> int:
    """Return the proposed place among the values of a key."""
    place: int = trial.suggest_int(name, 0, count - 1)
    return place


def _value(search: Search, space: Space, places: tuple[int, ...]) -> float:
    candidate = search.add(space.deployment_at(places))
    search.reject_impossible(candidate)
    if not candidate.rejected:
        search.climb(candidate)
    if candidate.rejected:
        return WORSE * (1.0 + candidate.excess if candidate.outcomes else 10.0)
    objective, latency_s = candidate.estimate(search.objective)
    return objective + 1e-3 * latency_s
