"""Sentences decoded in batches on a device: occupancy, speed and stages of decode steps (FNI-12 to 17).

Results are frames with a row for each device, beam, set, strategy and seed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from math import inf
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from simnmt.base.errors import InputError
from simnmt.base.random_streams import stream
from simnmt.batching import Batching, half_empty, immediate, maxi, mini, top_up
from simnmt.papers.fni.devices import Decoder, FusedDecoder
from simnmt.papers.fni.published import BATCH, COLLECTED, SETS, Row, case_name, with_ratios
from simnmt.papers.kit.claims import end_to_end
from simnmt.papers.kit.figures import estimate_bars, grouped
from simnmt.profile.cost import CostTable, DecodingCost
from simnmt.profile.profile_variant import DecoderChoice
from simnmt.report.charts import Chart
from simnmt.report.table import Column, Table
from simnmt.results.device_accounts import SMALL_BATCH, BatchAccount
from simnmt.results.statistics import Estimate
from simnmt.workload.lognormal_lengths import MIXES, SENTENCES
from simnmt.world.engine import decode_all

COLLECT = COLLECTED // BATCH
"""Batches in a maxi-batch: ten, whatever the size of a batch."""
LEAST_BATCHES = 40
"""Fewest batches that decide a verdict: with fewer, the first and the last batch would weigh too much."""
LEAST_SENTENCES = 100
"""Fewest sentences that a user may ask for."""
SEEDS = (1, 2, 3, 4, 5)
SPEED_SEEDS = SEEDS[:2]
"""Seeds of speeds. Speeds hardly differ between seeds, since 30,000 sentences average out more than a seed moves."""

Progress = Callable[[int, int], None]
"""Called with the number of tasks done and the number of all tasks."""


def check_requests(requests: int | None) -> None:
    """Raise `InputError` for too few sentences."""
    if requests is not None and requests < LEAST_SENTENCES:
        remedy = f"give {LEAST_SENTENCES} or more; verdicts need {LEAST_BATCHES} batches"
        raise InputError(f"{requests} requests: too few to form batches", remedy=remedy)


class Strategy(NamedTuple):
    """One way to form batches."""

    name: str
    batching: Callable[[int], Batching]
    """Return the batching for a batch size."""
    baseline: str = "mini"
    """Strategy without top-up that it is compared with."""


STRATEGIES = {
    "mini": Strategy("mini", lambda size: mini(size)),
    "half-empty": Strategy("top-up, half-empty", lambda size: top_up(size, half_empty(size))),
    "immediate": Strategy("top-up, immediate", lambda size: top_up(size, immediate(size))),
    "maxi": Strategy("maxi", lambda size: maxi(size, COLLECT * size), "maxi"),
    "maxi half-empty": Strategy(
        "maxi and top-up, half-empty", lambda size: top_up(size, half_empty(size), COLLECT * size, inf), "maxi"
    ),
    "maxi immediate": Strategy(
        "maxi and top-up, immediate", lambda size: top_up(size, immediate(size), COLLECT * size, inf), "maxi"
    ),
}
"""The strategies of the paper's figures: all sentences at hand, no batch waits."""


def lengths_of(test_set: str, seed: int, sentences: int | None = None) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return src_len and tgt_len of a set's first `sentences` (None: all); the same seed gives the same sentences."""
    size = SENTENCES[test_set] if sentences is None else sentences
    return MIXES[test_set].draw(stream(seed, 0, f"topup {test_set}"), size)


def drawn_moments(test_set: str, seeds: Sequence[int]) -> dict[str, Any]:
    """Return mean and standard deviation of a set's source lengths as drawn, over seeds, beside the printed ones (FNI-14)."""
    drawn, printed = [lengths_of(test_set, seed)[0] for seed in seeds], SETS[test_set]
    return {
        "set": printed.name,
        "sentences": printed.sentences,
        "subwords": printed.subwords,
        "published_mean": printed.mean,
        "published_sd": printed.sd,
        "mean": float(np.mean([src_len.mean() for src_len in drawn])),
        "sd": float(np.mean([src_len.std() for src_len in drawn])),
    }


_ONE_SECOND_A_STEP = DecodingCost(
    step=CostTable.of((1, BATCH), (0, 1), 1.0),
    encoder=CostTable.of((1, BATCH), (0, 1), 0.0),
)
"""Costs of no device: which sentences are decoded together does not depend on costs if all are at hand."""
MEASURES = ("full_share", "below_8_share", "mean_active", "steps")
"""Of the steps: shares with a full batch and with fewer than 8 sentences, sentences on average, and their number (FNI-12)."""


