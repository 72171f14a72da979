"""The reproduction's tables, as JSON keeps them and the page shows them."""

from __future__ import annotations

from typing import Any

from simnmt.reproduce.topup import online, published
from simnmt.reproduce.topup.devices import doubtful_profiles
from simnmt.reproduce.topup.occupancies import SEEDS
from simnmt.reproduce.topup.published import TABLE_ONE
from simnmt.reproduce.topup.reproduction import Reproduction
from simnmt.reproduce.topup.speeds import gain
from simnmt.reproduce.topup.strategies import BY_KEY
from simnmt.reproduce.topup.undecided import LEAST_BATCHES

MEASURES = ("full_share", "below_8_share", "mean_active", "steps")


def document(found: Reproduction) -> dict[str, Any]:
    """What `--json` prints."""
    return {
        "paper": published.REFERENCE,
        "claims": found.claims,
        "tables": tables(found),
        "devices": devices(found),
        "doubts": doubtful_profiles(found.decoders),
        "slips": list(published.SLIPS),
        "notes": notes(found),
    }


def tables(found: Reproduction) -> list[dict[str, Any]]:
    """Each with `id`, `title` and `rows`."""
    return [
        {
            "id": "setting",
            "title": "The paper's setting (FNI-13)",
            "rows": [{"what": a, "said": b} for a, b in published.SETTING],
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
    said = {(each.test_set, each.strategy, each.measure): each for each in published.OCCUPANCIES}
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
