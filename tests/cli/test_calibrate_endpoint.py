"""`simnmt calibrate --endpoint`: what a user sees of it, and one line for every service that cannot be measured."""

from __future__ import annotations

import json
import socket
from pathlib import Path
from typing import Any

import pytest

from simnmt.calibrate import processor_use
from tests.calibrate.endpoint_stub import stub_service
from tests.refusals import assert_one_line

TOKEN = "s3cr3t-t0ken" + 400 * "x"
"""As long as some are: a message is cut before its end."""
SPOKEN = {
    "libretranslate": ("--api", "libretranslate"),
    "openai": ("--api", "openai", "--model", "stub"),
}
"""Options of each API."""


@pytest.fixture(autouse=True)
def text(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processor_use, "others_cpus", lambda: 0.0)
    monkeypatch.delenv("SIMNMT_TOKEN", raising=False)
    (folder / "text.de").write_text("\n".join("w " * (1 + 3 * length) + str(length) for length in range(6)))


def calibrate(simnmt: Any, url: str, *arguments: str) -> Any:
    return simnmt("calibrate", "--endpoint", url, "--text", "text.de", "--quick", "--out", "box.json", *arguments)


def test_it_prints_the_plane_and_writes_profile_and_page(folder: Path, simnmt: Any) -> None:
    with stub_service(pace=0.5) as service:
        done = calibrate(simnmt, service.url, "--device-name", "Stub 3000")
    assert done.status == 0, done.err
    assert "measured through HTTP, round trip of" in done.out and "x target +" in done.out
    assert (folder / "box.html").exists()
    shown = simnmt("profile", "inspect", "box.json")
    assert "endpoint" in shown.out and f"libretranslate; at {service.url}; from de; to en" in shown.out
    assert json.loads((folder / "box.json").read_text())["device"]["name"] == "Stub 3000"


@pytest.mark.parametrize("api", SPOKEN)
@pytest.mark.parametrize(
    ("fault", "complaint"),
    [
        ("html", "is a web page (HTML), not the API"),
        ("break", "closed the connection in the middle of an answer"),
        ("error with status 200", "out of memory\n"),
        ("empty", "with an empty translation (correct --source, --target or --model"),
    ],
)
def test_a_service_that_does_not_translate_is_one_line(simnmt: Any, folder: Path, api: str, fault: str, complaint: str) -> None:
    with stub_service(api_fault=fault) as service:
        done = calibrate(simnmt, service.url, *SPOKEN[api], "--timeout", "300ms")
    assert done.status == 2 and complaint in done.err, done.err
    assert_one_line(done.err)
    assert not list(folder.glob("box*"))


def test_a_service_that_refuses_connections_is_one_line(simnmt: Any) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        done = calibrate(simnmt, f"http://127.0.0.1:{closed.getsockname()[1]}")
    assert done.status == 2 and "Connect" in done.err and "start the service, or correct --endpoint" in done.err
    assert_one_line(done.err)


@pytest.mark.parametrize("api", SPOKEN)
def test_a_token_comes_from_the_environment_and_is_never_shown(
    simnmt: Any, folder: Path, monkeypatch: pytest.MonkeyPatch, api: str
) -> None:
    options = SPOKEN[api]
    with stub_service(token=TOKEN, pace=0.02) as service:
        missing = calibrate(simnmt, service.url, *options)
        assert missing.status == 2 and "it asks for a token: put it into $SIMNMT_TOKEN" in missing.err
        assert_one_line(missing.err)
        monkeypatch.setenv("SIMNMT_TOKEN", "wr0ng-t0ken")
        wrong = calibrate(simnmt, service.url, *options)
        assert wrong.status == 2
        assert_one_line(wrong.err)
        monkeypatch.setenv("SIMNMT_TOKEN", TOKEN)
        done = calibrate(simnmt, service.url, *options)
    assert done.status == 0, done.err
    written = "".join(path.read_text() for path in folder.glob("box*"))
    for secret in (TOKEN[:12], "wr0ng-t0ken"):  # the stub's complaint repeats the token
        assert secret not in written + missing.err + wrong.out + wrong.err + done.out + done.err


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (("--target", "fr"), "does not translate de to fr, but de to en"),
        (("--threads", "1"), "holds for a model on this box, not for --endpoint"),
        (("--out", "text.de"), "would replace what is read"),
    ],
)
def test_wrong_options_are_refused(simnmt: Any, folder: Path, options: tuple[str, ...], complaint: str) -> None:
    (folder / "short.de").write_text("one\none\n")
    with stub_service(pace=0.02) as service:
        done = calibrate(simnmt, service.url, *options)
    assert done.status == 2 and complaint in done.err, done.err


def test_without_a_model_and_without_an_endpoint_nothing_is_measured(simnmt: Any) -> None:
    done = simnmt("calibrate", "--out", "box.json")
    assert done.status == 2 and "give a model, or --endpoint URL" in done.err
