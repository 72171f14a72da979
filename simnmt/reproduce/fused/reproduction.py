"""The whole reproduction: stages and speeds on every device that tells of fusing, a real decoder if asked, and the verdicts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from simnmt.costs import DeviceProfile
from simnmt.errors import InputError
from simnmt.reproduce.fused.claims import paper_claims, real_claims
from simnmt.reproduce.fused.device_claims import device_claims
from simnmt.reproduce.fused.devices import FusedDecoder, fused_decoders
from simnmt.reproduce.fused.speeds import Key, speeds
from simnmt.reproduce.fused.stages import SetStages, stages
from simnmt.reproduce.topup.devices import BEAMS, shipped_profiles
from simnmt.reproduce.topup.occupancies import SEEDS
from simnmt.reproduce.topup.published import SETS
from simnmt.reproduce.topup.reproduction import LEAST_SENTENCES
from simnmt.reproduce.topup.speeds import Speed
from simnmt.scenario.processes import answers

if TYPE_CHECKING:
    from simnmt.calibrate.fused_speeds import RealSpeed

REAL_MODEL = "gru-512"
"""The paper's model (FNI-13)."""
SPEED_SEEDS = SEEDS[:2]

Progress = Callable[[int, int], None]
"""Called with what is done and what there is in all."""


@dataclass(frozen=True, slots=True)
class Reproduction:
    """The paper's statements on fusing, and ours."""

    decoders: list[FusedDecoder]
    left_out: list[str]
    """What was passed over, and why."""
    stages: dict[tuple[str, int, str], SetStages]
    """By device, beam and set."""
    speeds: dict[Key, Speed]
    real: list[RealSpeed]
    claims: list[dict[str, Any]]
    sentences: int | None = None
    """That were timed, of a set, at most; None: the paper's."""


def reproduce(
    *,
    profiles: Sequence[DeviceProfile] | None = None,
    requests: int | None = None,
    measure: int | None = None,
    model: str | None = None,
    jobs: int = 1,
    progress: Progress | None = None,
) -> Reproduction:
    """Time the paper's output layer on `profiles`, by default all that are shipped and tell of variants of their decoder.

    `requests`: sentences that are timed at most, of a set; `measure`: sentences of each mix that a real `model` decodes as
    well, by default the paper's, with the fused output layer and without. Raises `InputError` for too few requests.
    """
    if requests is not None and requests < LEAST_SENTENCES:
        raise InputError(f"{requests} requests: too few to tell of batches", remedy=f"give {LEAST_SENTENCES} or more")
    known, left_out = fused_decoders(shipped_profiles() if profiles is None else profiles)
    # First: a model that cannot be read is refused before minutes of simulation.
    real = _measured(model or REAL_MODEL, measure, progress) if measure is not None else []
    tasks = [_Task(each, key, requests) for each in known for key in SETS]
    worked: list[Any] = [None] * len(tasks)
    done = answers(_run, tasks, min(jobs, len(tasks))) if jobs > 1 and tasks else enumerate(map(_run, tasks))
    for count, (index, answer) in enumerate(done, start=1):
        worked[index] = answer
        if progress is not None:
            progress(count, len(tasks))
    found_stages = {
        (task.decoder.device, task.decoder.beam, task.test_set): own for task, (own, _) in zip(tasks, worked, strict=True)
    }
    found_speeds = {key: each for _, own in worked for key, each in own.items()}
    return Reproduction(
        known,
        left_out,
        found_stages,
        found_speeds,
        real,
        [*paper_claims(), *real_claims(real), *device_claims(known, found_stages, found_speeds, requests)],
        requests,
    )


@dataclass(frozen=True, slots=True)
class _Task:
    decoder: FusedDecoder
    test_set: str
    sentences: int | None

    def run(self) -> tuple[SetStages, dict[Key, Speed]]:
        own = stages(self.decoder, self.test_set, SPEED_SEEDS[0], self.sentences)
        return own, speeds(self.decoder, self.test_set, SPEED_SEEDS, self.sentences)


def _run(task: _Task) -> Any:
    return task.run()


def _measured(model: str, sentences: int, progress: Progress | None) -> list[RealSpeed]:
    # Here, so that a reproduction from profiles needs no torch.
    from simnmt.calibrate.fused_speeds import fused_speeds

    return fused_speeds(model, sentences, BEAMS, progress=progress)
