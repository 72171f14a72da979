"""Results of RIPE Atlas fetched from its REST API, kept as they were received with their digest.

Addresses and parameters are those of RIPE NCC's reference (atlas.ripe.net/docs/apis/rest-api-reference): results are public
unless the measurement's owner says otherwise; a key goes into the header `Authorization: Key ...`.
"""

from __future__ import annotations

import ipaddress
import json
import time
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit

from simnmt.files import read_bounded
from simnmt.network.errors import TraceError
from simnmt.network.foreign_text import named, quoted
from simnmt.network.http_get import get
from simnmt.network.results_cache import Cache, Kept
from simnmt.network.traces.how_to_read import HowToRead, Reply
from simnmt.network.traces.readings import Trace, mended
from simnmt.network.traces.ripe_atlas import read_ripe_atlas

BASE_URL = "https://atlas.ripe.net"
KINDS = ("ping", "traceroute")
LONGEST_KEY = 200


@dataclass(frozen=True, slots=True)
class Query:
    """Results of one probe and one measurement between two moments. Raises `TraceError` for what makes no sense."""

    measurement: int
    probe: int
    start_s: int
    """Unix time."""
    stop_s: int
    base_url: str = BASE_URL

    def __post_init__(self) -> None:
        for option, number in (("--measurement", self.measurement), ("--probe", self.probe)):
            if number < 1:
                raise TraceError(f"{option} {number}: is no number of RIPE Atlas", remedy="give 1 or more")
        if self.stop_s <= self.start_s:
            raise TraceError(f"--stop {day(self.stop_s)} is not after --start {day(self.start_s)}", remedy="swap them")
        try:
            parts = urlsplit(self.base_url)
            bare = not (parts.query or parts.fragment or parts.username)
            usable = parts.scheme in ("http", "https") and parts.hostname and bare and parts.port != 0  # raises for no number
        except ValueError:
            usable = False
        if not usable:
            raise TraceError(f"--base-url {named(self.base_url)}: is no address of a web site", remedy=f"such as {BASE_URL}")

    @property
    def url(self) -> str:
        """Where the API has them."""
        asked = {"probe_ids": self.probe, "start": self.start_s, "stop": self.stop_s, "format": "json"}
        return f"{self.base_url.rstrip('/')}/api/v2/measurements/{self.measurement}/results/?{urlencode(asked)}"

    def __str__(self) -> str:
        return f"measurement {self.measurement}, probe {self.probe}, {day(self.start_s)} to {day(self.stop_s)}"


@dataclass(frozen=True, slots=True, eq=False)
class Fetched:
    """The series of a query, and where it came from."""

    trace: Trace
    kept: Kept
    from_cache: bool
    said: tuple[str, ...]
    """What a user should know of the way, a sentence each."""

    @property
    def notes(self) -> dict[str, str]:
        """For the head of a file."""
        return {"fetched": f"{self.kept.url} at {self.kept.fetched}", "sha256": self.kept.sha256}


def read_key(path: Path) -> str:
    """The API key that is all a file holds. Raises `TraceError`, which never shows it."""
    try:
        key = read_bounded(path, 2 * LONGEST_KEY, pipes=True).decode("ascii").strip()
    except OSError as error:
        raise TraceError(f"cannot be read: {error.strerror}", path=path, remedy="check the path") from None
    except UnicodeDecodeError:
        key = ""
    if not 0 < len(key) <= LONGEST_KEY or not key.isprintable() or " " in key:
        raise TraceError("is no API key", path=path, remedy="give a file that holds the key and nothing else")
    return key


def fetch(query: Query, cache: Cache | None = None, *, key: str | None = None, how: HowToRead | None = None) -> Fetched:
    """The round trips of a query, from the cache where it has them whole, else from the API.

    Raises `TraceError` where they cannot be had, or are none.
    """
    if key is not None and not _private(query.base_url):
        raise TraceError("an API key would be sent without encryption", remedy="give a --base-url that begins with https")
    said: list[str] = []
    reply = (how or HowToRead()).reply
    if cache and (found := cache.find(query.url, until_s=query.stop_s, said=said)):
        kept, raw = found
        return Fetched(_trace(query, raw, reply), kept, True, tuple(said))
    raw = get(query.url, _what_went_wrong(query, key is not None), {"Authorization": f"Key {key}"} if key else {})
    trace = _trace(query, raw, reply)  # before it is kept: what cannot be used must not be found next time
    kept = Kept.of(query.url, raw, datetime.now(timezone.utc).isoformat(sep=" ", timespec="seconds"))
    if cache:
        cache.keep(kept, raw)
    if query.stop_s > time.time():
        said.append("--stop lies ahead: results that come until then are not in it")
    return Fetched(trace, kept, False, tuple(said))


def _trace(query: Query, raw: bytes, reply: Reply) -> Trace:
    source = Path(f"RIPE Atlas {query}")
    how = HowToRead(reply=reply, probe=query.probe, measurement=query.measurement)
    return mended(read_ripe_atlas(source, _checked(query, raw), how)[0], source)


def day(unix_s: int) -> str:
    """A moment in UTC."""
    try:
        moment = datetime.fromtimestamp(unix_s, timezone.utc)
    except (ValueError, OverflowError, OSError):
        return str(unix_s)
    return moment.strftime("%Y-%m-%dT%H:%MZ")


def _checked(query: Query, raw: bytes) -> str:
    """The text of an answer; complains of what is no list of results of a ping or a traceroute."""
    try:
        text = raw.decode("utf-8")
        results = json.loads(text)
    except (ValueError, RecursionError):
        what = "a page instead of results" if raw.lstrip()[:1] == b"<" else "what is no JSON, perhaps cut off on its way"
        raise TraceError(f"{_site(query)} sent {what}", remedy="try again, or check --base-url") from None
    if not isinstance(results, list):
        raise TraceError(f"{_site(query)} sent no list of results", remedy="check --base-url")
    if not results:
        raise TraceError(f"{query}: no results", remedy="check when the probe took part in the measurement")
    for result in results:
        kind = result.get("type") if isinstance(result, dict) else None
        if kind is not None and kind not in KINDS:
            what = f"measurement {query.measurement} is of type {quoted(kind)}"
            raise TraceError(what, remedy="give one that is a ping or a traceroute")
    return text


def _what_went_wrong(query: Query, with_key: bool) -> dict[int, TraceError]:
    """The complaint for each answer that trying again would not change."""
    private = "the owner of the API key may not see it" if with_key else "give --api-key-file"
    number = f"measurement {query.measurement}"
    return {
        400: TraceError(f"{_site(query)} does not understand {query}", remedy="check the numbers and the times"),
        401: TraceError(f"{_site(query)} does not know the API key", remedy="check --api-key-file"),
        403: TraceError(f"{number} is not public", remedy=private),
        404: TraceError(f"{_site(query)} has no {number}", remedy="check --measurement"),
    }


def _site(query: Query) -> str:
    return named(urlsplit(query.base_url).netloc)


def _private(base_url: str) -> bool:
    """Whether nobody on the way can read what is sent."""
    parts = urlsplit(base_url)
    host: Any = parts.hostname or ""
    try:
        local = host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        local = False
    return parts.scheme == "https" or local
