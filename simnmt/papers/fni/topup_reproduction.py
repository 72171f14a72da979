"""The whole reproduction of top-up batching: occupancies, speeds, loads within a p95, verdicts, tables and text."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from simnmt.base.errors import InputError
from simnmt.base.text_tables import format_table
from simnmt.experiment.processes import run_in_processes
from simnmt.papers.fni import online, topup_claims, topup_published
from simnmt.papers.fni.devices import LEAST_BATCHES, Decoder, decoders, doubtful_profiles, shipped_profiles
from simnmt.papers.fni.offline import (
    BY_KEY,
    OFFLINE,
    ONLINE,
    SEEDS,
    RefillLimit,
    Speed,
    StepOccupancy,
    gain,
    lengths_of,
    refill_limits,
    speed,
    step_occupancy,
)
from simnmt.papers.fni.online import Curve, LoadLimit, load_limits
from simnmt.papers.fni.topup_claims import online_claims, speed_claims
from simnmt.papers.fni.topup_published import SETS, TABLE_ONE
from simnmt.papers.kit.claim import format_claims
from simnmt.profile.device_profile import DeviceProfile

LEAST_SENTENCES = 100
SPEED_SEEDS = SEEDS[:2]
"""Speeds hardly differ between seeds: 30,000 sentences average more than a seed moves."""

Progress = Callable[[int, int], None]
"""Called with what is done and what there is in all."""


@dataclass(frozen=True, slots=True)
class Reproduction:
    """The paper's statements on batching, and ours."""

    occupancies: dict[tuple[str, str], StepOccupancy]
    """By set and strategy."""
    moments: dict[str, tuple[float, float]]
    """By set: mean and standard deviation of the source lengths, over seeds."""
    decoders: list[Decoder]
    speeds: dict[tuple[str, int, str, str], Speed]
    """By device, beam, set and strategy."""
    limits: list[RefillLimit]
    curves: list[Curve]
    held: list[LoadLimit]
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

    def run(self) -> tuple[list[StepOccupancy], tuple[float, float]]:
        drawn = [lengths_of(self.test_set, seed)[0] for seed in SEEDS]
        moments = tuple(sum(values) / len(drawn) for values in zip(*((each.mean(), each.std()) for each in drawn), strict=True))
        mean, sd = (float(each) for each in moments)
        return [step_occupancy(self.test_set, each.key, SEEDS) for each in OFFLINE], (mean, sd)


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

    def run(self) -> tuple[list[Curve], list[LoadLimit]]:
        sentences = online.run_sentences(self.decoder.batch, self.sentences)
        return load_limits(self.decoder, self.test_set, self.asked_s, online.SEEDS, sentences)


_Task = _Occupy | _Time | _Arrive


def _run(task: _Task) -> Any:
    return task.run()


def _worked(tasks: Sequence[_Task], jobs: int) -> Any:
    return run_in_processes(_run, tasks, min(jobs, len(tasks))) if jobs > 1 else enumerate(map(_run, tasks))


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
            topup_claims.moment_claim(moments),
            *topup_claims.occupancy_claims(occupancies),
            *speed_claims(known, speeds, limits, requests),
            *online_claims(known, held, requests),
        ],
        requests,
    )


MEASURES = ("full_share", "below_8_share", "mean_active", "steps")


def document(found: Reproduction) -> dict[str, Any]:
    """What `--json` prints."""
    return {
        "paper": topup_published.REFERENCE,
        "claims": found.claims,
        "tables": tables(found),
        "devices": devices(found),
        "doubts": doubtful_profiles(found.decoders),
        "slips": list(topup_published.SLIPS),
        "notes": notes(found),
    }


def tables(found: Reproduction) -> list[dict[str, Any]]:
    """Each with `id`, `title` and `rows`."""
    return [
        {
            "id": "setting",
            "title": "The paper's setting (FNI-13)",
            "rows": [{"what": a, "said": b} for a, b in topup_published.SETTING],
        },
        {"id": "table-1", "title": "Table 1: test sets", "rows": table_one(found)},
        {"id": "occupancies", "title": "Active sentences in decode steps, batches of 128", "rows": occupancies(found)},
        {"id": "active", "title": "Share of decode steps by active sentences (figures 2, 8)", "rows": active(found)},
        {"id": "speeds", "title": "Speed with all sentences at hand (figures 6, 7)", "rows": speeds(found)},
        {"id": "refill-limits", "title": "Cost of a refill from which topping up is slower", "rows": limits(found)},
        {"id": "p95-load", "title": "Load up to which a p95 of latency holds", "rows": loads(found)},
        {"id": "p95-curves", "title": "p95 of latency over the load", "rows": curves(found)},
    ]


