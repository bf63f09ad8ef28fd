"""The ``envsolve`` command: its sub-commands, and how failures leave it."""

from __future__ import annotations

import io
import os
import sys

import envsolve

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import ModuleType
    from typing import Any, NoReturn

_HELP = "Plan, install and verify PyTorch, Triton and CUDA environments that run on your machine."
_EPILOG = "Every command also takes --quiet (-q), --verbose (-v) and --debug."
_ANYWHERE = {"--debug": "debug", "--quiet": "quiet", "-q": "quiet", "--verbose": "verbose", "-v": "verbose"}
#: The commands that most users need come first in the help, in the order in which they are used.
_FIRST = ("detect", "plan", "install", "verify", "diagnose", "guard")
#: Modules of this directory that are not commands.
# What other tools call it.
_GUESSES = {
    "check": "verify",
    "doctor": "diagnose",
    "fix": "diagnose --fix",
    "info": "detect",
    "list": "envs",
    "lock": "plan REQ... -o pylock.toml",
    "matrix": "builds torch",
    "repair": "diagnose --fix",
    "restore": "diagnose --restore",
    "solve": "plan",
    "test": "verify",
    "upgrade": "update",
}
# The options of envsolve.cli.options.Machines, which a command for this machine does not have.
_MACHINE_OPTIONS = ("--target", "--gpu", "--driver", "--platform", "--machine")
HELPERS = frozenset({"main", "options", "output", "remembered"})


def run(arguments: list[str] | None = None) -> NoReturn:
    """Run the command line and leave the process with the documented exit code."""
    given = sys.argv[1:] if arguments is None else list(arguments)
    if given == ["--version"]:
        # Scripts ask for it, and typer alone takes five times as long to import as the rest.
        print(f"envsolve {envsolve.__version__}")
        sys.exit(0)
    from envsolve.cli.output import SETTINGS

    _prepare_streams()
    end = given.index("--") if "--" in given else len(given)
    said = [word for word in given[:end] if word in _ANYWHERE]
    for name in set(_ANYWHERE.values()):
        setattr(SETTINGS, name, any(_ANYWHERE[word] == name for word in said))
    for word in said:
        given.remove(word)
    SETTINGS.words, SETTINGS.delivered = list(given), False
    # Read from the words themselves: an error may be that the command line cannot be parsed.
    as_json = "--format=json" in given[:end] or "\0--format\0json\0" in "\0".join(["", *given[:end], ""])
    try:
        code = _run_command(given)
    except BrokenPipeError:
        # The reader of our output went away (`| head`): nothing is wrong, and nothing more can be written.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 0
    except KeyboardInterrupt:
        code = _end("interrupted", None, 130, as_json)
    except Exception as error:
        if SETTINGS.debug:
            raise
        if "_ENVSOLVE_COMPLETE" in os.environ:
            sys.exit(1)  # a shell asks: a message would land in the middle of the line that is being typed
        code = _failed(error, as_json)
    sys.exit(code)


def _run_command(given: list[str]) -> int:
    import importlib
    import signal

    import typer

    from envsolve.cli.output import SETTINGS
    from envsolve.errors import EnvsolveError, interrupt_at_once, interrupt_once
    from envsolve.system.progress import shown

    try:
        # Commands are found by their names only, this one as well.
        app, told = _app(), importlib.import_module("envsolve.cli.config").defaults(given)
        if signal.getsignal(signal.SIGINT) in (signal.default_int_handler, interrupt_at_once):
            signal.signal(signal.SIGINT, interrupt_once)
        # Not standalone: typer's own way out does not know our errors and exit codes. It returns that of a typer.Exit.
        with shown(None if SETTINGS.quiet else sys.stderr):
            code = int(app.main(given, prog_name="envsolve", standalone_mode=False, default_map=told) or 0)
    except typer.Abort as ended:
        if isinstance(ended.__cause__, KeyboardInterrupt):
            raise ended.__cause__ from None
        raise EnvsolveError("nothing was changed") from None
    if code == 130:
        # typer ends with this code on a KeyboardInterrupt, and prints nothing.
        raise KeyboardInterrupt
    return code