def step_occupancy(
    test_set: str, strategy: str, seeds: Sequence[int] = SEEDS, sentences: int | None = None, batch: int = BATCH
) -> pd.DataFrame:
    """Decode a set, all of it at hand, and return a row per seed: `MEASURES`, and the shares of 1 to `batch` sentences."""
    batching, rows = STRATEGIES[strategy].batching(batch), []
    for seed in seeds:
        account = decode_all(batching, _ONE_SECOND_A_STEP, *lengths_of(test_set, seed, sentences)).account
        steps = float(account.steps.sum())
        measures = account.share_full, account.share_below(SMALL_BATCH), account.mean_active, steps
        rows.append(
            {"set": test_set, "strategy": strategy, "seed": seed}
            | dict(zip(MEASURES, measures, strict=True))
            | {"share_by_active": account.steps[1:] / steps}
        )
    return pd.DataFrame(rows)


def speeds(
    decoder: Decoder, test_set: str, strategies: Sequence[str], sentences: int | None = None, *, fused: bool = False
) -> pd.DataFrame:
    """Decode a set, all of it at hand, with each strategy and seed: a row each with the seconds and the refills."""
    key = {"device": decoder.device, "beam": decoder.beam, "batch": decoder.batch, "set": test_set, "fused": fused}
    rows = []
    for strategy in strategies:
        batching = STRATEGIES[strategy].batching(decoder.batch)
        for seed in SPEED_SEEDS:
            run = decode_all(batching, decoder.cost, *lengths_of(test_set, seed, sentences))
            figures = {"total_s": run.total_s, "sentences": len(run.finish_s), "refills": run.account.refills}
            rows.append(key | {"strategy": strategy, "seed": seed} | figures)
    return pd.DataFrame(rows)


Key = tuple[str, int, str, str, bool]
"""Device, beam, set, strategy, fused."""
KEY = ["device", "beam", "set", "strategy", "fused"]


def by_key(frames: Iterable[pd.DataFrame]) -> pd.DataFrame:
    """Join the frames of `speeds`, with the columns of `KEY` as index; a key has a row for each seed."""
    frames = list(frames)
    return pd.concat(frames).set_index(KEY) if frames else pd.DataFrame(columns=["batch", "seed", "total_s"])


class Gain(NamedTuple):
    """Relative gain in speed of one strategy over another on the same sentences: the ratio of their times less one."""

    mean: float
    by_seed: NDArray[np.float64]

    @property
    def ratio(self) -> Estimate:
        """The ratio of their times, with the least and the greatest over seeds."""
        return Estimate(1.0 + self.mean, 1.0 + float(self.by_seed.min()), 1.0 + float(self.by_seed.max()))

    def percent(self) -> str:
        """Return a text such as `+8.1 % (+7.9 to +8.4)`."""
        return f"{100 * self.mean:+.1f} % ({100 * self.by_seed.min():+.1f} to {100 * self.by_seed.max():+.1f})"


def gain(timed: pd.DataFrame, ours: Key, theirs: Key) -> Gain:
    """Return the gain of `ours` over `theirs`, paired by seed."""
    fast, slow = (timed.loc[[key]].total_s.to_numpy() for key in (ours, theirs))
    return Gain(float(slow.sum() / fast.sum() - 1.0), slow / fast - 1.0)


def plain_baseline(key: Key) -> Key:
    """Return the key of mini- or maxi-batching without top-up and without the fused kernel."""
    device, beam, test_set, strategy, _ = key
    return device, beam, test_set, STRATEGIES[strategy].baseline, False


def speed_rows(timed: pd.DataFrame, decoders: Iterable[Decoder], baseline: Callable[[Key], Key]) -> list[dict[str, Any]]:
    """Return a row per key with its speed over that of its baseline, as tables and charts show it."""
    by_beam, rows = {(decoder.device, decoder.beam): decoder for decoder in decoders}, []
    for key in dict.fromkeys(timed.index):
        device, beam, test_set, strategy, fused = key
        decoder, ratio, same = by_beam[device, beam], gain(timed, key, baseline(key)).ratio, timed.loc[[key]]
        speed = {"sentences_per_s": float(same.sentences.sum() / same.total_s.sum()), "relative": ratio.mean}
        spread = {"relative_least": ratio.low, "relative_greatest": ratio.high, "extrapolated": decoder.extrapolates(test_set)}
        names = {"device": device, "beam": beam, "batch": decoder.batch, "set": test_set, "strategy": strategy, "fused": fused}
        rows.append(names | speed | spread | {"name": STRATEGIES[strategy].name})
    return rows


