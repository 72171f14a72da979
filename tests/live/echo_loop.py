"""The loop of an engine's process, with an engine that answers at once in place of every model."""

from __future__ import annotations

from simnmt.live import engine_loop
from tests.live.fake_engines import load_echo


def main() -> None:
    engine_loop.load_model = load_echo
    engine_loop.main()
