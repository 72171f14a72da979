"""The command line's frame: the verbs by name, and the one place where errors become a line and an exit status.

Exit status: 0 fine, 1 our fault, 2 the input's fault, 130 interrupted.
"""

from __future__ import annotations

import os
import sys
from typing import Annotated

import typer

from simnmt import __version__
from simnmt.cli import corpus, reproduce, run, scenario
from simnmt.errors import SimnmtError

app = typer.Typer(
    name="simnmt",
    help="Where should neural machine translation run: on the edge gateway or on the cloud server?",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("run")(run.run)
app.command("init")(scenario.init)
app.command("schema")(scenario.schema)
app.add_typer(corpus.app, name="corpus")
app.add_typer(reproduce.app, name="reproduce")


def _version(wanted: bool) -> None:
    if wanted:
        print(f"simnmt {__version__}")
        raise typer.Exit


@app.callback()
def _top(
    version: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and end.")] = False,
) -> None:
    pass


def main() -> None:
    """Run the command line and exit with its status."""
    sys.exit(_status())


def _status() -> int:
    try:
        status = app(standalone_mode=False)
        sys.stdout.flush()
    except SimnmtError as error:
        return _complain(str(error), error.exit_status)
    except (typer.Abort, KeyboardInterrupt):
        return _complain("interrupted; nothing was written", 130)
    except MemoryError:
        return _complain("out of memory (run fewer --requests or --jobs)", 1)
    except BrokenPipeError:
        # Whoever read our output has had enough; what is still buffered must not complain at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except Exception as error:
        if hasattr(error, "format_message"):  # the command line library's own words about options and arguments
            return _complain(f"{error.format_message()} (see simnmt --help)", 2)
        raise
    return status if isinstance(status, int) else 0


def _complain(text: str, status: int) -> int:
    print(f"simnmt: {text}" if not text.startswith("simnmt") else text, file=sys.stderr)
    return status
