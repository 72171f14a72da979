"""What was fetched, kept as it was received: one file for the bytes and one that says what they are."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path

from simnmt.files import read_bounded, written_whole
from simnmt.network.errors import TraceError
from simnmt.network.http_get import MOST_BYTES

SETTLED_S = 3600.0
"""Results may come in so long after their time: what was fetched earlier is not taken for whole."""


@dataclass(frozen=True, slots=True)
class Kept:
    """Where bytes came from, and what they were."""

    url: str
    fetched: str
    """When, in UTC."""
    sha256: str
    size_bytes: int

    @classmethod
    def of(cls, url: str, raw: bytes, fetched: str) -> Kept:
        """For bytes that have just come."""
        return cls(url, fetched, hashlib.sha256(raw).hexdigest(), len(raw))


@dataclass(frozen=True, slots=True)
class Cache:
    """A folder of answers by the address that they came from."""

    folder: Path

    def files(self, url: str) -> tuple[Path, Path]:
        """(the bytes, what they are) of an address."""
        name = hashlib.sha256(url.encode()).hexdigest()[:32]
        return self.folder / f"{name}.json", self.folder / f"{name}.manifest.json"

    def find(self, url: str, *, until_s: float, said: list[str]) -> tuple[Kept, bytes] | None:
        """What was kept of an address, where it is whole and was fetched when results until `until_s` had come.

        Why something that is there is not taken is added to `said`.
        """
        body, manifest = self.files(url)
        if not manifest.exists():
            return None
        try:
            kept = Kept(**json.loads(read_bounded(manifest)))
            raw = read_bounded(body, MOST_BYTES)
            fetched_s = datetime.fromisoformat(kept.fetched).timestamp()
            sound = (kept.url, Kept.of(url, raw, "").sha256) == (url, kept.sha256)
        except (OSError, ValueError, TypeError, AttributeError, RecursionError):
            sound = False
        if not sound:
            said.append(f"{body} is damaged: fetched anew")
            return None
        if fetched_s < until_s + SETTLED_S:
            said.append("what was kept was fetched before the last results had come: fetched anew")
            return None
        return kept, raw

    def keep(self, kept: Kept, raw: bytes) -> None:
        """Write both files, the bytes first. Raises `TraceError` where the folder cannot be written."""
        body, manifest = self.files(kept.url)
        with _told(self.folder):
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)  # results need not be public
            with written_whole(body) as partial:
                partial.write_bytes(raw)
            with written_whole(manifest) as partial:
                partial.write_text(json.dumps(asdict(kept), indent=1) + "\n", encoding="utf-8")


def usual_folder() -> Path:
    """Where a user's caches lie."""
    home = os.environ.get("XDG_CACHE_HOME") or os.environ.get("LOCALAPPDATA")
    return (Path(home) if home else Path.home() / ".cache") / "simnmt" / "ripe-atlas"


@contextmanager
def _told(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise TraceError(f"cannot be written: {error.strerror}", path=folder, remedy="choose another --cache") from None
