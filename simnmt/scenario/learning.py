"""What the policies learn before a run: the length regression and the planes, each replication anew (CNMT-05, CNMT-07).

Every replication deals the corpus's pairs out again and calibrates again, so that an interval over replications also holds what
a policy owes to the luck of its fit. (With one fit for all, Naive's intervals came out several times too narrow.)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from simnmt import streams
from simnmt.costs import ExecutionPlane, PlaneFit, fit_plane
from simnmt.scenario.active_shares import STREAM as SHARES
from simnmt.scenario.active_shares import more_s_per_tgt_token
from simnmt.scenario.build import Case
from simnmt.scenario.model import FitConfiguration
from simnmt.workload.length_regression import LengthFit, fit_lengths
from simnmt.workload.length_table import LengthTable


@dataclass(frozen=True, slots=True)
class Learnt:
    """What one replication's policies know of a workload, and the pairs that they do not know."""

    fit_pairs: LengthTable
    evaluated_pairs: LengthTable
    """The other pairs: the run's requests are drawn from these."""
    lengths: LengthFit
    plane_fits: tuple[PlaneFit | None, ...]
    """Per target; None where the policies take the profile's plane."""
    planes: tuple[ExecutionPlane, ...]
    """What the policies reckon with, per target."""


def learn(case: Case, devices: Sequence[str], fit: FitConfiguration, seed: int, replication: int) -> Learnt:
    """Split the pairs, fit the regression on one part, and the devices' planes on simulated inferences over the same part."""
    fit_pairs, evaluated_pairs = case.table.split(fit.share, seed, replication)
    if case.outliers is not None:
        # Thinned as the kept pairs are, so that both keep their shares of the requests.
        outliers = case.outliers if case.outliers.pairs < 2 else case.outliers.split(fit.share, seed, replication)[1]
        evaluated_pairs = evaluated_pairs.plus(outliers)
    plane_fits: list[PlaneFit | None] = []
    for number, device in enumerate(devices):
        if fit.inferences == 0:
            plane_fits.append(_of_what_is_planned(case, number, fit_pairs, seed, replication))
            continue
        name = f"{case.name}/calibration {device}"
        src_len, tgt_len = fit_pairs.sample(seed, replication, f"{name} lengths", fit.inferences)
        noise = standard_normal(seed, replication, name, fit.inferences)
        more_s = more_s_per_tgt_token(case, fit.inferences, partial(uniform, seed, replication, f"{name} {SHARES}"))[number]
        plane_fits.append(fit_plane(src_len, tgt_len, case.in_memory_s(number, src_len, tgt_len, noise, more_s)))
    return Learnt(
        fit_pairs=fit_pairs,
        evaluated_pairs=evaluated_pairs,
        lengths=fit_lengths(fit_pairs),
        plane_fits=tuple(plane_fits),
        planes=tuple(
            profile.plane if fitted is None else fitted.plane for profile, fitted in zip(case.profiles, plane_fits, strict=True)
        ),
    )


NOISELESS = 10_000
"""Inferences without noise from which a streamed model's plane is fitted where no calibration is simulated."""


def _of_what_is_planned(case: Case, target: int, pairs: LengthTable, seed: int, replication: int) -> PlaneFit | None:
    """The plane of what a streamed model computes as planned: the profile's is of the whole model; None where that holds."""
    streamed = case.streamed_at(target)
    if streamed is None:
        return None
    src_len, tgt_len = pairs.sample(seed, replication, f"{case.name}/planned {target} lengths", NOISELESS)
    return fit_plane(src_len, tgt_len, streamed.in_memory_s(src_len, tgt_len))


def standard_normal(seed: int, replication: int, name: str, size: int) -> NDArray[np.float64]:
    """Standard normal numbers of one stream."""
    return streams.draw(seed, replication, name, size, lambda generator, count: generator.standard_normal(count))


def uniform(seed: int, replication: int, name: str, size: int) -> NDArray[np.float64]:
    """Numbers in [0, 1) of one stream."""
    return streams.draw(seed, replication, name, size, lambda generator, count: generator.random(count))
