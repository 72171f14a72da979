"""The whole reproduction: occupancies, speeds on every device that tells of batches, loads within a p95, and the verdicts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from simnmt.costs import DeviceProfile
from simnmt.errors import InputError
from simnmt.reproduce.topup import claims, online
from simnmt.reproduce.topup.devices import Decoder, decoders, shipped_profiles
from simnmt.reproduce.topup.occupancies import SEEDS, Occupied, lengths_of, occupied
from simnmt.reproduce.topup.online import Curve, Holding, holding
from simnmt.reproduce.topup.online_claims import online_claims
from simnmt.reproduce.topup.published import SETS
from simnmt.reproduce.topup.speed_claims import speed_claims
from simnmt.reproduce.topup.speeds import RefillLimit, Speed, refill_limits, speed
from simnmt.reproduce.topup.strategies import OFFLINE
from simnmt.reproduce.topup.undecided import LEAST_BATCHES
from simnmt.scenario.processes import answers

LEAST_SENTENCES = 100
SPEED_SEEDS = SEEDS[:2]
"""Speeds hardly differ between seeds: 30,000 sentences average more than a seed moves."""

Progress = Callable[[int, int], None]
"""Called with what is done and what there is in all."""


@dataclass(frozen=True, slots=True)
class Reproduction:
    """The paper's statements on batching, and ours."""

    occupancies: dict[tuple[str, str], Occupied]
    """By set and strategy."""
    moments: dict[str, tuple[float, float]]
    """By set: mean and standard deviation of the source lengths, over seeds."""
    decoders: list[Decoder]
    speeds: dict[tuple[str, int, str, str], Speed]
    """By device, beam, set and strategy."""
    limits: list[RefillLimit]
    curves: list[Curve]
    held: list[Holding]
    claims: list[dict[str, Any]]
    sentences: int | None = None
    """That were timed, of a set, at most; None: the paper's."""


def reproduce(
    *,
    profiles: Sequence[DeviceProfile] | None = None,
    p95_s: float | None = None,
    requests: int | None = None,
    jobs: int = 1,
    progress: Progress | None = None,
) -> Reproduction:
    """Form the paper's batches of its lengths, and time them on `profiles`, by default all that are shipped.

    `p95_s`: what is to be held online, by default what suits each device; `requests`: sentences that are timed at most, of
    a set and of an online run, while occupancies are always of the paper's sets; of fewer than `LEAST_BATCHES` batches
    nothing is judged. Profiles that tell nothing of batches are passed over. Raises `InputError` for too few requests.
    """
    if requests is not None and requests < LEAST_SENTENCES:
        what = f"{requests} requests: too few to tell of batches"
        raise InputError(what, remedy=f"give {LEAST_SENTENCES} or more; verdicts need {LEAST_BATCHES} batches")
    known = decoders(shipped_profiles() if profiles is None else profiles)
    tasks: list[_Task] = [_Occupy(key) for key in SETS]
    tasks += [_Time(each, key, requests) for each in known for key in SETS]
    asked = None if p95_s is None else (p95_s,)
    beam = {each.device: min(other.beam for other in known if other.device == each.device) for each in known}
    tasks += [_Arrive(each, key, asked, requests) for each in known if each.beam == beam[each.device] for key in SETS]
    results: list[Any] = [None] * len(tasks)
    for done, (index, answer) in enumerate(_worked(tasks, jobs), start=1):
        results[index] = answer
        if progress is not None:
            progress(done, len(tasks))
    return _of_results(known, tasks, results, requests)


@dataclass(frozen=True, slots=True)
class _Occupy:
    test_set: str

    def run(self) -> tuple[list[Occupied], tuple[float, float]]:
        drawn = [lengths_of(self.test_set, seed)[0] for seed in SEEDS]
        moments = tuple(sum(values) / len(drawn) for values in zip(*((each.mean(), each.std()) for each in drawn), strict=True))
        mean, sd = (float(each) for each in moments)
        return [occupied(self.test_set, each.key, SEEDS) for each in OFFLINE], (mean, sd)


@dataclass(frozen=True, slots=True)
class _Time:
    decoder: Decoder
    test_set: str
    sentences: int | None

    def run(self) -> tuple[list[Speed], list[RefillLimit]]:
        found = {each.key: speed(self.decoder, self.test_set, each.key, SPEED_SEEDS, self.sentences) for each in OFFLINE}
        return list(found.values()), refill_limits(found, self.decoder)


@dataclass(frozen=True, slots=True)
class _Arrive:
    decoder: Decoder
    test_set: str
    asked_s: tuple[float, ...] | None
    sentences: int | None

    def run(self) -> tuple[list[Curve], list[Holding]]:
        sentences = online.run_sentences(self.decoder.batch, self.sentences)
        return holding(self.decoder, self.test_set, self.asked_s, online.SEEDS, sentences)


_Task = _Occupy | _Time | _Arrive


def _run(task: _Task) -> Any:
    return task.run()


def _worked(tasks: Sequence[_Task], jobs: int) -> Any:
    return answers(_run, tasks, min(jobs, len(tasks))) if jobs > 1 else enumerate(map(_run, tasks))


def _of_results(known: list[Decoder], tasks: list[_Task], results: list[Any], requests: int | None) -> Reproduction:
    both = list(zip(tasks, results, strict=True))
    occupancies = {
        (each.test_set, each.strategy): each for task, found in both if isinstance(task, _Occupy) for each in found[0]
    }
    moments = {task.test_set: found[1] for task, found in both if isinstance(task, _Occupy)}
    timed = [found for task, found in both if isinstance(task, _Time)]
    speeds = {(each.device, each.beam, each.test_set, each.strategy): each for found, _ in timed for each in found}
    limits = [each for _, found in timed for each in found]
    arrived = [found for task, found in both if isinstance(task, _Arrive)]
    held = [each for _, found in arrived for each in found]
    return Reproduction(
        occupancies,
        moments,
        known,
        speeds,
        limits,
        [each for found, _ in arrived for each in found],
        held,
        [
            claims.moment_claim(moments),
            *claims.occupancy_claims(occupancies),
            *speed_claims(known, speeds, limits, requests),
            *online_claims(known, held, requests),
        ],
        requests,
    )
