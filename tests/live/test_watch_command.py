"""`simnmt live watch`: verdict, exit status, new profile, following a log, and one line for bad input."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from simnmt.profile import read_profile
from simnmt.results.live_log import format_record
from tests.command_line import Outcome, folder, simnmt, start
from tests.live.made_log import after, made_records

__all__ = ["folder", "simnmt", "start"]
PROFILES = ("--profile", "gateway=gateway.json", "--profile", "cloud=cloud.json")
Command = Callable[..., Outcome]


def write_log(path: Path, factor: float, requests: int = 1_200) -> None:
    path.write_text("".join(map(format_record, made_records(requests, factor=after(500, factor)))))


def test_drift_is_printed_and_refitted(folder: Path, simnmt: Command) -> None:
    write_log(folder / "slow.jsonl", 1.3)
    outcome = simnmt("live", "watch", "slow.jsonl", *PROFILES, "--out", "new.json", "--fail-on-drift")
    assert outcome.status == 3
    assert "drift: gateway is " in outcome.out
    assert "start a new log for it" in outcome.out and "refit it once" not in outcome.out
    assert "slower" in outcome.out
    assert "wrote new.json" in outcome.err
    old, new = (read_profile(folder / name).plane.seconds(20, 20) for name in ("gateway.json", "new.json"))
    assert new / old == pytest.approx(1.3, abs=0.05)
    again = simnmt("live", "watch", "slow.jsonl", *PROFILES, "--json")
    assert again.status == 0
    document = json.loads(again.out)
    assert document["drift"] is True
    assert document["alarms"][0]["device"] == "gateway"


def test_a_log_without_drift_writes_a_profile_only_for_a_named_device(folder: Path, simnmt: Command) -> None:
    write_log(folder / "calm.jsonl", 1.0)
    outcome = simnmt("live", "watch", "calm.jsonl", *PROFILES, "--out", "new.json", "--fail-on-drift")
    assert (outcome.status, (folder / "new.json").exists()) == (0, False)
    assert "no drift" in outcome.out
    assert simnmt("live", "watch", "calm.jsonl", *PROFILES, "--out", "gateway=new.json").status == 0
    assert (folder / "new.json").exists()


def test_drift_against_a_doubtful_profile_repeats_the_doubt(folder: Path, simnmt: Command) -> None:
    profile = json.loads((folder / "gateway.json").read_text())
    profile["execution"] |= {"kind": "measured", "fit": profile["execution"]["fit"] | {"heldout_error": 0.4}}
    (folder / "doubtful.json").write_text(json.dumps(profile))
    write_log(folder / "slow.jsonl", 1.3)
    write_log(folder / "calm.jsonl", 1.0)
    outcomes = [simnmt("live", "watch", log, "--profile", "gateway=doubtful.json") for log in ("slow.jsonl", "calm.jsonl")]
    message = "the drift of gateway is judged by a doubtful profile; execution: a held-out error of 40 %"
    assert [message in outcome.err for outcome in outcomes] == [True, False]


def test_a_profile_that_never_fitted_is_to_be_refitted_once(folder: Path, simnmt: Command) -> None:
    (folder / "log.jsonl").write_text("".join(map(format_record, made_records(1_200, factor=after(0, 1.3)))))
    outcome = simnmt("live", "watch", "log.jsonl", *PROFILES, "--out", "new.json")
    assert "refit it once with --out, and watch with the new one" in outcome.out
    assert "new.json: " in outcome.out and "start a new log for it" not in outcome.out
    again = simnmt("live", "watch", "log.jsonl", "--profile", "gateway=new.json")
    assert "no drift" in again.out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("bad.jsonl", *PROFILES), "bad.jsonl:3:2: no JSON"),
        (("none.jsonl", *PROFILES), "none.jsonl: cannot read the log"),
        (("good.jsonl",), "give the profile of a device"),
        (("good.jsonl", "--profile", "gateway.json"), "names no device"),
        (("good.jsonl", "--profile", "server=cloud.json"), "the log has no device server (known: gateway, cloud)"),
        (("good.jsonl", "--profile", "gatway=cloud.json"), "the log has no device gatway (did you mean gateway?)"),
        (("good.jsonl", *PROFILES, "--out", "server=new.json"), "server has no --profile"),
        (("good.jsonl", *PROFILES, "--out", "gateway=good.jsonl"), "would replace what is read"),
        (("good.jsonl", *PROFILES, "--out", "cloud=new.json"), "0 executions of single sentences"),
    ],
)
def test_bad_input_is_one_line(folder: Path, simnmt: Command, arguments: tuple[str, ...], message: str) -> None:
    write_log(folder / "good.jsonl", 1.0, 50)
    lines = (folder / "good.jsonl").read_text().splitlines()
    (folder / "bad.jsonl").write_text("\n".join([*lines[:2], "{bad", *lines[2:]]))
    outcome = simnmt("live", "watch", *arguments)
    assert outcome.status == 2
    assert message in outcome.err


def test_a_followed_log_prints_alarms_as_they_come_and_ends_with_a_summary(
    folder: Path, start: Callable[..., subprocess.Popen[str]]
) -> None:
    write_log(folder / "all.jsonl", 1.5)
    lines = (folder / "all.jsonl").read_text()
    log = folder / "grown.jsonl"
    log.write_text(lines[: len(lines) // 3])
    process = start("live", "watch", "grown.jsonl", *PROFILES, "--follow", "--fail-on-drift", cwd=folder)
    with log.open("a") as file:
        file.write(lines[len(lines) // 3 :])
    assert process.stdout is not None
    assert process.stdout.readline().startswith("drift: gateway is ")
    time.sleep(0.1)
    process.send_signal(signal.SIGTERM)
    out, err = process.communicate(timeout=30)
    assert (process.returncode, err) == (3, "")
    assert "measured / predicted" in out
