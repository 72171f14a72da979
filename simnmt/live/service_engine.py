"""A running service in place of a device: of a gateway's own one, or of one that a validation asks.

A gateway sends it one sentence at a time, in the order of the decisions, as the simulated device executes them; so the gateway
knows the begin of each execution itself, and needs no library of models.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from math import inf
from typing import Any

import numpy as np

from simnmt.base.arrays import Floats
from simnmt.base.errors import InputError
from simnmt.experiment.targets import Target
from simnmt.live.engine import ONE_MODEL, Result, check_engine
from simnmt.nmt.source_lines import SourceLine
from simnmt.profile.device_profile import DeviceProfile
from simnmt.service.apis import Api
from simnmt.service.client import ServiceClient
from simnmt.service.load import Load, send_load
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
    """Executes on a running service, and has the methods of an `EngineProcess`."""

    alive = True
    """No process here could die."""

    def __init__(
        self,
        url: str,
        api: Api,
        profile: DeviceProfile,
        pair: tuple[str, str] = ("de", "en"),
        *,
        unit: str = "word",
        expected_hash: str | None = None,
        token_option: str = "",
        **connection: Any,
    ) -> None:
        """`profile`: of the device; `unit`: in which a gateway counts source lengths (`unit_and_counter`); `expected_hash`: see
        `EngineSettings`; `token_option`: see `ServiceClient.greet`; `connection`: as of an `HttpClient`.

        Raises `InputError` for unusable options.
        """
        self.api, self._profile, self._expected_hash, self._token_option = api, profile, expected_hash, token_option
        self.client = self.connect(url, pair, connections=1, **connection)
        self._is_open = False
        self.on_reference: Callable[[float, float], None] = lambda at_s, execution_s: None
        """Never called, as `on_error`: no process here executes references or could die."""
        self.on_error: Callable[[str], None] = lambda text: None
        _, self._count = unit_and_counter(unit)
        self._turn = asyncio.Lock()
        self._health: Mapping[str, Any] = {}

    def connect(self, url: str, pair: tuple[str, str], **connection: Any) -> ServiceClient:
        """Return a client of the service that notes first tokens."""
        unit = self._profile.length_unit
        options = {"slots": self._profile.slots, "counted": unit.end_of_sentence, "counts_words": unit.tgt == "word"}
        return self.api.connect(url, pair, streams=True, **options, **connection)

    async def ready(self) -> Mapping[str, str]:
        """Return the hash of the service's engine, if it states one.

        Raises `InputError` for another engine than the expected one, and as `ServiceClient.greet`.
        """
        if not self._is_open:
            await self.client.__aenter__()
            self._is_open = True
        self._health = await self.client.greet(self._token_option, "start the service first, and check its address")
        self.api = replace(self.api, model=self.client.model)
        running = str(self._health.get("engine_hash", ""))
        check_engine(self.client.url, running, self._expected_hash)
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
        async with self._turn:
            begin_s = time.monotonic()
            if began is not None:
                began(begin_s)
            answer = (await self.client.translate(self._request(line.text, forced_len))).answer
        tgt_len = answer.lengths[1] if answer.lengths[2] else self._count(answer.texts[0]) + 1  # stated by a server of simnmt
        times_s = begin_s - submitted_s, time.monotonic() - begin_s
        return Result(answer.texts[0], *times_s, (0, 0), (len(line.ids), tgt_len, 1))

    def _request(self, text: str, forced_len: int | None) -> TranslateRequest:
        return TranslateRequest((text,), False, *self.client.pair, forced_lens=None if forced_len is None else (forced_len,))

    async def references_s(self, texts: Sequence[str], steps: int) -> Floats:
        """Return the seconds of requests one after another, each of so many decode steps; infinite for one that fails."""
        log = await send_load(Load([self._request(self.unseen(text), steps) for text in texts]), [self.client])
        seconds: Floats = np.where(log.answered, log.received_s - log.sent_s, inf)
        return seconds

    def unseen(self, text: str) -> str:
        """Return a text of the same words that is not in a cache of prompts; the same text if the service has no such cache."""
        words = text.split()
        return " ".join(random.sample(words, len(words))) if self.client.keeps_prompts else text

    def describe(self) -> Mapping[str, Any]:
        """Return what the service says of its engine, and where it is."""
        names = ("engine_hash", "backend", "compute_type", "model", "threads", "weights")
        return {name: self._health[name] for name in names if name in self._health} | {"local_server": self.client.url}

    async def close(self) -> None:
        """Close the connections."""
        if self._is_open:
            await self.client.__aexit__()
            self._is_open = False
