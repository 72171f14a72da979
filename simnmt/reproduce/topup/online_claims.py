"""What each device says of sentences that arrive one by one: half-empty top-up against maxi-batching within a p95 (FNI-09)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from simnmt.reproduce.topup.devices import Decoder
from simnmt.reproduce.topup.online import Holding
from simnmt.reproduce.topup.published import SETS
from simnmt.reproduce.topup.undecided import passed_over, undecided
from simnmt.reproduce.verdicts import FAILS, HOLDS, UNCLEAR, UNKNOWN, Records, record_of, worst
from simnmt.results.statistics import over_replications


def online_claims(decoders: Sequence[Decoder], held: Iterable[Holding], sentences: int | None = None) -> Records:
    """One record per device: half-empty top-up against maxi-batching, paired by seed. `sentences`: as of `speed_claims`."""
    by_key = {(each.device, each.test_set, each.over_solo, each.strategy): each for each in held}
    records = []
    for device in dict.fromkeys(device for device, *_ in by_key):
        decoder = min((each for each in decoders if each.device == device), key=lambda each: each.beam)
        told, verdicts, passed = [], [], []
        for _, test_set, over_solo in dict.fromkeys(key[:3] for key in by_key if key[0] == device):
            ours, theirs = (by_key[device, test_set, over_solo, each] for each in ("half-empty", "maxi"))
            more = over_replications([a - b for a, b in zip(ours.up_to, theirs.up_to, strict=True)])
            verdict = UNCLEAR
            if more.low is not None and more.high is not None:
                verdict = HOLDS if more.low > 0.0 else FAILS if more.high < 0.0 else UNCLEAR
            rates = f"{ours.estimate.mean:.2f} against {theirs.estimate.mean:.2f} a second"
            ending = {HOLDS: "", FAILS: ", less", UNCLEAR: ", not distinguishable"}[verdict]
            words = f"{SETS[test_set].name}, {1e3 * ours.p95_s:,.0f} ms: {rates}{ending}"
            reason = undecided((decoder, test_set), sentences)
            if reason:
                passed.append((reason, words))
            else:
                told.append(words)
                verdicts.append(verdict)
        verdict = worst(verdicts)
        because = {
            HOLDS: "in every case by more than seeds differ",
            UNKNOWN: "nothing that could decide it was measured",
        }
        records.append(
            record_of(
                "FNI-09 (online)",
                "Sentences that arrive one by one: within a p95, topping up carries more load than maxi-batching",
                "maxi-batching can delay an online answer unacceptably",
                "; ".join(told),
                verdict,
                "; ".join([because.get(verdict, "not in every case by more than seeds differ"), *passed_over(passed)]),
                device=device,
                basis=decoder.kind,
            )
        )
    return records
