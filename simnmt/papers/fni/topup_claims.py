"""The paper's claims on batching: occupancies, speeds on each device, and arriving sentences (FNI-09, 12, 14, 16)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from simnmt.papers.fni import published
from simnmt.papers.fni.cases import Case, case_name, case_over_seeds, device_claim, undecided, undecided_reason
from simnmt.papers.fni.devices import Decoder
from simnmt.papers.fni.offline import Gain, Moments, RefillLimit, Speed, StepOccupancy, gain
from simnmt.papers.fni.online import LoadLimit
from simnmt.papers.fni.published import BATCH, NEAR_PUBLISHED, NEAR_STATED, OCCUPANCIES, SETS
from simnmt.papers.kit.claim import UNCLEAR, UNKNOWN, ClaimRecord, holds_if, sign_verdict
from simnmt.papers.kit.page import grouped
from simnmt.results.statistics import over_replications

Occupancies = Mapping[tuple[str, str], StepOccupancy]
"""By set and strategy."""
Key = tuple[str, int, str, str]
"""Device, beam, set and strategy."""
Speeds = Mapping[Key, Speed]
Judge = Callable[[Decoder, str], Case]
"""Judges a claim on one device and set."""

NEAR_STEPS = 0.03
"""Largest relative difference from a number of steps that is stated as `about`."""
NEAR_MOMENT = 0.02
"""FNI-14's accept."""
HARMLESS = -0.01
"""Smallest gain with which top-up with maxi-batching does no harm."""
AS_FAST = -0.03
"""Smallest gain with which top-up alone is as fast as maxi-batching."""
_MEASURES = {"full_share": f"steps with a full batch of {BATCH}", "below_8_share": "steps with fewer than 8 active"}


def moment_claim(moments: Sequence[Moments]) -> ClaimRecord:
    """Return the record of FNI-14."""
    off = {
        drawn.paper.name: max(abs(drawn.mean / drawn.paper.mean - 1.0), abs(drawn.sd / drawn.paper.sd - 1.0))
        for drawn in moments
    }
    worst = max(off, key=lambda name: off[name])
    return ClaimRecord(
        "FNI-14",
        "The sentences have the mean length and the spread of Table 1, to 2 %",
        "; ".join(f"{drawn.paper.name} {drawn.paper.mean} and {drawn.paper.sd}" for drawn in moments),
        "; ".join(f"{drawn.paper.name} {drawn.mean:.2f} and {drawn.sd:.2f}" for drawn in moments),
        holds_if(off[worst] <= NEAR_MOMENT),
        f"at most {100 * off[worst]:.1f} % off, on {worst}; drawn log-normal, the paper's sentences are not at hand",
    )


def occupancy_claims(occupancies: Occupancies) -> list[ClaimRecord]:
    """Return the records of FNI-12, which need no device, only synthetic lengths."""
    printed = [(statistic, statistic.published) for statistic in OCCUPANCIES if statistic.published is not None]
    return [
        *(_printed(letter, *figures, occupancies) for letter, figures in zip("abc", printed, strict=True)),
        _figure_two(occupancies, printed[0][1]),
        _hardly_few(occupancies),
        _as_many_steps(occupancies),
    ]


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"


def _printed(letter: str, statistic: published.Occupancy, theirs: float, occupancies: Occupancies) -> ClaimRecord:
    mean, least, greatest = occupancies[statistic.test_set, statistic.strategy].spread(statistic.measure)
    from_stated, from_published = abs(mean - statistic.stated), abs(mean - theirs)
    return ClaimRecord(
        f"FNI-12 ({letter})",
        f"{SETS[statistic.test_set].name}, {statistic.strategy}-batching: {_MEASURES[statistic.measure]}, within 4 points "
        f"({statistic.where})",
        f"{100 * theirs:.0f} %",
        f"{_percent(mean)} ({_percent(least)} to {_percent(greatest)} over seeds)",
        holds_if(from_published <= NEAR_PUBLISHED and from_stated <= NEAR_STATED),
        f"{100 * from_published:.1f} points from the paper, {100 * from_stated:.1f} from the {_percent(statistic.stated)} that "
        "simulation of such lengths is known to give, of which 2 are allowed",
    )