def _failed(error: Exception, as_json: bool) -> int:
    """Print what happened and what to do, and return the exit code."""
    import typer

    from envsolve.errors import EnvsolveError

    hint: str | None
    if isinstance(error, typer.TyperException) and type(error).__name__ == "NoArgsIsHelpError":
        # typer exports no name for it. Its message is the help of the command.
        print(error.format_message(), file=sys.stderr)
        return error.exit_code
    if isinstance(error, EnvsolveError):
        message, hint, code = error.message, error.hint, error.exit_code
    elif isinstance(error, typer.TyperException):
        context = getattr(error, "ctx", None)
        command = context.command_path if context else "envsolve"
        message, hint, code = error.format_message().rstrip("."), f"see {command} --help", error.exit_code
        message = message[:1].lower() + message[1:]
        if type(error).__name__ == "NoSuchOption" and (name := getattr(error, "option_name", "")) in _MACHINE_OPTIONS:
            message = f"{command} works only for this machine, so it has no option {name}"
            hint = (
                f"to plan for another machine: envsolve plan torch {name} ... -o "
                f"pylock.toml; then install the lock on that machine"
            )
    elif isinstance(error, OSError) and error.filename is not None and error.strerror:
        # A full disk, a mode or a name in the way is not a defect of the program.
        message, hint, code = f"{error.filename}: {error.strerror}", "correct the path, or give another one", 1
    else:
        message = f"unexpected failure: {type(error).__name__}: {error}"
        hint, code = (
            "this is a bug in envsolve: run the command again with --debug, and "
            "report its output together with that of `envsolve report`",
            1,
        )
    return _end(message, hint, code, as_json)


def _end(message: str, hint: str | None, code: int, as_json: bool) -> int:
    """Print an error for people, and for programs if they asked for JSON and have none yet; return the exit code."""
    from envsolve.cli.output import SETTINGS, deliver, say

    if "@" in message:  # of a URL in the place of another setting, too
        from envsolve.packages.urls import without_logins

        message = without_logins(message)
    say(f"envsolve: {message}" + (f"\n  what to do: {hint}" if hint else ""))
    if as_json and not SETTINGS.delivered:
        from contextlib import suppress

        from envsolve.errors import KINDS, EnvsolveError
        from envsolve.system.files import dump

        kind = KINDS.get(code, "interrupted" if code > 128 else "failure")
        value = {"schema": "envsolve.error/1", "kind": kind, "message": message, "hint": hint, "exit_code": code}
        with suppress(EnvsolveError):  # nothing can be written to a full disk; the message above is out
            deliver(dump(value), None)
    return code


