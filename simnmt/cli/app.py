"""The command line's frame: the verbs by name, and the one place where errors become a line and an exit status.

Exit status: 0 fine, 1 our fault, 2 the input's fault, 3 a demanded level was missed, 4 a sweep ended partly, 130 interrupted,
143 terminated (docs/reference/command-line.md).
"""

from __future__ import annotations

import errno
import importlib
import math
import os
import re
import signal
import sys
import time
import warnings
from contextlib import suppress
from functools import cache
from typing import Annotated, Any

import typer
import typer.main
from typer.core import TyperCommand

from simnmt.base import VERSION
from simnmt.base.errors import Interrupted, SimnmtError
from simnmt.base.files import NO_ROOM, release_standard_output
from simnmt.base.packages import named_if_missing
from simnmt.cli.options import flag, option
from simnmt.cli.terminal import cleaned_streams, complaint_line, set_verbosity

_VERBS = {
    "run": "scenarios.run",
    "compare": "scenarios.compare",
    "sweep": "scenarios.sweep",
    "plan": "scenarios.plan",
    "init": "scenarios.init",
    "schema": "scenarios.schema",
    "calibrate": "calibrate.calibrate",
    "doctor": "calibrate.doctor",
    "profile": "calibrate.app",
    "corpus": "corpus.app",
    "reproduce": "reproduce.app",
    "traffic": "trace.traffic",
    "trace": "trace.app",
    "nmt": "nmt.app",
    "kernels": "kernels.app",
    "sti": "sti.app",
    "vocab": "vocab.app",
    "live": "live.app",
    "validate": "live.validate",
}
"""Module and object of each verb, in the order of the help; a `typer.Typer` holds verbs below it."""


class Verb(TyperCommand):
    """A verb whose help lists the options under the headings that `options.option(group=...)` begins."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write the arguments and the groups of options."""
        heading, groups = "Options", dict[str, list[tuple[str, str]]]()
        for parameter in self.get_params(ctx):
            record, is_argument = parameter.get_help_record(ctx), parameter.param_type_name == "argument"
            heading = "Options" if is_argument else getattr(parameter, "rich_help_panel", None) or heading
            if record is not None:
                name = re.sub(r" <[\w\[\]]+>$", "", record[0]) if is_argument else record[0]  # typer adds the type
                groups.setdefault("Arguments" if is_argument else heading, []).append((name, record[1]))
        for title, records in groups.items():
            with formatter.section(title):
                formatter.write_dl(records)


def application(verb: str = "") -> typer.Typer:
    """Return the command line with one verb, or with all if `verb` names none."""
    app = typer.Typer(
        name="simnmt",
        help="Where should neural machine translation run: on the edge gateway or on the cloud server?",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(_top)
    for name in [verb] if verb in _VERBS else _VERBS:
        module, _, member = _VERBS[name].partition(".")
        implementation = getattr(importlib.import_module(f"simnmt.cli.{module}"), member)
        if isinstance(implementation, typer.Typer):
            for below in implementation.registered_commands:
                below.cls = Verb if below.cls is TyperCommand else below.cls
            app.add_typer(implementation, name=name)
        else:
            app.command(name, cls=Verb)(implementation)
    return app


@cache
def _parser(verb: str) -> Any:
    """Return the parser of one verb: that of all takes 0.15 s to build, more than many a verb takes to run."""
    command: Any = typer.main.get_command(application(verb))
    messages = [parameter for parameter in command.params if parameter.name in ("quiet", "verbose")]
    for message_option in messages:
        message_option.expose_value = False  # the functions of the verbs do not take them
    below = list(command.commands.values())
    for one in below:  # these options may stand behind each verb too
        one.params += messages
        below += getattr(one, "commands", {}).values()
    return command


def _version(wanted: bool) -> None:
    if wanted:
        print(f"simnmt {VERSION}")
        raise typer.Exit


def _set_verbosity(context: typer.Context, parameter: typer.CallbackParam, given: int) -> None:
    if given:
        chosen = context.find_root().ensure_object(dict)  # an option may stand before the verb and behind it
        chosen[parameter.name] = given
        if len(chosen) > 1:
            raise typer.BadParameter("choose one of --quiet and --verbose")
        set_verbosity(**chosen)


_QUIET = "Print no notes and no progress."
_LOG = "Print a log on standard error; -vv: in detail."


def _top(
    quiet: Annotated[bool, flag("--quiet", _QUIET, "-q", callback=_set_verbosity, group="Messages")] = False,
    verbose: Annotated[int, option("", _LOG, "--verbose", "-v", count=True, callback=_set_verbosity, show_default=False)] = 0,
    version: Annotated[bool, flag("--version", "Print the version and end.", callback=_version, is_eager=True)] = False,
) -> None:
    pass


_STOPPING = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)]


