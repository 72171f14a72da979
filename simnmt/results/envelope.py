"""The validated envelope: whether a deployment lies inside what was validated live, and the nearest validated cell.

A deployment is inside if a recorded validation has the same engines in the same tiers (model, backend, number format, threads,
one box each) and the same batching and kind of policy, and the deployment's load and mean RTT lie within those of its cells. A
margin of 10 % at both ends counts as within. Void cells do not count. The nearest cell is that with the least distance: the
natural logarithms of the ratios of load and mean RTT, and 1 each for another policy or batching.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from math import log
from pathlib import Path
from typing import Any, Literal

from simnmt.base import shipped_files
from simnmt.base.errors import InputError
from simnmt.base.suggestions import format_list

MARGIN = 0.1
"""Share by which load and mean RTT may lie beyond the validated ones."""
LEAST_RTT_S = 1e-4
"""Round trips below this count as equal."""
VALIDATION = "validation.json"
Status = Literal["inside", "outside", "never validated"]


@dataclass(frozen=True, slots=True)
class EngineKind:
    """What executes on a device, as far as a validation holds for it."""

    model: str
    """Kind of the architecture, such as gru or transformer."""
    backend: str
    compute_type: str
    threads: int | None

    def describe(self) -> str:
        """Describe the engine, such as `gru on torch float32, 1 thread`."""
        threads = "" if self.threads is None else f", {self.threads} thread{'s' * (self.threads != 1)}"
        return f"{self.model} on {self.backend} {self.compute_type}{threads}"


@dataclass(frozen=True, slots=True)
class Deployment:
    """A workload on a network under a policy, as far as a validation holds for it."""

    engines: tuple[EngineKind | None, ...]
    """By device, gateway first; None for a device whose profile names no measured engine, or whose model is streamed."""
    boxes: tuple[int, ...]
    """Boxes of each device."""
    batching: tuple[str, ...]
    """Kind of batching of each device; `alone` without."""
    policy: str
    """Kind of the policy."""
    load: float | None
    """Requests a second over what one gateway could execute alone; None if the answers set the pace."""
    mean_rtt_s: float

    @classmethod
    def of(cls, document: dict[str, Any]) -> Deployment:
        """Return the deployment of a validation's JSON."""
        engines = tuple(None if engine is None else EngineKind(**engine) for engine in document["engines"])
        return cls(
            engines,
            tuple(document["boxes"]),
            tuple(document["batching"]),
            document["policy"],
            document["load"],
            document["mean_rtt_s"],
        )


@dataclass(frozen=True, slots=True)
class ValidatedCell:
    """A cell of a recorded validation."""

    validation: str
    policy: str
    """Name of the policy in its scenario."""
    link: str
    deployment: Deployment
    error_mean: float
    """Simulated over live mean less 1, by the profiles alone."""
    spread_mean: float | None
    """Range of the live means over their mean; None with one repeat."""
    disturbed: bool
    """True if the validation was made on a box that others used."""

    def describe(self) -> str:
        """Describe the cell with its error."""
        place = self.deployment
        spread = "of one live run" if self.spread_mean is None else f"live runs spread by {100 * self.spread_mean:.1f} %"
        busy = ", on a busy box" * self.disturbed
        return (
            f"{self.policy}, load {place.load:.2g}, {self.link} of {1e3 * place.mean_rtt_s:.3g} ms in {self.validation}: "
            f"simulated mean {100 * self.error_mean:+.1f} %, {spread}{busy}"
        )


@dataclass(frozen=True, slots=True)
class Badge:
    """Whether a deployment was validated, why not, and the nearest validated cell."""

    status: Status
    reasons: tuple[str, ...]
    nearest: ValidatedCell | None

    @property
    def sentence(self) -> str:
        """The badge as one line."""
        reasons = f" ({'; '.join(self.reasons)})" if self.reasons else ""
        nearest = "" if self.nearest is None else f"; nearest cell: {self.nearest.describe()}"
        name = {"inside": "inside what was validated live", "outside": "outside what was validated live"}
        return f"{name.get(self.status, self.status + ' live')}{reasons}{nearest}"

    def document(self) -> dict[str, object]:
        """Return the badge as JSON."""
        nearest = None if self.nearest is None else asdict(self.nearest)
        return {"status": self.status, "reasons": list(self.reasons), "nearest": nearest, "sentence": self.sentence}