def _stated(measure: str) -> dict[tuple[str, str], float]:
    return {(item.test_set, item.strategy): item.stated for item in OCCUPANCIES if item.measure == measure}


def _figure_two(occupancies: Occupancies, theirs: float) -> ClaimRecord:
    full = {strategy: occupancies["europarl", strategy].full_share.mean for strategy in ("mini", "maxi")}
    stated = _stated("full_share")["europarl", "mini"]
    off = abs(full["mini"] - stated)
    nearest = min(full, key=lambda strategy: abs(full[strategy] - theirs))
    return ClaimRecord(
        "FNI-12 (d)",
        f"Figure 2, unlabelled, shows maxi-batching: mini-batching fills {_percent(stated)} of the steps (to 2 points)",
        "full in 42 % of the steps, batching not named",
        f"full with maxi-batching {_percent(full['maxi'])}, with mini-batching {_percent(full['mini'])}",
        holds_if(nearest == "maxi" and abs(full["mini"] - theirs) > NEAR_PUBLISHED and off <= NEAR_STATED),
        f"{nearest}-batching comes nearest; mini-batching is {100 * off:.1f} points from the stated figure",
    )


def _hardly_few(occupancies: Occupancies) -> ClaimRecord:
    topped_up = {key: (occupancies[key], stated) for key, stated in _stated("mean_active").items()}
    return ClaimRecord(
        "FNI-12 (e)",
        "Topped up when half empty, fewer than 8 are active in less than 1 % of the steps, and 98 and 100 on average",
        "",
        "; ".join(
            f"{SETS[test_set].name} {_percent(occupancy.below_8_share.mean)}, mean {occupancy.mean_active.mean:.1f}"
            for (test_set, _), (occupancy, _) in topped_up.items()
        ),
        holds_if(
            all(
                occupancy.below_8_share.mean < 0.01 and abs(occupancy.mean_active.mean - stated) <= 100 * NEAR_STATED
                for occupancy, stated in topped_up.values()
            )
        ),
        "the steps that remain with few are the last ones, when nothing is left to refill with",
    )


def _as_many_steps(occupancies: Occupancies) -> ClaimRecord:
    steps = {key: occupancies[key].steps.mean for key in _stated("steps")}
    off = {key: steps[key] / stated - 1.0 for key, stated in _stated("steps").items()}
    worst = max(off, key=lambda key: abs(off[key]))
    return ClaimRecord(
        "FNI-12 (f)",
        "Decode steps for a whole set, within 3 % of the known result of simulation",
        "",
        "; ".join(f"{SETS[test_set].name} {strategy} {count:,.0f}" for (test_set, strategy), count in steps.items()),
        holds_if(abs(off[worst]) <= NEAR_STEPS),
        f"furthest off: {SETS[worst[0]].name}, {worst[1]}, {100 * off[worst]:+.1f} %",
    )


def speed_claims(
    decoders: Sequence[Decoder], speeds: Speeds, limits: Iterable[RefillLimit], sentences: int | None = None
) -> list[ClaimRecord]:
    """Return one record per claim and device. Cases not measured, or too short, are listed and decide nothing.

    Args:
        decoders: the devices with their beams.
        speeds: by device, beam, set and strategy.
        limits: the costs of a refill from which topping up is slower.
        sentences: most sentences timed per set; None: all.
    """
    by_key = {(limit.device, limit.beam, limit.test_set, limit.strategy): limit for limit in limits}
    return [
        record
        for device_decoders in grouped(decoders, "device").values()
        for record in _SpeedClaims(device_decoders, speeds, by_key, sentences).records()
    ]