def _app() -> Any:
    """Build the command; a sub-command's module is imported only if it is run, or its help is shown."""
    import importlib
    import pkgutil

    import typer
    from typer._completion_classes import completion_init
    from typer.core import TyperGroup
    from typer.main import get_command

    from envsolve import cli
    from envsolve.cli.options import expanded
    from envsolve.cli.output import SETTINGS
    from envsolve.errors import UsageError

    # No markup and no rich tracebacks: both take brackets, as in package extras, for styles.
    plain: dict[str, Any] = {"rich_markup_mode": None, "pretty_exceptions_enable": False}
    help_names = {"help_option_names": ["-h", "--help"]}

    def sub_command(module: ModuleType, name: str) -> Any:
        if hasattr(module, "COMMANDS"):
            app = typer.Typer(help=module.HELP, no_args_is_help=True, add_completion=False, **plain)
            for function in module.COMMANDS:
                app.command(epilog=_EPILOG)(expanded(function))
        else:
            app = typer.Typer(add_completion=False, **plain)
            app.command(epilog=_EPILOG)(expanded(module.command))
        command = get_command(app)
        command.name = name
        return command

    class Modules(TyperGroup):
        """Every module of this directory but the helpers is a command: adding a command is adding a file."""

        def list_commands(self, ctx: Any) -> list[str]:
            names = (module.name for module in pkgutil.iter_modules(cli.__path__))
            found = [name.replace("_", "-") for name in names if name not in HELPERS]
            return [*_FIRST, *(name for name in found if name not in _FIRST)]

        def get_command(self, ctx: Any, cmd_name: str) -> Any:
            if cmd_name not in self.list_commands(ctx):
                from difflib import get_close_matches

                close = get_close_matches(cmd_name, self.list_commands(ctx), 1)
                meant = _GUESSES.get(cmd_name) or next(iter(close), None)
                hint = f"did you mean: envsolve {meant}" if meant else "envsolve --help lists the commands"
                raise UsageError(f"envsolve has no command {cmd_name}", hint=hint)
            return sub_command(importlib.import_module(f"{cli.__name__}.{cmd_name.replace('-', '_')}"), cmd_name)

    def show_version(wanted: bool) -> None:
        if wanted:
            print(f"envsolve {envsolve.__version__}")
            if SETTINGS.verbose:
                print("\n".join(installation()))
            raise typer.Exit

    # The options that typer adds do what `envsolve completion` does, but for the first Tab in zsh.
    completion_init()
    app = typer.Typer(
        cls=Modules, help=_HELP, no_args_is_help=True, add_completion=False, context_settings=help_names, **plain
    )

    @app.callback()
    def options(
        debug: bool = typer.Option(False, "--debug", help="Show tracebacks."),
        quiet: bool = typer.Option(False, "--quiet", "-q", help="Print only results and errors."),
        verbose: bool = typer.Option(False, "--verbose", "-v", help="Print more about what envsolve does, and why."),
        version: bool = typer.Option(
            False, "--version", callback=show_version, is_eager=True, help="Show the version and exit."
        ),
    ) -> None:
        # The first three are taken wherever they are on the line; they are declared for the help.
        pass

    return get_command(app)


def installation() -> list[str]:
    """Facts about this installation for a bug report; nothing that names its user."""
    import platform
    from importlib.metadata import PackageNotFoundError, requires, version

    from packaging.requirements import Requirement

    from envsolve.facts.catalogue import Catalogue

    lines = [f"Python {platform.python_version()}, {platform.python_implementation()}, {platform.platform()}"]
    catalogue = Catalogue()
    lines.append(
        f"catalogue of {catalogue.date}" + (f", your own facts of {catalogue.own_date}" if catalogue.own_date else "")
    )
    for text in requires("envsolve") or ():
        wanted = Requirement(text)
        if wanted.marker is None or wanted.marker.evaluate({"extra": ""}):
            try:
                lines.append(f"{wanted.name} {version(wanted.name)}")
            except PackageNotFoundError:
                lines.append(f"envsolve requires {text}, which is not installed")
    return lines


class _Remarks(io.TextIOWrapper):
    """Standard error on which no text of others commands a terminal: log records, warnings and tracebacks included."""

    def write(self, text: str, /) -> int:
        from envsolve.system.limits import printable

        super().write(printable(text))
        return len(text)

    def command(self, text: str) -> None:
        """Write envsolve's own escape sequences."""
        super().write(text)

    def close(self) -> None:
        """Leave the file descriptor open: it is that of the process."""
        self.flush()


def _prepare_streams() -> None:
    """Write escapes for what the terminal's encoding lacks or would obey, and nothing to a closed stderr."""
    from pathlib import Path

    if sys.stderr is None:
        sys.stderr = Path(os.devnull).open("w")  # noqa: SIM115 - for the life of the process
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    error = sys.stderr
    if error is sys.__stderr__ and type(error) is io.TextIOWrapper:
        sys.stderr = _Remarks(error.buffer, error.encoding, error.errors, line_buffering=error.line_buffering)
