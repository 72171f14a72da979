"""Refit of a device profile from executions in service: a new level, and a new plane where the requests determine one."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from simnmt.base import VERSION
from simnmt.base.least_squares import bounded_least_squares
from simnmt.live.cusum import Noise, capped, robust_sd
from simnmt.live.drift import lengths_of_profile
from simnmt.profile.blocks import ExecutionFit, ProfileError
from simnmt.profile.device_profile import DeviceProfile, Execution, Provenance, ValidRange
from simnmt.profile.execution_fit import r_squared, samples_by_tgt_len
from simnmt.profile.execution_plane import ExecutionPlane, PlaneCoefficients, fit_plane
from simnmt.profile.profile_file import checked_profile
from simnmt.profile.reconciliation import at_pace
from simnmt.results.live_log import LiveRequests

Floats = NDArray[np.float64]

Shape = Literal["level", "plane"]

LEAST_EXECUTIONS = 100
"""Least executions of single sentences for a new profile."""
MOST_RATIO = 10.0
"""Executions that took more than that many times as long as usual are left out of the mean: the process was stopped."""
MOST_CONDITION = 30.0
"""Greatest condition number of the lengths for a new plane; beyond, slopes of collinear lengths are not determined."""
FOLDS = 10
LEAST_SHARE = 0.01
"""Least seconds of a new plane over those of the old one, where the new one would be negative."""
CLEAR_Z = 3.0
"""A new plane replaces the rescaled one if its squared relative errors on left-out requests are less by that many standard
errors."""


@dataclass(frozen=True, slots=True)
class Refit:
    """A profile refitted in service, and how well it fits."""

    profile: DeviceProfile
    executions: int
    shape: Shape
    """`level`: the old plane times `level`; `plane`: new coefficients."""
    level: float
    """Mean measured seconds over those of the old plane."""
    heldout_error: float
    """Mean absolute relative error on single left-out executions; most of it is their noise."""
    heldout_error_before: float
    """Error of the old profile on the same executions."""


def refit(profile: DeviceProfile, rows: LiveRequests, *, log: str) -> Refit:
    """Return the profile refitted to executions of single sentences, with steps and encoder at the same new level.

    The fit minimises relative errors, weighted by the old plane's seconds: the noise of an execution grows with its time, and
    weights from the measured times themselves would pull the plane below their mean. Outliers count less for the shape, and
    fully for the level. A full plane replaces the rescaled one only if it predicts left-out requests clearly better.

    Args:
        profile: the profile in use.
        rows: executions in service, such as `DriftWatch.executions`.
        log: name of the log, for provenance.

    Raises:
        ProfileError: for fewer than `LEAST_EXECUTIONS` executions.
    """
    if len(rows) < LEAST_EXECUTIONS:
        raise ProfileError(
            f"{len(rows)} executions of single sentences on {profile.name}, of {LEAST_EXECUTIONS} that a refit needs",
            remedy="watch a longer log",
        )
    src, tgt = lengths_of_profile(profile, rows)
    time_s = rows.execution_s
    old_s = profile.of_forced_lengths.plane.seconds(src, tgt)
    usual = float(np.median(time_s / old_s))
    counted = time_s < MOST_RATIO * usual * old_s
    src, tgt, time_s, old_s = (column[counted] for column in (src, tgt, time_s, old_s))
    forced = profile.of_forced_lengths.plane
    level = float((time_s / old_s).mean())
    planes = {"level": forced.times(level), "plane": _fitted_plane(src, tgt, time_s, old_s)}
    heldout = _heldout_errors(src, tgt, time_s, old_s)
    gain = heldout["level"] ** 2 - heldout["plane"] ** 2
    condition = fit_plane(src, tgt, time_s).condition_number
    clearly_better = gain.mean() > CLEAR_Z * gain.std(ddof=1) / np.sqrt(gain.size)
    shape: Shape = "plane" if clearly_better and condition < MOST_CONDITION else "level"
    predicted_s = planes[shape].seconds(src, tgt)
    error = float(np.abs(heldout[shape]).mean())
    execution = Execution(
        kind="measured",
        plane=PlaneCoefficients(**asdict(planes[shape])),
        residual_relative_sd=float(np.sqrt(((time_s / predicted_s - 1.0) ** 2).mean())),
        fit=ExecutionFit(
            inferences=int(time_s.size),
            level_error=float(np.sqrt(Noise.of(np.log(time_s / predicted_s)).long_run_variance / time_s.size)),
            r2=r_squared(predicted_s, time_s),
            mse_ms2=float(((predicted_s - time_s) ** 2).mean()) * 1e6,
            heldout_error=error,
            heldout_how="single executions in service, a tenth at a time left out",
            condition_number=condition if condition < 1e15 else None,
            collinear=condition >= MOST_CONDITION,
        ),
        samples=samples_by_tgt_len(src, tgt, time_s, beam=1 if profile.engine is None else profile.engine.beam),
    )
    window = f"{time_s.size} executions in lines {rows.line[0]} to {rows.line[-1]} of {log}"
    how = "a new plane" if shape == "plane" else "the plane rescaled"
    times = f"{level:.3f} times the seconds before"
    source = f"measured in service: {how} from {window}, {times} ({profile.provenance.source})"
    new = at_pace(profile, level).model_copy(
        update={
            "execution": execution,
            "valid_range": _range(src, tgt) if shape == "plane" else profile.valid_range,
            "provenance": Provenance(source=source, date=_now(), tool=f"simnmt {VERSION} live watch"),
        }
    )
    return Refit(
        profile=checked_profile(new.model_dump(mode="json")),
        executions=int(time_s.size),
        shape=shape,
        level=level,
        heldout_error=error,
        heldout_error_before=float(np.abs(old_s / time_s - 1.0).mean()),
    )


ROBUST_ROUNDS = 4
"""Fits in a row, each with the outliers about the plane before it capped."""


def _fitted_plane(src: Floats, tgt: Floats, time_s: Floats, old_s: Floats) -> ExecutionPlane:
    """Fit a plane by relative errors, with outliers capped, at the mean level of all times.

    Errors are relative to the seconds of the plane before, first of the old one.
    """
    design = np.column_stack([src, tgt, np.ones_like(src)])
    weighing_s, calm_s = old_s, time_s
    for _ in range(ROBUST_ROUNDS):
        fitted = bounded_least_squares(design / weighing_s[:, None], calm_s / weighing_s, (True, True, False))
        shape_s = np.maximum(design @ fitted, LEAST_SHARE * old_s)
        scores = np.log(time_s / shape_s)
        middle = float(np.median(scores))
        calm_s = shape_s * np.exp(middle + capped(scores - middle, robust_sd(scores)))
        weighing_s = shape_s
    plane = ExecutionPlane(*fitted.tolist())
    return plane.times(float((time_s / shape_s).mean()))


def _heldout_errors(src: Floats, tgt: Floats, time_s: Floats, old_s: Floats) -> dict[str, Floats]:
    """Return the relative errors of both shapes on left-out executions."""
    # A fixed shuffle: neighbouring requests share the wander of the box.
    folds = np.array_split(np.random.default_rng(0).permutation(time_s.size), FOLDS)
    errors = {shape: np.empty_like(time_s) for shape in ("level", "plane")}
    for left_out in folds:
        kept = np.setdiff1d(np.arange(time_s.size), left_out)
        plane = _fitted_plane(src[kept], tgt[kept], time_s[kept], old_s[kept])
        level = float((time_s[kept] / old_s[kept]).mean())
        predicted_s = {"level": level * old_s[left_out], "plane": plane.seconds(src[left_out], tgt[left_out])}
        for shape, seconds in predicted_s.items():
            errors[shape][left_out] = seconds / time_s[left_out] - 1.0
    return errors


def _range(src: Floats, tgt: Floats) -> ValidRange:
    """Return the range of the lengths to which a plane was fitted."""
    return ValidRange(src_len=(int(src.min()), int(src.max())), tgt_len=(int(tgt.min()), int(tgt.max())))


def _now() -> str:
    return datetime.now(timezone.utc).isoformat(timespec="seconds")