class _SpeedClaims:
    """The claims on the speed of one device."""

    def __init__(
        self,
        decoders: Sequence[Decoder],
        speeds: Speeds,
        limits: Mapping[Key, RefillLimit],
        sentences: int | None,
    ) -> None:
        self._decoders, self._speeds, self._limits, self._sentences = decoders, speeds, limits, sentences

    def records(self) -> list[ClaimRecord]:
        return [
            self._claim(
                "FNI-16 (a)",
                "Topped up when half empty, decoding is faster than with mini-batching",
                published.ALONE,
                self._gains("half-empty", "mini", lambda gained: gained > 0.0),
                refills=False,
            ),
            self._claim(
                "FNI-16 (b)",
                "Its advantage shrinks where sentences are sorted first (maxi-batching)",
                "limited gains together",
                self._advantages,
                refills=False,
            ),
            self._claim(
                "FNI-16 (c)",
                "On Europarl, topping up with maxi-batching is slower than maxi-batching",
                published.WITH_MAXI["europarl"],
                self._gains("maxi half-empty", "maxi", lambda gained: gained < 0.0),
                ("europarl",),
            ),
            self._claim(
                "FNI-16 (d)",
                "From some cost of a refill on it is slower with maxi-batching, while alone it still pays",
                "slower by the overhead of the algorithm",
                self._refill_limits,
            ),
            self._claim(
                "FNI-16 (e)",
                "On OpenSubtitles, topping up with maxi-batching does no harm (1 % allowed)",
                published.WITH_MAXI["opensubtitles"],
                self._gains("maxi half-empty", "maxi", lambda gained: gained > HARMLESS),
                ("opensubtitles",),
            ),
            self._claim(
                "FNI-16 (f)",
                "On Europarl, topping up alone is at least as fast as maxi-batching (3 % allowed)",
                published.AS_MAXI,
                self._gains("half-empty", "maxi", lambda gained: gained > AS_FAST),
                ("europarl",),
            ),
            self._small_beams(),
            self._claim(
                "FNI-10",
                "Topping up when half empty is faster than at once",
                published.HALF_EMPTY,
                self._gains("half-empty", "immediate", lambda gained: gained > 0.0),
            ),
        ]

    def _claim(
        self,
        identifier: str,
        claim: str,
        theirs: str,
        judge: Judge,
        test_sets: Collection[str] = tuple(SETS),
        *,
        refills: bool = True,
    ) -> ClaimRecord:
        cases = [
            undecided(judge(decoder, key), undecided_reason(decoder, key, self._sentences, refills=refills))
            for key in test_sets
            for decoder in self._decoders
        ]
        return device_claim(self._decoders, identifier, claim, theirs, cases)

    def _gain(self, decoder: Decoder, test_set: str, ours: str, theirs: str) -> Gain:
        return gain(*(self._speeds[decoder.device, decoder.beam, test_set, strategy] for strategy in (ours, theirs)))

    def _gains(self, ours: str, theirs: str, holds: Callable[[float], bool]) -> Judge:
        """Return the judge of one strategy's gain over another."""

        def judge(decoder: Decoder, test_set: str) -> Case:
            gained = self._gain(decoder, test_set, ours, theirs)
            return case_over_seeds(decoder, test_set, gained.percent(), [*map(holds, gained.by_seed)])

        return judge

    def _advantages(self, decoder: Decoder, test_set: str) -> Case:
        alone = self._gain(decoder, test_set, "half-empty", "mini")
        beside = self._gain(decoder, test_set, "maxi half-empty", "maxi")
        text = f"{100 * alone.mean:+.1f} % alone, {100 * beside.mean:+.1f} % with maxi"
        return case_over_seeds(decoder, test_set, text, [b < a for a, b in zip(alone.by_seed, beside.by_seed, strict=True)])

    def _refill_limits(self, decoder: Decoder, test_set: str) -> Case:
        alone, beside = (
            self._limits[decoder.device, decoder.beam, test_set, strategy] for strategy in ("half-empty", "maxi half-empty")
        )
        known = alone.by_seed_s and beside.by_seed_s
        return case_over_seeds(
            decoder,
            test_set,
            f"{_describe_limit(alone)} alone, {_describe_limit(beside)} with maxi",
            [max(b, 0.0) < a for a, b in zip(alone.by_seed_s, beside.by_seed_s, strict=True)] if known else [False],
        )

    def _small_beams(self) -> ClaimRecord:
        """Compare the smallest with the largest beam that decide anything."""
        decoders = sorted(self._decoders, key=lambda decoder: decoder.beam)
        reasons = [undecided_reason(decoder, "europarl", self._sentences) for decoder in decoders]
        gains = [self._gain(decoder, "europarl", "half-empty", "maxi") for decoder in decoders]
        sound = [place for place, reason in enumerate(reasons) if not reason]
        notes = []
        if len(sound) < 2:
            cases = [
                Case(
                    case_name(decoder.beam, "europarl"),
                    gained.percent(),
                    UNKNOWN,
                    reason or "needs two beams of which enough was measured",
                )
                for decoder, gained, reason in zip(decoders, gains, reasons, strict=True)
            ]
        else:
            first, last = decoders[sound[0]], decoders[sound[-1]]
            small, large = gains[sound[0]], gains[sound[-1]]
            faster = [a > 0.0 for a in small.by_seed]
            more = [a > b for a, b in zip(small.by_seed, large.by_seed, strict=True)]
            cases = [
                case_over_seeds(first, "europarl", small.percent(), faster, "not faster in every seed"),
                case_over_seeds(last, "europarl", large.percent(), more, "not less than with the small beam in every seed"),
            ]
            if first.batch != last.batch:
                notes.append(f"batches of {first.batch} and of {last.batch}")
        return device_claim(
            self._decoders,
            "FNI-16 (g)",
            "On Europarl, topping up alone is faster than maxi-batching with a small beam, and by more than with a large one",
            "equal to maxi-batching, slightly faster with small beams",
            cases,
            notes,
        )


