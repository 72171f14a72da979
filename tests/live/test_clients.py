"""Unmodified clients of LibreTranslate through gateway and server: Python, JavaScript, curl, and the recipe for LiteLLM."""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import subprocess
import sys
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.error import HTTPError

import pytest
from libretranslatepy import LibreTranslateAPI

from simnmt.live.engine_process import EngineProcess
from simnmt.live.gateway import GatewaySettings
from simnmt.service.http_server import Access
from tests.live.live_services import FRONT, Services, unit_of

TOKEN = "t0ken"
TEXT = "Heute ist ein schöner Tag"
PACKAGE = "libretranslate-ts@0.5.12"


@pytest.fixture(scope="module", params=["server", "gateway"])
def url(request: pytest.FixtureRequest, services: Services, faulty: EngineProcess) -> Iterator[str]:
    """A server, or a gateway that offloads everything to it; both ask for the token."""
    server = services.server(faulty, access=Access(token=TOKEN))
    if request.param == "server":
        yield server.front.service.url
    else:
        unit = unit_of("@open-loop", "fit.inferences=0")
        servers = {"cloud": server.front.service.url}
        settings = GatewaySettings(unit, "cloud", servers, FRONT, Access(token=TOKEN), token=TOKEN, any_model=True)
        gateway = services.gateway(settings, None, faulty)
        yield gateway.front.service.url
        assert gateway.fallbacks == 0
        services.stop(gateway)
    services.stop(server)


def beside(services: Services, call: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
    """The result of a call that blocks, while the services run."""
    return services.run(asyncio.to_thread(call, *arguments, **options), 60.0)


def output(services: Services, *command: str, cwd: Path | None = None) -> str:
    done = beside(services, subprocess.run, command, capture_output=True, text=True, timeout=50, cwd=cwd, check=False)
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
    form = ("-d", f"q={TEXT}", "-d", "source=auto", "-d", "target=en", "-H", f"Authorization: Bearer {TOKEN}")
    assert is_translation(json.loads(output(services, "curl", "-sS", f"{url}/translate", *form))["translatedText"])
    large = (
        "-d",
        "q=" + "w" * 80_000,
        "-d",
        "source=de",
        "-d",
        "target=en",
        "-d",
        f"api_key={TOKEN}",
        "-H",
        "Expect: 100-continue",
    )
    assert "translatedText" in json.loads(output(services, "curl", "-sS", f"{url}/translate", *large))


@pytest.fixture(scope="module")
def javascript_client(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which the JavaScript client is installed."""
    if shutil.which("node") is None or shutil.which("npm") is None:
        pytest.skip("node and npm are not installed")
    folder = tmp_path_factory.mktemp("javascript")
    options = ("--no-audit", "--no-fund", "--ignore-scripts", "--silent", "--prefix", str(folder))
    try:
        done = subprocess.run(["npm", "install", *options, PACKAGE], capture_output=True, timeout=60, check=False)
    except subprocess.TimeoutExpired:
        pytest.skip(f"npm did not install {PACKAGE} in time")
    if done.returncode or not (folder / "node_modules").is_dir():
        pytest.skip(f"npm cannot install {PACKAGE} here")
    return folder


@pytest.mark.deep
def test_the_javascript_client(services: Services, url: str, javascript_client: Path) -> None:
    script = f"""
        const {{ libreTranslate }} = require("libretranslate-ts");
        libreTranslate.setApiEndpoint({json.dumps(url)});
        libreTranslate.setApiKey({json.dumps(TOKEN)});
        (async () => {{
            const answer = await libreTranslate.translate({json.dumps(TEXT)}, "de", "en");
            console.log(JSON.stringify([answer.translatedText, await libreTranslate.detect("Hallo")]));
        }})();
    """
    text, detected = json.loads(output(services, "node", "-e", script, cwd=javascript_client))
    assert is_translation(text)
    assert "de" in json.dumps(detected)


@pytest.mark.deep
@pytest.mark.skipif(shutil.which("node") is None, reason="node is not installed")
def test_fetch_as_documented(services: Services, url: str) -> None:
    request = {"q": TEXT, "source": "de", "target": "en", "api_key": TOKEN}
    script = f"""
        fetch({json.dumps(url + "/translate")}, {{
            method: "POST",
            body: JSON.stringify({json.dumps(request)}),
            headers: {{ "Content-Type": "application/json" }},
        }}).then(async (answer) => console.log(JSON.stringify(await answer.json())));
    """
    assert is_translation(json.loads(output(services, "node", "-e", script))["translatedText"])


class _Stub(types.SimpleNamespace):
    """What the recipe uses of a response of LiteLLM."""


def _stub_of_litellm() -> dict[str, types.ModuleType]:
    """A module with the base class of LiteLLM's custom providers, whose methods it calls with keywords alone."""
    module = types.ModuleType("litellm")

    class CustomLLM:
        pass

    class CustomLLMError(Exception):
        def __init__(self, status_code: int, message: str) -> None:
            self.status_code, self.message = status_code, message
            super().__init__(message)

    module.CustomLLM, module.ModelResponse = CustomLLM, _Stub  # type: ignore[attr-defined]
    below = types.ModuleType("litellm.llms.custom_llm")
    below.CustomLLMError = CustomLLMError  # type: ignore[attr-defined]
    return {"litellm": module, "litellm.llms.custom_llm": below}


def test_the_recipe_for_litellm(services: Services, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Against a stub of its base class: LiteLLM itself is not installed for the tests."""
    page = (Path(__file__).parents[2] / "docs" / "reference" / "live.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```py\n(.*?)```", page, re.S)
    (recipe,) = (block for block in blocks if block.startswith('"""simnmt_provider.py'))
    assert len(recipe.splitlines()) <= 65
    for name, module in _stub_of_litellm().items():
        monkeypatch.setitem(sys.modules, name, module)
    namespace: dict[str, Any] = {"__name__": "simnmt_provider"}
    exec(compile(recipe, "simnmt_provider.py", "exec"), namespace)
    handler = namespace["handler"]

    def arguments(content: Any, key: str = TOKEN) -> dict[str, Any]:
        response = _Stub(choices=[_Stub(message=_Stub(content=None), finish_reason=None)], usage=None, model=None)
        messages = [{"role": "system", "content": "Translate."}, {"role": "user", "content": content}]
        return {
            "model": "de-en", "messages": messages, "api_base": url, "api_key": key, "model_response": response,
            "timeout": 20.0, "optional_params": {}, "headers": {},
        }  # fmt: skip

    answer = beside(services, handler.completion, **arguments(TEXT))
    assert is_translation(answer.choices[0].message.content)
    parts = [{"type": "text", "text": "Heute ist ein"}, {"type": "text", "text": "schöner Tag"}]
    assert is_translation(services.run(handler.acompletion(**arguments(parts))).choices[0].message.content)
    with pytest.raises(Exception, match="token") as caught:
        beside(services, handler.completion, **arguments(TEXT, "no"))
    assert caught.value.status_code == 403  # type: ignore[attr-defined]