def main() -> None:
    """Run the command line and exit with its status."""
    _make_streams_sure()
    warnings.formatwarning = lambda message, *place, **line: f"simnmt: warning: {message}\n"
    for number in _STOPPING:
        # Left alone where our parent wants it ignored: nohup, or a script's background job.
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _stop)
    status = _status()
    for number in _STOPPING:  # all output is written: a signal while Python exits must not change the status
        signal.signal(number, signal.SIG_IGN)
    sys.exit(status)


def _make_streams_sure() -> None:
    """Escape characters that the terminal's encoding lacks, and replace streams that were closed from the start."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            # Takes the free descriptor, lest a file opened later be written to as if it were the stream.
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_WRONLY), "w", closefd=False))
        elif hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")


_last_s = -math.inf
_last_signal: int | None = None


def _stop(number: int, frame: object) -> None:
    # An impatient second signal must not disturb what the first has begun to clear away, but a later one may.
    global _last_s, _last_signal
    before_s, _last_s, _last_signal = _last_s, time.monotonic(), number
    if _last_s - before_s > 1.0:
        raise Interrupted(number)


_INPUT_FAULTS = {
    getattr(errno, name) for name in ("ENOENT", "ENOTDIR", "EISDIR", "EACCES", "EPERM", "ELOOP", "ENAMETOOLONG", "EINVAL")
}
"""System errors for which the user's path is to blame, if no room has raised an error of its own."""


def _status() -> int:
    with cleaned_streams():
        try:
            return _run()
        finally:
            release_standard_output()


def _run() -> int:
    try:
        set_verbosity()
        verb = next((word for word in sys.argv[1:] if not word.startswith("-")), "")
        with named_if_missing():
            status = _parser(verb)(prog_name="simnmt", standalone_mode=False)
        sys.stdout.flush()
    except SimnmtError as error:
        return _complain(str(error), 1 if _is_of_full_disk(error) else error.exit_status)
    except Interrupted as stopped:
        return _interrupted(stopped.number)
    except MemoryError:
        return _complain("out of memory (run fewer --requests or --jobs)", 1)
    except BrokenPipeError:
        return _discard_output()
    except SystemExit as leaving:  # the command line library answers a closed pipe by leaving with status 1
        return _discard_output() if isinstance(leaving.__context__, BrokenPipeError) else leaving.code  # type: ignore[return-value]
    except OSError as error:  # standard output on a full disk, no more processes to be had
        if error.filename is not None and error.errno in _INPUT_FAULTS:
            return _complain(f"{os.fsdecode(error.filename)}: {error.strerror} (check the path)", 2)
        _discard_output()
        place = "" if error.filename is None else f"{os.fsdecode(error.filename)}: "
        return _complain(place + (error.strerror or str(error)), 1)
    except Exception as error:
        if _last_signal is not None:  # a library has made another exception of it
            return _interrupted(_last_signal)
        if hasattr(error, "format_message"):  # the command line library's errors about options and arguments
            return _complain(_usage(error), 2)
        raise
    return status if isinstance(status, int) else 0


def _is_of_full_disk(error: BaseException | None) -> bool:
    """Return whether an error arose from a disk without room: the input is not to blame."""
    while error is not None:
        if getattr(error, "errno", None) in NO_ROOM:
            return True
        error = error.__cause__ or error.__context__
    return False


def _interrupted(number: int) -> int:
    return _complain("interrupted; nothing is left half-written", 128 + number)


def _usage(error: Any) -> str:
    text = str(error.format_message()).replace(": Value error, ", ": ", 1)  # the prefix of typer's choices
    if text.startswith("Usage:"):
        return text
    command = error.ctx.command_path if getattr(error, "ctx", None) else "simnmt"
    return f"{text.rstrip('.')} (see {command} --help)"


def _discard_output() -> int:
    """Keep buffered output, whose reader has left, from being flushed at exit; return the status for that."""
    with suppress(OSError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 0


def _complain(text: str, status: int) -> int:
    lines = text if text.startswith("Usage:") else "\n".join(map(complaint_line, f"simnmt: {text}".split("\n")))
    print(lines, file=sys.stderr)
    return status