def devices(found: Reproduction) -> list[dict[str, Any]]:
    """Which device with which beam, whose profile, and what is to be said of it."""
    keys = ("device", "box", "model", "beam", "profile", "batch", "guessed")
    return [
        {key: getattr(decoder, key) for key in keys} | {"kind": decoder.shown_kind, "remarks": list(decoder.remarks)}
        for decoder in found.decoders
    ]


def notes(found: Reproduction) -> list[str]:
    """What limits the numbers."""
    said = [
        "Lengths are drawn: log-normal with the moments of Table 1, outputs close to their sources. The paper's sentences are "
        "not at hand.",
        f"Occupancies are means over {len(SEEDS)} seeds. Speeds are of the same sentences under every strategy; brackets hold "
        "the least and the greatest over two seeds.",
        "Times are simulated on each device's step costs: where they are measured, with random weights and forced lengths. "
        "One device encodes and decodes in turns; the paper's engine encodes beside decoding.",
        "A verdict on speeds needs the same sign in both seeds, and where it rests on what refills cost, that they and the "
        f"gaps between steps were measured. Of fewer sentences than {LEAST_BATCHES} batches have, nothing is judged.",
        f"Online runs are of {online.BATCHES} batches' sentences{_at_most(found)} that arrive as a Poisson process, the same "
        f"under every strategy, over {len(online.SEEDS)} seeds; the first {100 * online.WARM_UP:.0f} % of a run, which find "
        "the server empty, do not count. A load is known to 2.6 % and its interval is the 95 % one over seeds. No load beyond "
        "what a strategy can do with all sentences at hand is looked at: those that wait would grow without end.",
    ]
    if not found.decoders:
        said.append("No device profile at hand tells of decode steps and of the encoder: nothing can be said of speeds.")
    return said


def _at_most(found: Reproduction) -> str:
    return "" if found.sentences is None else f", at most {found.sentences:,},"


def table_one(found: Reproduction) -> list[dict[str, Any]]:
    """Published and drawn moments of the source lengths."""
    return [
        {
            "set": each.name,
            "sentences": each.sentences,
            "subwords": each.subwords,
            "published_mean": each.mean,
            "published_sd": each.sd,
            "mean": found.moments[each.key][0],
            "sd": found.moments[each.key][1],
        }
        for each in TABLE_ONE
    ]


def occupancies(found: Reproduction) -> list[dict[str, Any]]:
    """One row per set, strategy and measure."""
    said = {(each.test_set, each.strategy, each.measure): each for each in topup_published.OCCUPANCIES}
    rows = []
    for (test_set, strategy), each in found.occupancies.items():
        for measure in MEASURES:
            theirs = said.get((test_set, strategy, measure))
            mean, least, greatest = each.of(measure)
            rows.append(
                {
                    "set": test_set,
                    "strategy": strategy,
                    "measure": measure,
                    "published": theirs and theirs.published,
                    "stated": theirs and theirs.stated,
                    "ours": mean,
                    "least": least,
                    "greatest": greatest,
                }
            )
    return rows


def active(found: Reproduction) -> list[dict[str, Any]]:
    """The histogram of each set and strategy."""
    return [
        {"set": test_set, "strategy": strategy, "name": BY_KEY[strategy].name, "share_by_active": list(each.share_by_active)}
        for (test_set, strategy), each in found.occupancies.items()
    ]


def speeds(found: Reproduction) -> list[dict[str, Any]]:
    """One row per device, beam, set and strategy; `relative`: to mini-batching on the same."""
    decoders = {(each.device, each.beam): each for each in found.decoders}
    rows = []
    for (device, beam, test_set, strategy), each in found.speeds.items():
        decoder = decoders[device, beam]
        own = gain(each, found.speeds[device, beam, test_set, "mini"])
        busy_s = each.encode_s + each.refill_s + each.decode_s
        rows.append(
            {
                "device": device,
                "beam": beam,
                "batch": decoder.batch,
                "extrapolated": decoder.extrapolates(test_set),
                "set": test_set,
                "strategy": strategy,
                "name": BY_KEY[strategy].name,
                "sentences_per_s": each.sentences_per_s,
                "relative": 1.0 + own.mean,
                "relative_least": 1.0 + own.least,
                "relative_greatest": 1.0 + own.greatest,
                "mean_active": each.mean_active,
                "encode_share": each.encode_s / busy_s,
                "refill_share": each.refill_s / busy_s,
                "decode_share": each.decode_s / busy_s,
            }
        )
    return rows


def limits(found: Reproduction) -> list[dict[str, Any]]:
    """What a refill may cost more, in milliseconds and in steps of a full batch."""
    return [
        {
            "device": each.device,
            "beam": each.beam,
            "set": each.test_set,
            "strategy": each.strategy,
            "against": each.against,
            "limit_ms": None if each.limit_s is None else 1e3 * each.limit_s,
            "limit_steps": each.limit_steps,
            "full_step_ms": 1e3 * each.full_step_s,
        }
        for each in found.limits
    ]