def _describe_limit(limit: RefillLimit) -> str:
    if limit.limit_s is None:
        return "at no cost of a refill"
    return f"{1e3 * limit.limit_s:,.2f} ms ({limit.limit_steps:.2f} steps) more a refill"


def online_claims(decoders: Sequence[Decoder], limits: Iterable[LoadLimit], sentences: int | None = None) -> list[ClaimRecord]:
    """Return one record per device: half-empty top-up against maxi-batching, paired by seed.

    Args:
        decoders: the devices with their beams.
        limits: the load up to which each strategy holds a p95.
        sentences: most sentences of a run; None: all.
    """
    records = []
    for (device,), device_limits in grouped(limits, "device").items():
        decoder = min((decoder for decoder in decoders if decoder.device == device), key=lambda decoder: decoder.beam)
        cases = []
        for (test_set, _), group in grouped(device_limits, "test_set", "over_solo").items():
            by_strategy = {limit.strategy: limit for limit in group}
            ours, theirs = by_strategy["half-empty"], by_strategy["maxi"]
            more = over_replications([a - b for a, b in zip(ours.up_to_rps, theirs.up_to_rps, strict=True)])
            case = Case(
                f"{SETS[test_set].name}, {ours.p95_ms:,.0f} ms",
                f"{ours.estimate.mean:.2f} against {theirs.estimate.mean:.2f} a second",
                sign_verdict(more) if more.mean else UNCLEAR,
            )
            cases.append(undecided(case, undecided_reason(decoder, test_set, sentences)))
        records.append(
            device_claim(
                [decoder],
                "FNI-09 (online)",
                "Sentences that arrive one by one: within a p95, topping up carries more load than maxi-batching",
                "maxi-batching can delay an online answer unacceptably",
                cases,
            )
        )
    return records
