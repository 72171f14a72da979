"""The reproduction for a terminal."""

from __future__ import annotations

from simnmt.reproduce.told import claim_lines, columns
from simnmt.reproduce.topup import published
from simnmt.reproduce.topup.online import Holding
from simnmt.reproduce.topup.published import SETS
from simnmt.reproduce.topup.reproduction import Reproduction
from simnmt.reproduce.topup.strategies import OFFLINE, ONLINE


def as_text(found: Reproduction) -> str:
    """Occupancies, speeds, loads, and a line per claim."""
    pieces = [
        _occupancies(found),
        *(_speeds(found, key) for key in SETS if found.speeds),
        _smaller_batches(found) if found.speeds else "",
        *(_loads(found, key) for key in SETS if found.held),
        claim_lines(found.claims),
    ]
    return "\n\n".join(filter(None, pieces))


def _occupancies(found: Reproduction) -> str:
    rows = []
    for each in published.OCCUPANCIES:
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
    return "Active sentences in decode steps, batches of 128\n" + columns(
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
    return f"{heading}\n" + columns(("device", "mini/s", *(s.key for s in OFFLINE[1:])), rows)


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
    return f"{heading}{marks}\n" + columns(("device, p95", *(each.key for each in ONLINE)), rows)


def _load(held: Holding) -> str:
    found = held.estimate
    if not found.mean:
        return "never"
    spread = "" if found.low is None or found.high is None else f" ±{found.high - found.mean:.2f}"
    marks = ("c" if held.saturated else "") + ("d" if held.dips else "")
    return f"{found.mean:.2f}{spread}{' ' + marks if marks else ''}"