def speed_table(title: str, rows: Sequence[Mapping[str, Any]], columns: Sequence[Column], note: str, key: str) -> Table:
    """Return the table of speeds with a line for each device, beam and set, which maps values of `key` to rows."""

    def name(line: Mapping[str, Any]) -> str:
        row = line["mini"]
        mark = "*" if row["extrapolated"] else ""
        return f"{case_name(row['beam'], row['set'])}{mark}, {row['device']}, batches of {row['batch']}"

    lines = [{row[key]: row for row in group} for group in grouped(rows, "device", "beam", "set").values()]
    first = [Column("set, device (* extrapolated)", name), Column("mini/s", "mini.sentences_per_s", 1)]
    return Table(title, [*first, *columns], lines, note, id="speeds")


def speed_chart(rows: Iterable[Mapping[str, Any]], unit: str, reading: str) -> Chart:
    """Return bars of the speeds by beam, a series for each name; whiskers span the seeds."""
    bars = []
    for row in rows:
        group = f"beam {row['beam']}, batches of {row['batch']}{', extrapolated' if row['extrapolated'] else ''}"
        bars.append((group, row["name"], Estimate(row["relative"], row["relative_least"], row["relative_greatest"])))
    return estimate_bars(bars, unit, reading)


def refill_limit(timed: pd.DataFrame, ours: Key, theirs: Key) -> tuple[float | None, NDArray[np.float64]]:
    """Return the cost that may be added to each refill of `ours`, which tops up, until it is as slow as `theirs`; and by seed.

    With all sentences at hand the order of events does not depend on their costs, so a total time is linear in the cost of a
    refill and the limit is exact. Below 0: slower already. None: it refills no more often, so no cost of a refill decides.
    """
    before, after = timed.loc[[theirs]], timed.loc[[ours]]
    gained_s, more = (
        (before.total_s - after.total_s.to_numpy()).to_numpy(),
        after.refills.to_numpy() - before.refills.to_numpy(),
    )
    if more.min() <= 0:
        return None, np.empty(0)
    return float(gained_s.sum() / more.sum()), gained_s / more


def stages(decoder: FusedDecoder, test_set: str, sentences: int | None = None) -> Row:
    """Return the seconds of each stage over one set: those at each batch size times the steps with so many sentences active.

    Shares of a step are those of the decoder's variants, which were measured side by side; the level is that of the
    calibrated steps, so a step without its output layer never takes less than 0 s. With them come (FNI-15, FNI-17): the
    ratios of `with_ratios`; `output_share`: share of the output layer without the fused kernel; `predicted`: Amdahl's
    speed-up of the whole, with the product as measured beside the fused kernel (XP-07); and
    `predicted_product_left_alone`: with the product unchanged, as in the paper, so the gain of fusing alone.
    """
    batching = STRATEGIES["maxi"].batching(decoder.plain.batch)  # the paper's setting
    account = decode_all(batching, decoder.plain.cost, *lengths_of(test_set, SEEDS[0], sentences)).account
    plain, fused = decoder.plain_choice, decoder.fused_choice
    product_s, three_s = (over_steps(plain, stage, plain, account) for stage in ("product_s", "search_s"))
    product_fused_s, fused_s = (over_steps(fused, stage, plain, account) for stage in ("product_s", "search_s"))
    names = {"source": decoder.device, "kind": decoder.fused.shown_kind, "set": test_set, "beam": decoder.beam}
    seconds = {"encode_s": account.encode_s + account.refill_s, "body_s": float(account.step_s.sum()) - product_s - three_s}
    seconds |= {"product_s": product_s, "three_s": three_s, "product_fused_s": product_fused_s, "fused_s": fused_s}
    return with_shares(names | seconds | {"exact": fused.exact})


def with_shares(seconds: Mapping[str, Any]) -> Row:
    """Return the stages with what follows from their seconds (see `stages`)."""
    row = with_ratios(seconds)
    row.total_s = sum(seconds[part] for part in PARTS)
    row.output_share = (row.product_s + row.three_s) / row.total_s
    row.predicted = end_to_end(row.output_share, row.layer_ratio)
    row.predicted_product_left_alone = end_to_end(row.three_s / row.total_s, row.ratio)
    return row


def over_steps(choice: DecoderChoice, stage: str, of: DecoderChoice, account: BatchAccount) -> float:
    """Return seconds of a stage over all steps: the share of `of`'s step at each size, times the seconds of those steps.

    Shares are interpolated linearly between the measured batch sizes.
    """

    def seconds(choice: DecoderChoice, part: str) -> NDArray[np.float64]:
        sizes, at_sizes = [step.batch for step in choice.steps], [getattr(step, part) for step in choice.steps]
        return np.asarray(np.interp(np.arange(account.size + 1), sizes, at_sizes))

    return float(np.dot(account.step_s, seconds(choice, stage) / seconds(of, "step_s")))


PARTS = {
    "encode_s": "encoder",
    "body_s": "decoder without output layer",
    "product_s": "product",
    "three_s": "bias, softmax, search",
}
"""The parts of the time without the fused kernel (figures 1 and 5)."""
