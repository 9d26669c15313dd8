"""The `nas` command: registers the commands; the one place that prints errors and sets exit codes.

Exit codes: 0 done; 1 the search ended and could not publish (the reason is the last line);
2 something the user can mend; 3 unexpected; 130 interrupted.
"""

from __future__ import annotations

import io
import sys
import traceback

import typer

from nas.cli import audit, bench, calibrate, compile, devices, doctor, export, init, profile, search, spaces, tune
from nas.cli import explain as explain_command
from nas.errors import NasError

app = typer.Typer(
    name="nas",
    help="Finds neural networks that meet a latency budget on a device, by compiling and measuring each.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
app.command("search")(search.search)
app.command("profile")(profile.profile)
app.command("doctor")(doctor.doctor)
app.command("devices")(devices.devices)
app.command("audit")(audit.audit)
app.command("explain")(explain_command.explain)
app.command("spaces")(spaces.spaces)
app.command("init")(init.init)
app.command("tune")(tune.tune)
app.command("compile")(compile.compile_)
app.command("export")(export.export)
app.command("calibrate")(calibrate.calibrate)
app.add_typer(bench.app, name="bench")


def main() -> None:
    """Entry point of the console script."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal without the character gets a question mark
    try:
        app()
    except Exception as error:  # the process boundary: every error ends here, in one line or a traceback
        sys.exit(report(error))


def report(error: Exception) -> int:
    """Prints an error and gives the exit code: one line for what a user can mend, else everything."""
    if is_mendable(error):
        print(f"nas: {explain(error)}", file=sys.stderr)
        return 2
    traceback.print_exception(error)
    print(f"nas: unexpected {type(error).__name__}: {error}; this is a bug in nas, please report it", file=sys.stderr)
    return 3


def explain(error: Exception) -> str:
    """The message for people; the operating system's errors name their file and get some advice.

    >>> explain(OSError(28, "No space left on device", "results/a"))
    'results/a: No space left on device; mend that, then run the same command again: finished work is kept'
    """
    if isinstance(error, OSError) and error.strerror is not None:
        where = f"{error.filename}: " if error.filename is not None else ""
        return f"{where}{error.strerror}; mend that, then run the same command again: finished work is kept"
    return str(error)


def is_mendable(error: Exception) -> bool:
    """Whether the message is meant for the user: bad input, a broken file, a full disk."""
    from nas.training.task import TaskError
    from profilers.errors import ProfilerError
    from search_spaces.candidate import CandidateError

    return isinstance(error, (NasError, TaskError, ProfilerError, CandidateError, OSError))
