"""Claims on devices hold on planes with the claimed property and fail on others."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from simnmt.base import shipped_files
from simnmt.papers.cnmt.device_claims import device_claims, samples_of, time_over_length
from simnmt.profile.device_profile import DeviceProfile
from simnmt.workload.length_table import LengthTable, read_table
from tests.papers.stand_ins import CLOUD, GATEWAY, profile

Pairs = dict[str, tuple[DeviceProfile, ...]]


def pairs(**changed: tuple[DeviceProfile, ...]) -> Pairs:
    profiles: Pairs = {
        "de-en": (profile("a", "bilstm", GATEWAY["bilstm"]), profile("b", "bilstm", CLOUD["bilstm"])),
        "fr-en": (profile("c", "gru", GATEWAY["gru"]), profile("d", "gru", CLOUD["gru"])),
        "en-zh": (profile("e", "marian", GATEWAY["marian"]), profile("f", "marian-int8", CLOUD["marian-int8"])),
    }
    return profiles | {name.replace("_", "-"): pair for name, pair in changed.items()}


@pytest.fixture(scope="module")
def lengths() -> dict[str, LengthTable]:
    table = read_table(shipped_files.find("traces/lengths", "de-en-news"))
    return dict.fromkeys(("de-en", "fr-en", "en-zh"), table)


def verdicts(profiles: Pairs, lengths: dict[str, LengthTable]) -> dict[str, str]:
    return {record.identifier: record.verdict for record in device_claims(profiles, lengths)}


def test_processors_are_linear_and_decide_at_no_cost_but_show_nothing_of_a_gpu(lengths: dict[str, LengthTable]) -> None:
    assert verdicts(pairs(), lengths) == {
        "CNMT-06 (linear in M)": "holds",
        "CNMT-06 (Transformer on a GPU)": "not measurable here",
        "CNMT-06 (recurrent encoders)": "does not hold",
        "CNMT-12": "holds",
    }
    assert {record.basis for record in device_claims(pairs(), lengths)} == {"measured"}


def test_the_claim_on_a_gpu_holds_if_its_encoder_is_flat(lengths: dict[str, LengthTable]) -> None:
    engine = {"backend": "torch", "compute_type": "float32", "device": "cuda:0"}
    gateway = profile("e", "marian", GATEWAY["marian"])
    for plane_ms, verdict in (((0.05, 3.6, 0.4), "holds"), ((1.0, 3.6, 0.4), "does not hold")):
        gpu = profile("g", "marian", plane_ms, engine=engine)
        assert verdicts(pairs(en_zh=(gateway, gpu)), lengths)["CNMT-06 (Transformer on a GPU)"] == verdict
        made_up = profile("g", "marian", plane_ms, "synthetic", engine=engine)
        assert verdicts(pairs(en_zh=(gateway, made_up)), lengths)["CNMT-06 (Transformer on a GPU)"] == "not measurable here"


def test_the_claim_on_recurrent_encoders_holds_if_they_step_like_their_decoders(lengths: dict[str, LengthTable]) -> None:
    stepping = {
        name: tuple(profile("x", model, (4.0, 5.0, 1.0)) for _ in range(2))
        for name, model in (("de_en", "bilstm"), ("fr_en", "gru"))
    }
    assert verdicts(pairs(**stepping), lengths)["CNMT-06 (recurrent encoders)"] == "holds"


def test_times_that_do_not_grow_with_the_target_length_are_not_linear(lengths: dict[str, LengthTable]) -> None:
    cells: list[dict[str, Any]] = [
        {"src_len": 5, "tgt_len": tgt, "min_s": time_s, "median_s": time_s, "mean_s": time_s}
        for tgt, time_s in ((1, 0.5), (10, 0.1), (20, 0.6), (40, 0.2))
    ]
    crooked = profile("x", "gru", GATEWAY["gru"])
    execution = crooked.execution.model_dump() | {"samples": tuple(cells)}
    pair = (profile("x", "gru", GATEWAY["gru"], execution=execution), crooked)
    records = {record.identifier: record for record in device_claims(pairs(fr_en=pair), lengths)}
    assert records["CNMT-06 (linear in M)"].verdict == "does not hold"
    assert records["CNMT-06 (linear in M)"].why == "below 0.95 for FR-EN"


def test_a_decision_of_more_than_a_thousandth_of_an_inference_is_not_negligible(lengths: dict[str, LengthTable]) -> None:
    """20 words on the GRU's server take some 21 ms: a thousandth is 21 us."""
    for decision_s, verdict in ((1.5e-5, "holds"), (2.5e-5, "does not hold")):
        slow = profile("c", "gru", GATEWAY["gru"], overheads={"decision_s": {"value": decision_s, "kind": "measured"}})
        assert verdicts(pairs(fr_en=(slow, profile("d", "gru", CLOUD["gru"]))), lengths)["CNMT-12"] == verdict


def test_without_profiles_nothing_is_measurable() -> None:
    assert set(verdicts({}, {}).values()) == {"not measurable here"}


def test_means_per_target_length_recover_the_plane_of_their_samples() -> None:
    """The source lengths are the same at every M, so the line's slope is aM and its offset the rest at the mean N."""
    per_src, per_tgt, fixed = GATEWAY["marian"]
    line = time_over_length(samples_of(profile("e", "marian", GATEWAY["marian"])))
    assert line is not None and line.tgt_len == (2, 10, 40, 80)
    assert line.ms_per_token == pytest.approx(per_tgt)
    assert line.ms_fixed == pytest.approx(fixed + per_src * 34)
    assert line.r2 == pytest.approx(1.0)
    of_sources = per_src * np.std([2, 20, 80])
    within = 0.02 * (per_tgt * 2 + per_src * 34 + fixed)
    assert of_sources < line.sd_ms[0] < 1.2 * np.hypot(of_sources, within)
    assert time_over_length(samples_of(profile("e", "marian", GATEWAY["marian"]))[:2]) is None
