"""Unmodified clients of LibreTranslate through gateway and server: Python and curl."""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from typing import Any
from urllib.error import HTTPError

import pytest
from libretranslatepy import LibreTranslateAPI

from simnmt.live.engine_process import EngineProcess
from tests.live.live_services import Services

TOKEN = "t0ken"
TEXT = "Heute ist ein schöner Tag"


@pytest.fixture(scope="module", params=["server", "gateway"])
def url(request: pytest.FixtureRequest, services: Services, faulty: EngineProcess) -> Iterator[str]:
    service = services.front(request.param, faulty, TOKEN)
    yield service.http.url
    assert service.outcomes["fallback"] == 0


def beside(services: Services, call: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
    """The result of a call that blocks, while the services run."""
    return services.run(asyncio.to_thread(call, *arguments, **options), 60.0)


def output(services: Services, *command: str) -> str:
    done = beside(services, subprocess.run, command, capture_output=True, text=True, timeout=50, check=False)
    assert done.returncode == 0, done.stderr
    return str(done.stdout)


def is_translation(text: str) -> bool:
    """Whether a text is one of the fake engine: numbered words, as many as the source's."""
    return re.fullmatch(r"w\d+( w\d+){4}", text) is not None


def test_the_python_client(services: Services, url: str) -> None:
    client = LibreTranslateAPI(url, TOKEN)
    assert is_translation(beside(services, client.translate, TEXT, "de", "en"))
    assert beside(services, client.translate, "", "de", "en") == ""
    assert [language["code"] for language in beside(services, client.languages)] == ["de", "en"]
    assert beside(services, client.detect, TEXT)[0]["language"] == "de"
    for wrong, status in ((LibreTranslateAPI(url, "no"), 403), (LibreTranslateAPI(url, TOKEN), 400)):
        with pytest.raises(HTTPError) as caught:
            beside(services, wrong.translate, TEXT, "de" if status == 403 else "fr", "en")
        with caught.value as answer:
            assert (answer.code, "error" in json.loads(answer.read())) == (status, True)


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
def test_curl_as_documented(services: Services, url: str) -> None:
    body = json.dumps({"q": [TEXT, TEXT], "source": "de", "target": "en", "api_key": TOKEN})
    headers = ("-H", "Content-Type: application/json")
    answer = json.loads(output(services, "curl", "-sS", "-X", "POST", f"{url}/translate", *headers, "-d", body))
    assert [is_translation(text) for text in answer["translatedText"]] == [True, True]
    form = ("-d", f"q={TEXT}", "-d", "source=auto&target=en", "-H", f"Authorization: Bearer {TOKEN}")
    assert is_translation(json.loads(output(services, "curl", "-sS", f"{url}/translate", *form))["translatedText"])
    large = ("-d", "q=" + "w" * 80_000, "-d", f"source=de&target=en&api_key={TOKEN}", "-H", "Expect: 100-continue")
    assert "translatedText" in json.loads(output(services, "curl", "-sS", f"{url}/translate", *large))
