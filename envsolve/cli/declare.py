"""Commands are functions, and their signatures say what the command line takes; click does the parsing.

An option is a parameter of type ``Annotated[T, option(...)]``, a word one of ``Annotated[T, argument(...)]``; its
default is the parameter's, and the command's help the function's docstring. Typer has commands declared in the same
way, and takes a tenth of a second to import what it checks their types with.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from types import NoneType
from typing import Annotated, Any, Literal, NamedTuple, get_args, get_origin

import click

Command = Callable[..., None]


class Option(NamedTuple):
    """How an option is written and what it does; a ``list`` is one that may be repeated, a ``bool`` a flag.

    Attributes:
        names: ``("-r", "--requirement")``.
        help: One sentence.
        metavar: What stands for its value in the help.
    """

    names: tuple[str, ...]
    help: str
    metavar: str | None = None


class Argument(NamedTuple):
    """A word, or words, without an option; a ``list`` takes all that are left."""

    metavar: str
    help: str


def option(*names: str, help: str, metavar: str | None = None) -> Option:
    """An :class:`Option`, as it is written in a signature."""
    return Option(names, help, metavar)


def argument(*, metavar: str, help: str) -> Argument:
    """An :class:`Argument`, as it is written in a signature."""
    return Argument(metavar, help)


class Commands:
    """Commands below a command: ``envsolve index show``."""

    def __init__(self, help: str) -> None:
        self._help = help
        self._functions: list[Command] = []

    def add(self, function: Command) -> Command:
        """A decorator: the function is the command of its name."""
        self._functions.append(function)
        return function

    def build(self, name: str, epilog: str) -> click.Group:
        """What click runs."""
        below = {f.__name__: build(f, f.__name__, epilog) for f in self._functions}
        return click.Group(name, below, help=self._help, no_args_is_help=True)


def build(function: Command, name: str, epilog: str) -> click.Command:
    """What click runs for a function."""
    # Not typing.get_type_hints: on Python 3.10 it makes another type of one whose default is None.
    parameters = list(map(_parameter, inspect.signature(function, eval_str=True).parameters.values()))
    return click.Command(name, params=parameters, callback=function, help=inspect.getdoc(function), epilog=epilog)


def _parameter(declared: inspect.Parameter) -> click.Parameter:
    hint = declared.annotation
    kind, mark = get_args(hint) if get_origin(hint) is Annotated else (hint, None)
    kinds = [one for one in get_args(kind) if one is not NoneType] if NoneType in get_args(kind) else [kind]
    several = get_origin(kinds[0]) is list
    single = get_args(kinds[0])[0] if several else kinds[0]
    required = declared.default is inspect.Parameter.empty
    settings: dict[str, Any] = {"type": _type(single), "required": required, "help": mark.help, "metavar": mark.metavar}
    if not required and declared.default is not None:
        settings["default"] = declared.default
    if several:
        settings["callback"] = _as_list
    if isinstance(mark, Argument):
        if several and "..." not in mark.metavar:
            settings["metavar"] = f"[{mark.metavar}]..."
        return click.Argument([declared.name], nargs=-1 if several else 1, **settings)
    flag: dict[str, Any] = {"is_flag": True} if single is bool else {"multiple": several, "show_default": True}
    return click.Option([*mark.names, declared.name], **settings, **flag)


def _type(kind: Any) -> Any:
    if get_origin(kind) is Literal:
        return click.Choice(get_args(kind))
    return _Path(path_type=Path) if kind is Path else kind


class _Path(click.Path):
    """A path; an empty one is refused, since it would mean the working folder: a shell variable was not set."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """What click makes of the text."""
        if value == "":
            self.fail("the path is empty", param, ctx)
        return super().convert(value, param, ctx)


def _as_list(context: click.Context, parameter: click.Parameter, value: tuple[Any, ...]) -> list[Any] | None:
    return list(value) or None
