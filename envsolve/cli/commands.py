"""The ``envsolve`` command: its sub-commands, and how failures leave it."""

from __future__ import annotations

import importlib
import io
import os
import pkgutil
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

import click

import envsolve
from envsolve import cli
from envsolve.cli import declare
from envsolve.cli.output import SETTINGS
from envsolve.errors import EnvsolveError

_EPILOG = "Every command takes --quiet (-q), --verbose (-v) and --debug, too."
_ANYWHERE = {"--debug": "debug", "--quiet": "quiet", "-q": "quiet", "--verbose": "verbose", "-v": "verbose"}


#: Modules of this folder that are no commands, besides those that begin with an underscore.
HELPERS = frozenset({"commands", "declare", "main", "options", "output", "plan_output"})


class _Modules(click.Group):
    """Every other module of this folder has a ``command``, or ``commands``; adding a command is adding a file.

    Only the one that is asked for is imported.
    """

    def list_commands(self, ctx: click.Context) -> list[str]:
        names = [module.name for module in pkgutil.iter_modules(cli.__path__)]
        return [name.replace("_", "-") for name in names if name not in HELPERS and not name.startswith("_")]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        name = cmd_name.replace("-", "_")
        if cmd_name not in self.list_commands(ctx):
            return None
        module = importlib.import_module(f"{cli.__name__}.{name}")
        if hasattr(module, "command"):
            return declare.build(module.command, cmd_name, _EPILOG)
        group: click.Group = module.commands.build(cmd_name, _EPILOG)
        return group


app = _Modules(
    help="Plan, install and prove PyTorch, Triton and CUDA environments that run on the machine at hand.",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    params=[
        click.Option(["--debug"], is_flag=True, expose_value=False, help="Show tracebacks."),
        click.Option(["-q", "--quiet"], is_flag=True, expose_value=False, help="Only results and errors."),
        click.Option(["-v", "--verbose"], is_flag=True, expose_value=False, help="More of what is done, and why."),
    ],
)
click.version_option(envsolve.__version__, message="envsolve %(version)s")(app)


def _prepare_streams() -> None:
    """Print what the terminal's encoding lacks as escapes, and remarks for a closed stderr nowhere."""
    if sys.stderr is None:
        sys.stderr = Path(os.devnull).open("w")  # noqa: SIM115 - for the life of the process
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _interrupted(number: int, frame: object) -> NoReturn:
    print("envsolve: interrupted", file=sys.stderr)
    raise KeyboardInterrupt


def run_command(arguments: Sequence[str]) -> NoReturn:
    """Run the command that a command line names, and leave the process with the documented exit code."""
    _prepare_streams()
    signal.signal(signal.SIGINT, _interrupted)
    given = list(arguments)
    end = given.index("--") if "--" in given else len(given)
    for word in [word for word in given[:end] if word in _ANYWHERE]:
        given.remove(word)
        setattr(SETTINGS, _ANYWHERE[word], True)
    try:
        # Not standalone: click's own ways out know neither our errors nor our exit codes. It returns that of an Exit.
        sys.exit(app.main(given, prog_name="envsolve", standalone_mode=False) or 0)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except click.Abort as ended:
        if isinstance(ended.__cause__, KeyboardInterrupt):
            sys.exit(130)
        print("envsolve: nothing was changed", file=sys.stderr)
        sys.exit(1)
    except EnvsolveError as error:
        if SETTINGS.debug:
            raise
        print(f"envsolve: {error.message}", file=sys.stderr)
        if error.hint:
            print(f"  what to do: {error.hint}", file=sys.stderr)
        sys.exit(error.exit_code)
    except BrokenPipeError:
        # The reader of our output went away (`| head`): nothing is wrong, and nothing more can be written.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)
    except KeyboardInterrupt:
        sys.exit(130)
    except Exception as error:
        if SETTINGS.debug:
            raise
        what, hint = _unforeseen(error)
        print(f"envsolve: {what}\n  what to do: {hint}", file=sys.stderr)
        sys.exit(1)


def _unforeseen(error: Exception) -> tuple[str, str]:
    """What happened, and what to do: that a disk, a mode or a name stands in the way is no fault of the program."""
    if isinstance(error, OSError) and error.filename is not None and error.strerror:
        return f"{error.filename}: {error.strerror}", "see to that, or name another place"
    return f"unforeseen failure: {type(error).__name__}: {error}", "run it again with --debug and report what it shows"