def badge(deployment: Deployment, cells: Sequence[ValidatedCell]) -> Badge:
    """Return the badge of a deployment among validated cells."""
    if None in deployment.engines:
        return Badge("never validated", ("a device has no measured engine",), None)
    alike = [cell for cell in cells if cell.deployment.engines == deployment.engines]
    if not alike:
        validated = "; or ".join(dict.fromkeys(_engines(cell.deployment) for cell in cells))
        what = f"no validation of {_engines(deployment)}; validated: {validated}"
        return Badge("never validated", (what,) if cells else (), None)
    nearest = min(alike, key=lambda cell: distance(deployment, cell.deployment))
    by_validation: dict[str, list[ValidatedCell]] = {}
    for cell in alike:
        by_validation.setdefault(cell.validation, []).append(cell)
    reasons = min((tuple(_reasons(deployment, of_one)) for of_one in by_validation.values()), key=len)
    return Badge("outside" if reasons else "inside", reasons, nearest)


def _engines(deployment: Deployment) -> str:
    """Describe the engines of a deployment, the gateway first; the same engine on several devices is named for each."""
    gateway, *others = [engine.describe() for engine in deployment.engines if engine is not None]
    return f"a gateway with {gateway}, and {format_list(others)} behind it" if others else f"{gateway} alone"


def _reasons(deployment: Deployment, cells: Sequence[ValidatedCell]) -> Iterator[str]:
    """Yield why a deployment is outside the cells of one validation."""
    known = [cell.deployment for cell in cells]
    if deployment.boxes not in {cell.boxes for cell in known}:
        yield f"{format_list(str(count) for count in deployment.boxes)} boxes of the devices, validated with one each"
    same = [cell for cell in known if cell.batching == deployment.batching]
    if not same:
        yield f"batching {', '.join(deployment.batching)} was not validated"
    kinds = {cell.policy for cell in same or known}
    if deployment.policy not in kinds:
        yield f"policy {deployment.policy} was not validated"
    if deployment.load is None:
        yield "the answers set the pace of requests, and validations send at a rate"
    else:
        yield from _beyond("load", deployment.load, [cell.load for cell in same or known if cell.load is not None], 1.0, "")
    yield from _beyond("mean RTT", deployment.mean_rtt_s, [cell.mean_rtt_s for cell in same or known], 1e3, " ms")


def _beyond(name: str, value: float, validated: Sequence[float], scale: float, unit: str) -> Iterator[str]:
    low, high = min(validated), max(validated)
    if not low * (1.0 - MARGIN) <= value <= high * (1.0 + MARGIN):
        span = f"{scale * low:.3g}" if low == high else f"{scale * low:.3g} to {scale * high:.3g}"
        yield f"{name} {scale * value:.3g}{unit}, validated {span}{unit}"


def distance(deployment: Deployment, cell: Deployment) -> float:
    """Return the distance of a deployment from a validated one with the same engines."""
    rtt_s, cell_rtt_s = (max(one.mean_rtt_s, LEAST_RTT_S) for one in (deployment, cell))
    apart = abs(log(rtt_s / cell_rtt_s)) + (deployment.policy != cell.policy) + (deployment.batching != cell.batching)
    if deployment.load is None or cell.load is None:
        return apart
    return apart + abs(log(max(deployment.load, 1e-3) / max(cell.load, 1e-3)))


def validated_cells(folder: Path | None = None) -> Sequence[ValidatedCell]:
    """Return the cells of all recorded validations that are not void. `folder`: None for those shipped with simnmt.

    Raises `InputError` for a file that is not a validation.
    """
    return _read_all(shipped_files.folder("validation") if folder is None else folder)


@cache
def _read_all(folder: Path) -> Sequence[ValidatedCell]:
    return tuple(cell for path in sorted(folder.glob(f"*/{VALIDATION}")) for cell in _read(path))


def _read(path: Path) -> Iterable[ValidatedCell]:
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        return [
            ValidatedCell(
                path.parent.name,
                cell["policy"],
                cell["link"],
                Deployment.of(cell["deployment"]),
                cell["raw_error_mean"],
                cell["spread_mean"],
                bool(document["environment"]["busy"]),
            )
            for cell in document["cells"]
            if not cell["void"]
        ]
    except (ValueError, KeyError, TypeError) as error:
        raise InputError(f"not a recorded validation ({error})", path=path, remedy="record it anew, or remove it") from None
