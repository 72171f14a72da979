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
    """Most sentences timed per set; None: the paper's."""


def reproduce(
    *,
    profiles: Sequence[DeviceProfile] | None = None,
    p95_s: float | None = None,
    requests: int | None = None,
    jobs: int = 1,
    progress: Progress | None = None,
) -> Reproduction:
    """Simulate the paper's batches and time them on `profiles`, by default all shipped ones.

    `p95_s`: the p95 latency that online runs must hold, by default chosen per device; `requests`: most sentences timed per
    set and per online run. Occupancies always cover the paper's whole sets. Fewer than `LEAST_BATCHES` batches decide no
    verdict. Profiles without batched step costs are skipped. Raises `InputError` for too few requests.
    """
    if requests is not None and requests < LEAST_SENTENCES:
        what = f"{requests} requests: too few to tell of batches"
        raise InputError(what, remedy=f"give {LEAST_SENTENCES} or more; verdicts need {LEAST_BATCHES} batches")
    known = decoders(shipped_profiles() if profiles is None else profiles)
    tasks: list[_Task] = [_Occupy(key) for key in SETS]
    tasks += [_Time(decoder, key, requests) for decoder in known for key in SETS]
    asked = None if p95_s is None else (p95_s,)
    beam = {decoder.device: min(other.beam for other in known if other.device == decoder.device) for decoder in known}
    tasks += [
        _Arrive(decoder, key, asked, requests) for decoder in known if decoder.beam == beam[decoder.device] for key in SETS
    ]
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
        moments = [(src_len.mean(), src_len.std()) for src_len in (lengths_of(self.test_set, seed)[0] for seed in SEEDS)]
        mean, sd = (float(sum(values) / len(moments)) for values in zip(*moments, strict=True))
        return [step_occupancy(self.test_set, strategy.key, SEEDS) for strategy in OFFLINE], (mean, sd)


