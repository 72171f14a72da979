"""Settings of the calibration of a running service, and the sentences that are sent."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import SplitResult, urlsplit

import numpy as np

from simnmt.base.files import MOST_TEXT_BYTES, read_bounded
from simnmt.calibrate.settings import CalibrationError
from simnmt.workload.length_units import Count, unit_and_counter

TOKEN = "SIMNMT_TOKEN"
"""Environment variable that holds the service's token, unless another is named."""
STATED = "service"
"""Unit whose tokens the service counts itself."""
SENTENCES, QUICK_SENTENCES = 24, 12
"""Sentences of the text that are sent: evenly spaced ranks of their length, the shortest and the longest among them."""
LEAST_SENTENCES = 4
"""Least sentences that determine a plane, with one left over to judge it."""
ROUNDS, QUICK_ROUNDS, LEAST_ROUNDS = 7, 4, 3
"""Requests of each sentence, one after another; each round sends all of them, in a new order."""
WITHIN_S, QUICK_WITHIN_S = 420.0, 60.0
"""No further round is begun that would end later."""
MOST_TIMEOUT_S = 3600.0


@dataclass(frozen=True, slots=True)
class EndpointSettings:
    """Settings of one calibration. Raises `CalibrationError` for impossible ones."""

    url: str
    api: str
    """A name of `simnmt.calibrate.endpoint_apis.APIS`."""
    text: str
    """File of sentences, one a line."""
    model: str | None = None
    """Name of the model, as the service calls it."""
    source: str = "de"
    target: str = "en"
    quick: bool = False
    src_unit: str = "word"
    """A unit of `length_units`, or `STATED` for the service's own count."""
    tgt_unit: str = "word"
    timeout_s: float = 60.0
    """Longest time of a request."""
    max_tokens: int = 2_048
    """Most tokens of an answer, for OpenAI's API."""
    token_env: str = TOKEN
    ca_file: Path | None = None
    """Certificates of authorities, PEM; None: those of the system."""
    seed: int = 1

    def __post_init__(self) -> None:
        parts = _parts_of(self.url)
        if parts is None or parts.scheme not in ("http", "https") or not parts.hostname:
            raise CalibrationError(
                f"{self.url[:80]} is no address of a service", remedy="give http://HOST:PORT or https://HOST"
            )
        if parts.username is not None or parts.password is not None:
            remedy = f"put the token into ${self.token_env}"
            raise CalibrationError(f"--endpoint holds a password, which the profile would show ({remedy})")
        if parts.query or parts.fragment:
            raise CalibrationError("--endpoint holds a query", remedy="give the address alone, such as http://HOST:PORT")
        if self.max_tokens < 1:
            raise CalibrationError(f"--max-tokens {self.max_tokens} is less than 1")
        if not 0.01 <= self.timeout_s <= MOST_TIMEOUT_S:
            raise CalibrationError(f"--timeout {self.timeout_s:g} s is not from 10ms to {MOST_TIMEOUT_S:g} s")
        if self.token_env != TOKEN and not self.token:
            raise CalibrationError(f"${self.token_env} is not set", remedy="put the service's token into it")
        if (self.src_unit == STATED) != (self.tgt_unit == STATED):
            raise CalibrationError(f"--unit {STATED} holds for both sides", remedy="leave --src-unit and --tgt-unit out")

    @property
    def token(self) -> str:
        """The token, from the environment; empty without one. No field, lest it be printed or written."""
        return os.environ.get(self.token_env, "").strip()

    @property
    def counts_by_service(self) -> bool:
        """Whether lengths are those that the service states."""
        return self.src_unit == STATED

    @property
    def rounds(self) -> int:
        """Requests of each sentence."""
        return QUICK_ROUNDS if self.quick else ROUNDS

    @property
    def within_s(self) -> float:
        """Seconds after which no further round is begun."""
        return QUICK_WITHIN_S if self.quick else WITHIN_S

    def counters(self) -> tuple[tuple[str, Count], tuple[str, Count]] | None:
        """Return name and counting function of the source's and the target's unit; None if the service counts."""
        if self.counts_by_service:
            return None
        return unit_and_counter(self.src_unit, "src"), unit_and_counter(self.tgt_unit, "tgt")

    def as_json(self, sentences: Sequence[str]) -> dict[str, Any]:
        """Return what decides the numbers, for the journal; never the token."""
        content = "\n".join(sentences).encode()
        names = (
            "url",
            "api",
            "model",
            "source",
            "target",
            "quick",
            "src_unit",
            "tgt_unit",
            "max_tokens",
            "seed",
        )
        facts = {name: getattr(self, name) for name in names}
        return facts | {"timeout_s": self.timeout_s, "sentences": hashlib.sha256(content).hexdigest()[:16]}


def _parts_of(url: str) -> SplitResult | None:
    """Return the parts of an address; None for a text that is none."""
    try:
        parts = urlsplit(url)
        parts.port  # noqa: B018 - raises for a port that is none
    except ValueError:
        return None
    return parts


def choose_sentences(settings: EndpointSettings) -> list[str]:
    """Return the sentences to send, from short to long. Raises `CalibrationError` for a text with too few different ones."""
    path = Path(settings.text)
    try:
        text = read_bounded(path, MOST_TEXT_BYTES).decode("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or "no UTF-8 text"
        raise CalibrationError(
            f"cannot read the text: {why}", path=path, remedy="name a text file, one sentence a line"
        ) from None
    counters = settings.counters()
    length = len if counters is None else counters[0][1]
    lines = sorted({line.strip() for line in text.split("\n") if line.strip()}, key=lambda line: (length(line), line))
    if len(lines) < LEAST_SENTENCES:
        what = f"{len(lines)} different sentences do not determine a plane"
        raise CalibrationError(what, path=path, remedy=f"give a text with {LEAST_SENTENCES} or more, of different lengths")
    count = min(QUICK_SENTENCES if settings.quick else SENTENCES, len(lines))
    return [lines[rank] for rank in np.linspace(0, len(lines) - 1, count).round().astype(int)]