def loads(found: Reproduction) -> list[dict[str, Any]]:
    """One row per device, set, p95 and strategy."""
    rows = []
    for each in found.held:
        estimate = each.estimate
        rows.append(
            {
                "device": each.device,
                "beam": each.beam,
                "set": each.test_set,
                "strategy": each.strategy,
                "name": each.name,
                "p95_ms": 1e3 * each.p95_s,
                "over_solo": each.over_solo,
                "up_to_rps": estimate.mean,
                "low_rps": estimate.low,
                "high_rps": estimate.high,
                "saturated": each.saturated,
                "dips": each.dips,
            }
        )
    return rows


def curves(found: Reproduction) -> list[dict[str, Any]]:
    """The p95 at each load that was looked at."""
    return [
        {
            "device": each.device,
            "beam": each.beam,
            "set": each.test_set,
            "strategy": each.strategy,
            "capacity_rps": each.capacity,
            "rate_rps": list(each.rate),
            "p95_ms": [1e3 * value for value in each.p95_s],
        }
        for each in found.curves
    ]


def as_text(found: Reproduction) -> str:
    """Occupancies, speeds, loads, and a line per claim."""
    pieces = [
        _occupancies(found),
        *(_speeds(found, key) for key in SETS if found.speeds),
        _smaller_batches(found) if found.speeds else "",
        *(_loads(found, key) for key in SETS if found.held),
        format_claims(found.claims),
    ]
    return "\n\n".join(filter(None, pieces))


def _occupancies(found: Reproduction) -> str:
    rows = []
    for each in topup_published.OCCUPANCIES:
        mean = found.occupancies[each.test_set, each.strategy].of(each.measure)[0]
        rows.append(
            (
                f"{SETS[each.test_set].name} {each.strategy}",
                each.measure.replace("_share", "").replace("_", " "),
                "-" if each.published is None else _figure(each.measure, each.published),
                _figure(each.measure, each.stated),
                _figure(each.measure, mean),
            )
        )
    return "Active sentences in decode steps, batches of 128\n" + format_table(
        ("set, batching", "measure", "published", "stated", "ours"), rows
    )


def _figure(measure: str, value: float) -> str:
    if measure.endswith("_share"):
        return f"{100 * value:.1f} %"
    return f"{value:,.0f}" if measure == "steps" else f"{value:.1f}"


def _speeds(found: Reproduction, test_set: str) -> str:
    rows = []
    for each in found.decoders:
        own = {s.key: found.speeds[each.device, each.beam, test_set, s.key].sentences_per_s for s in OFFLINE}
        name = f"{each.device}, beam {each.beam}{'*' if each.extrapolates(test_set) else ''}, batches of {each.batch}"
        rows.append((name, f"{own['mini']:,.1f}", *(f"{own[s.key] / own['mini']:.3f}" for s in OFFLINE[1:])))
    heading = f"{SETS[test_set].name}: sentences a second with mini-batching, and the others' speed over it (* extrapolated)"
    return f"{heading}\n" + format_table(("device", "mini/s", *(s.key for s in OFFLINE[1:])), rows)


def _smaller_batches(found: Reproduction) -> str:
    """Why batches are smaller than the paper's, once for all decoders of which it is the same."""
    whose: dict[str, list[str]] = {}
    for each in found.decoders:
        if each.why_batch:
            whose.setdefault(each.why_batch, []).append(f"{each.device}, beam {each.beam}")
    return "\n".join(f"{why[:1].upper()}{why[1:]}:\n  {'; '.join(names)}." for why, names in whose.items())


def _loads(found: Reproduction, test_set: str) -> str:
    held = {(each.device, each.beam, each.p95_s, each.strategy): each for each in found.held if each.test_set == test_set}
    rows = []
    for device, beam, p95_s in dict.fromkeys(key[:3] for key in held):
        shown = [_load(held[device, beam, p95_s, each.key]) for each in ONLINE]
        rows.append((f"{device}, beam {beam}, {1e3 * p95_s:,.0f} ms", *shown))
    heading = f"{SETS[test_set].name}: sentences a second up to which the p95 holds"
    marks = " (c: it holds up to the capacity; d: not below some lower load)"
    return f"{heading}{marks}\n" + format_table(("device, p95", *(each.key for each in ONLINE)), rows)


def _load(held: LoadLimit) -> str:
    found = held.estimate
    if not found.mean:
        return "never"
    spread = "" if found.low is None or found.high is None else f" ±{found.high - found.mean:.2f}"
    marks = ("c" if held.saturated else "") + ("d" if held.dips else "")
    return f"{found.mean:.2f}{spread}{' ' + marks if marks else ''}"