@dataclass(frozen=True, slots=True)
class _Time:
    decoder: Decoder
    test_set: str
    sentences: int | None

    def run(self) -> tuple[list[Speed], list[RefillLimit]]:
        speed_by_strategy = {
            strategy.key: speed(self.decoder, self.test_set, strategy.key, SPEED_SEEDS, self.sentences) for strategy in OFFLINE
        }
        return list(speed_by_strategy.values()), refill_limits(speed_by_strategy, self.decoder)


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
    answers = list(zip(tasks, results, strict=True))
    occupancies = {
        (occupancy.test_set, occupancy.strategy): occupancy
        for task, result in answers
        if isinstance(task, _Occupy)
        for occupancy in result[0]
    }
    moments = {task.test_set: result[1] for task, result in answers if isinstance(task, _Occupy)}
    timed = [result for task, result in answers if isinstance(task, _Time)]
    speeds = {
        (set_speed.device, set_speed.beam, set_speed.test_set, set_speed.strategy): set_speed
        for set_speeds, _ in timed
        for set_speed in set_speeds
    }
    limits = [refill_limit for _, task_limits in timed for refill_limit in task_limits]
    arrived = [result for task, result in answers if isinstance(task, _Arrive)]
    held = [load_limit for _, task_limits in arrived for load_limit in task_limits]
    return Reproduction(
        occupancies,
        moments,
        known,
        speeds,
        limits,
        [curve for task_curves, _ in arrived for curve in task_curves],
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


def document(reproduction: Reproduction) -> dict[str, Any]:
    """Return the JSON document that `--json` prints."""
    return {
        "paper": topup_published.REFERENCE,
        "claims": reproduction.claims,
        "tables": tables(reproduction),
        "devices": devices(reproduction),
        "doubts": doubtful_profiles(reproduction.decoders),
        "slips": list(topup_published.SLIPS),
        "notes": notes(reproduction),
    }


def tables(reproduction: Reproduction) -> list[dict[str, Any]]:
    """Return the tables, each with `id`, `title` and `rows`."""
    return [
        {
            "id": "setting",
            "title": "The paper's setting (FNI-13)",
            "rows": [{"what": a, "said": b} for a, b in topup_published.SETTING],
        },
        {"id": "table-1", "title": "Table 1: test sets", "rows": table_one(reproduction)},
        {"id": "occupancies", "title": "Active sentences in decode steps, batches of 128", "rows": occupancies(reproduction)},
        {"id": "active", "title": "Share of decode steps by active sentences (figures 2, 8)", "rows": active(reproduction)},
        {"id": "speeds", "title": "Speed with all sentences at hand (figures 6, 7)", "rows": speeds(reproduction)},
        {"id": "refill-limits", "title": "Cost of a refill from which topping up is slower", "rows": limits(reproduction)},
        {"id": "p95-load", "title": "Load up to which a p95 of latency holds", "rows": loads(reproduction)},
        {"id": "p95-curves", "title": "p95 of latency over the load", "rows": curves(reproduction)},
    ]


def devices(reproduction: Reproduction) -> list[dict[str, Any]]:
    """Return one row per decoder: its device, beam, profile, batch and remarks."""
    keys = ("device", "box", "model", "beam", "profile", "batch", "guessed")
    return [
        {key: getattr(decoder, key) for key in keys} | {"kind": decoder.shown_kind, "remarks": list(decoder.remarks)}
        for decoder in reproduction.decoders
    ]


def notes(reproduction: Reproduction) -> list[str]:
    """Return what limits the numbers, one sentence or two per note."""
    limitations = [
        "Lengths are drawn: log-normal with the moments of Table 1, outputs close to their sources. The paper's sentences are "
        "not at hand.",
        f"Occupancies are means over {len(SEEDS)} seeds. Speeds are of the same sentences under every strategy; brackets hold "
        "the least and the greatest over two seeds.",
        "Times are simulated on each device's step costs: where they are measured, with random weights and forced lengths. "
        "One device encodes and decodes in turns; the paper's engine encodes beside decoding.",
        "A verdict on speeds needs the same sign in both seeds, and where it rests on what refills cost, that they and the "
        f"gaps between steps were measured. Of fewer sentences than {LEAST_BATCHES} batches have, nothing is judged.",
        f"Online runs are of {online.BATCHES} batches' sentences{_at_most(reproduction)} that arrive as a Poisson process, the "
        f"same under every strategy, over {len(online.SEEDS)} seeds; the first {100 * online.WARM_UP:.0f} % of a run, which "
        "find the server empty, do not count. A load is known to 2.6 % and its interval is the 95 % one over seeds. No load "
        "beyond what a strategy can do with all sentences at hand is looked at: those that wait would grow without end.",
    ]
    if not reproduction.decoders:
        limitations.append("No device profile at hand tells of decode steps and of the encoder: nothing can be said of speeds.")
    return limitations


def _at_most(reproduction: Reproduction) -> str:
    return "" if reproduction.sentences is None else f", at most {reproduction.sentences:,},"


def table_one(reproduction: Reproduction) -> list[dict[str, Any]]:
    """Return published and drawn moments of the source lengths, one row per set."""
    return [
        {
            "set": paper_set.name,
            "sentences": paper_set.sentences,
            "subwords": paper_set.subwords,
            "published_mean": paper_set.mean,
            "published_sd": paper_set.sd,
            "mean": reproduction.moments[paper_set.key][0],
            "sd": reproduction.moments[paper_set.key][1],
        }
        for paper_set in TABLE_ONE
    ]


def occupancies(reproduction: Reproduction) -> list[dict[str, Any]]:
    """Return one row per set, strategy and measure."""
    paper_statistics = {
        (statistic.test_set, statistic.strategy, statistic.measure): statistic for statistic in topup_published.OCCUPANCIES
    }
    rows = []
    for (test_set, strategy), occupancy in reproduction.occupancies.items():
        for measure in MEASURES:
            theirs = paper_statistics.get((test_set, strategy, measure))
            mean, least, greatest = occupancy.of(measure)
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


def active(reproduction: Reproduction) -> list[dict[str, Any]]:
    """Return the histogram of active sentences for each set and strategy."""
    return [
        {
            "set": test_set,
            "strategy": strategy,
            "name": BY_KEY[strategy].name,
            "share_by_active": list(occupancy.share_by_active),
        }
        for (test_set, strategy), occupancy in reproduction.occupancies.items()
    ]


def speeds(reproduction: Reproduction) -> list[dict[str, Any]]:
    """Return one row per device, beam, set and strategy; `relative` compares with mini-batching on the same device."""
    decoders = {(decoder.device, decoder.beam): decoder for decoder in reproduction.decoders}
    rows = []
    for (device, beam, test_set, strategy), set_speed in reproduction.speeds.items():
        decoder = decoders[device, beam]
        gain_over_mini = gain(set_speed, reproduction.speeds[device, beam, test_set, "mini"])
        busy_s = set_speed.encode_s + set_speed.refill_s + set_speed.decode_s
        rows.append(
            {
                "device": device,
                "beam": beam,
                "batch": decoder.batch,
                "extrapolated": decoder.extrapolates(test_set),
                "set": test_set,
                "strategy": strategy,
                "name": BY_KEY[strategy].name,
                "sentences_per_s": set_speed.sentences_per_s,
                "relative": 1.0 + gain_over_mini.mean,
                "relative_least": 1.0 + gain_over_mini.least,
                "relative_greatest": 1.0 + gain_over_mini.greatest,
                "mean_active": set_speed.mean_active,
                "encode_share": set_speed.encode_s / busy_s,
                "refill_share": set_speed.refill_s / busy_s,
                "decode_share": set_speed.decode_s / busy_s,
            }
        )
    return rows


def limits(reproduction: Reproduction) -> list[dict[str, Any]]:
    """Return how much more a refill may cost, in milliseconds and in steps of a full batch."""
    return [
        {
            "device": refill_limit.device,
            "beam": refill_limit.beam,
            "set": refill_limit.test_set,
            "strategy": refill_limit.strategy,
            "against": refill_limit.against,
            "limit_ms": None if refill_limit.limit_s is None else 1e3 * refill_limit.limit_s,
            "limit_steps": refill_limit.limit_steps,
            "full_step_ms": 1e3 * refill_limit.full_step_s,
        }
        for refill_limit in reproduction.limits
    ]


def loads(reproduction: Reproduction) -> list[dict[str, Any]]:
    """Return one row per device, set, p95 and strategy."""
    rows = []
    for load_limit in reproduction.held:
        estimate = load_limit.estimate
        rows.append(
            {
                "device": load_limit.device,
                "beam": load_limit.beam,
                "set": load_limit.test_set,
                "strategy": load_limit.strategy,
                "name": load_limit.name,
                "p95_ms": 1e3 * load_limit.p95_s,
                "over_solo": load_limit.over_solo,
                "up_to_rps": estimate.mean,
                "low_rps": estimate.low,
                "high_rps": estimate.high,
                "saturated": load_limit.saturated,
                "dips": load_limit.dips,
            }
        )
    return rows


def curves(reproduction: Reproduction) -> list[dict[str, Any]]:
    """Return the p95 at each simulated load, one row per device, set and strategy."""
    return [
        {
            "device": curve.device,
            "beam": curve.beam,
            "set": curve.test_set,
            "strategy": curve.strategy,
            "capacity_rps": curve.capacity,
            "rate_rps": list(curve.rate),
            "p95_ms": [1e3 * value for value in curve.p95_s],
        }
        for curve in reproduction.curves
    ]


def as_text(reproduction: Reproduction) -> str:
    """Return occupancies, speeds, loads and one line per claim as text."""
    pieces = [
        _occupancies(reproduction),
        *(_speeds(reproduction, key) for key in SETS if reproduction.speeds),
        _smaller_batches(reproduction) if reproduction.speeds else "",
        *(_loads(reproduction, key) for key in SETS if reproduction.held),
        format_claims(reproduction.claims),
    ]
    return "\n\n".join(filter(None, pieces))


def _occupancies(reproduction: Reproduction) -> str:
    rows = []
    for statistic in topup_published.OCCUPANCIES:
        mean = reproduction.occupancies[statistic.test_set, statistic.strategy].of(statistic.measure)[0]
        rows.append(
            (
                f"{SETS[statistic.test_set].name} {statistic.strategy}",
                statistic.measure.replace("_share", "").replace("_", " "),
                "-" if statistic.published is None else _figure(statistic.measure, statistic.published),
                _figure(statistic.measure, statistic.stated),
                _figure(statistic.measure, mean),
            )
        )
    return "Active sentences in decode steps, batches of 128\n" + format_table(
        ("set, batching", "measure", "published", "stated", "ours"), rows
    )


def _figure(measure: str, value: float) -> str:
    if measure.endswith("_share"):
        return f"{100 * value:.1f} %"
    return f"{value:,.0f}" if measure == "steps" else f"{value:.1f}"


def _speeds(reproduction: Reproduction, test_set: str) -> str:
    rows = []
    for decoder in reproduction.decoders:
        rates = {s.key: reproduction.speeds[decoder.device, decoder.beam, test_set, s.key].sentences_per_s for s in OFFLINE}
        mark = "*" if decoder.extrapolates(test_set) else ""
        name = f"{decoder.device}, beam {decoder.beam}{mark}, batches of {decoder.batch}"
        rows.append((name, f"{rates['mini']:,.1f}", *(f"{rates[s.key] / rates['mini']:.3f}" for s in OFFLINE[1:])))
    heading = f"{SETS[test_set].name}: sentences a second with mini-batching, and the others' speed over it (* extrapolated)"
    return f"{heading}\n" + format_table(("device", "mini/s", *(s.key for s in OFFLINE[1:])), rows)


def _smaller_batches(reproduction: Reproduction) -> str:
    """Return why batches are smaller than the paper's, one line per reason and its decoders."""
    names_by_reason: dict[str, list[str]] = {}
    for decoder in reproduction.decoders:
        if decoder.why_batch:
            names_by_reason.setdefault(decoder.why_batch, []).append(f"{decoder.device}, beam {decoder.beam}")
    return "\n".join(f"{why[:1].upper()}{why[1:]}:\n  {'; '.join(names)}." for why, names in names_by_reason.items())


def _loads(reproduction: Reproduction, test_set: str) -> str:
    held = {
        (load_limit.device, load_limit.beam, load_limit.p95_s, load_limit.strategy): load_limit
        for load_limit in reproduction.held
        if load_limit.test_set == test_set
    }
    rows = []
    for device, beam, p95_s in dict.fromkeys(key[:3] for key in held):
        shown = [_load(held[device, beam, p95_s, strategy.key]) for strategy in ONLINE]
        rows.append((f"{device}, beam {beam}, {1e3 * p95_s:,.0f} ms", *shown))
    heading = f"{SETS[test_set].name}: sentences a second up to which the p95 holds"
    marks = " (c: it holds up to the capacity; d: not below some lower load)"
    return f"{heading}{marks}\n" + format_table(("device, p95", *(strategy.key for strategy in ONLINE)), rows)


def _load(held: LoadLimit) -> str:
    estimate = held.estimate
    if not estimate.mean:
        return "never"
    spread = "" if estimate.low is None or estimate.high is None else f" ±{estimate.high - estimate.mean:.2f}"
    marks = ("c" if held.saturated else "") + ("d" if held.dips else "")
    return f"{estimate.mean:.2f}{spread}{' ' + marks if marks else ''}"
