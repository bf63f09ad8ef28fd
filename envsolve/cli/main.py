"""The ``envsolve`` command: its sub-commands, and how failures leave it."""

from __future__ import annotations

import importlib
import io
import os
import pkgutil
import signal
import sys
from pathlib import Path
from typing import Annotated, NoReturn

import typer

import envsolve
from envsolve import cli
from envsolve.cli.output import SETTINGS
from envsolve.errors import EnvsolveError

_EPILOG = "Every command takes --quiet (-q), --verbose (-v) and --debug, too."
_ANYWHERE = {"--debug": "debug", "--quiet": "quiet", "-q": "quiet", "--verbose": "verbose", "-v": "verbose"}

app = typer.Typer(
    name="envsolve",
    help="Plan, install and prove PyTorch, Triton and CUDA environments that run on the machine at hand.",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(wanted: bool) -> None:
    if wanted:
        print(f"envsolve {envsolve.__version__}")
        raise typer.Exit


@app.callback()
def _common(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and exit.")
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show tracebacks.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Only results and errors.")] = False,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="More of what is done, and why.")] = False,
) -> None:
    """Options that every command takes."""


def _add_commands() -> None:
    """Every module of this folder that has a ``command`` is one; adding a command is adding a file."""
    for module in pkgutil.iter_modules(cli.__path__):
        found = importlib.import_module(f"{cli.__name__}.{module.name}")
        if hasattr(found, "command"):
            app.command(module.name.replace("_", "-"), epilog=_EPILOG)(found.command)
        elif hasattr(found, "commands"):
            for below in found.commands.registered_commands:
                below.epilog = _EPILOG
            app.add_typer(found.commands, name=module.name)


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


def run(arguments: list[str] | None = None) -> NoReturn:
    """Run the command line and leave the process with the documented exit code."""
    _prepare_streams()
    signal.signal(signal.SIGINT, _interrupted)
    given = list(sys.argv[1:] if arguments is None else arguments)
    end = given.index("--") if "--" in given else len(given)
    for word in [word for word in given[:end] if word in _ANYWHERE]:
        given.remove(word)
        setattr(SETTINGS, _ANYWHERE[word], True)
    _add_commands()
    try:
        app(given, prog_name="envsolve")
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
        print(f"envsolve: unforeseen failure: {type(error).__name__}: {error}", file=sys.stderr)
        print("  what to do: run it again with --debug and report what it shows", file=sys.stderr)
        sys.exit(1)
    sys.exit(0)
