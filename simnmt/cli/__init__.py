"""The verbs of the command line. A verb parses, calls the library and prints; nothing is decided here.

To read it, start with `app.py` (all verbs, loaded when they are used), then `scenarios.py` (run, sweep, plan) and `terminal.py`
(how errors, warnings and records are printed).
"""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command line and exit with its status."""
    try:
        from simnmt.cli.app import main as run
    except KeyboardInterrupt:  # before anything began that could be half done
        sys.exit(130)
    run()
