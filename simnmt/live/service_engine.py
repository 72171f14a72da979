"""The gateway's own device as a service of this box: another program has the model, and the gateway needs no library of models.

The service speaks LibreTranslate's API, like the servers of the other devices. It is given one sentence at a time, in the order
of the decisions, as the simulated device executes them; so the gateway knows the begin of each execution itself.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from simnmt.base.errors import InputError
from simnmt.experiment.targets import Target
from simnmt.live.engine import ONE_MODEL, Result, check_engine
from simnmt.nmt.source_lines import SourceLine
from simnmt.service.client import TranslationClient
from simnmt.service.messages import TranslateRequest
from simnmt.workload.length_units import UNITS, unit_and_counter


def unit_of_lengths(target: Target, unit: str | None = None) -> str:
    """Return the unit in which a gateway counts for a device that is a service; `unit`: the user's, None for the profile's.

    Raises `InputError` for a device that cannot be one, and for a unit that needs a tokeniser which is not named.
    """
    if target.decoding is not None:
        what = f"device {target.device} batches, which a gateway does not see of a service"
        raise InputError(what, remedy=f"remove devices.{target.device}.batching, or give the gateway the model itself")
    profile = target.profile
    chosen = unit or profile.length_unit.src
    if unit is None and chosen not in UNITS:
        what = f"profile {profile.name} counts lengths in {chosen}, whose tokeniser is not known"
        raise InputError(what, remedy="give --local-unit sentencepiece:PATH or tokenizers:PATH")
    if (name := unit_and_counter(chosen)[0]) != profile.length_unit.src:
        what = f"--local-unit counts in {name}, and profile {profile.name} in {profile.length_unit.src}"
        raise InputError(what, remedy="name the tokeniser that the profile was measured with")
    return chosen


class ServiceEngine:
    """Executes what a gateway keeps by asking a service of this box; has the methods of an `EngineProcess`."""

    alive = True
    """No process here could die."""

    def __init__(
        self,
        url: str,
        unit: str,
        languages: tuple[str, str] = ("de", "en"),
        timeout_s: float = 30.0,
        token: str = "",
        ca_file: Path | None = None,
        expected_hash: str | None = None,
    ) -> None:
        """`unit`: in which source lengths are counted, as in `unit_and_counter`; `expected_hash`: as in `EngineSettings`.

        Raises `InputError` for unusable options.
        """
        self._languages, self._expected_hash = languages, expected_hash
        self._client = TranslationClient(url, token=token, connections=1, timeout_s=timeout_s, ca_file=ca_file)
        self._is_open = False
        self.on_reference: Callable[[float, float], None] = lambda at_s, execution_s: None
        """Never called, as `on_error`: no process here executes references or could die."""
        self.on_error: Callable[[str], None] = lambda text: None
        _, self._count = unit_and_counter(unit)
        self._turn = asyncio.Lock()
        self._health: Mapping[str, Any] = {}

    async def ready(self) -> Mapping[str, str]:
        """Return the hash of the service's engine, if it states one.

        Raises `InputError` for another engine than the expected one, and as `TranslationClient.greet`.
        """
        if not self._is_open:
            await self._client.__aenter__()
            self._is_open = True
        remedy = "start the service of this box first, and check --local-server"
        self._health, _ = await self._client.greet(self._languages, "--local-token-file", remedy)
        running = str(self._health.get("engine_hash", ""))
        check_engine(self._client.url, running, self._expected_hash)
        return {ONE_MODEL: running}

    def line(self, text: str, model: str = "") -> SourceLine:
        """Return a text as a source line; its tokens are placeholders, since only their number matters here."""
        count = self._count(text)
        return SourceLine(text, [0] * (count + 1) if count else [], False, 1)

    async def execute(
        self,
        line: SourceLine,
        forced_len: int | None = None,
        began: Callable[[float], None] | None = None,
        model: str = "",
        rank: int = 0,
    ) -> Result:
        """Let the service translate in the order of the calls. Raises the `ServiceError` of the service."""
        submitted_s = time.monotonic()
        forced = None if forced_len is None else (forced_len,)
        async with self._turn:
            begin_s = time.monotonic()
            if began is not None:
                began(begin_s)
            answer = (await self._client.translate(TranslateRequest((line.text,), False, *self._languages, "", forced))).answer
        tgt_len = answer.lengths[1] or self._count(answer.texts[0]) + 1
        times_s = begin_s - submitted_s, time.monotonic() - begin_s
        return Result(answer.texts[0], *times_s, (0, 0), (len(line.ids), tgt_len, 1))

    def describe(self) -> Mapping[str, Any]:
        """Return what the service says of its engine, and where it is."""
        names = ("engine_hash", "backend", "compute_type", "model", "threads", "weights")
        return {name: self._health[name] for name in names if name in self._health} | {"local_server": self._client.url}

    async def close(self) -> None:
        """Close the connections."""
        if self._is_open:
            await self._client.__aexit__()
            self._is_open = False
