"""Write the reference of all commands from the definitions of the command line: python docs/reference.py

One page for each command in ``docs/reference/``, and one man page in ``docs/man/``. ``tests/test_docs.py`` fails if a
page is not what this writes.
"""

from __future__ import annotations

import os
import re
import textwrap
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import envsolve
from envsolve.cli import main

HERE = Path(__file__).parent / "reference"
MAN = Path(__file__).parent / "man"
#: Pages of a command that are not named after it.
DETAILS = {"index": "index-command", "run": "fleet"}
EXIT_CODES = """\
| exit code | meaning |
|---:|---|
| 0 | done |
| 1 | anything else went wrong |
| 2 | wrong usage |
| 3 | nothing fits |
| 4 | a check failed, nothing could be checked, or an install would harm torch |
| 5 | an index or the network failed |
"""
ERRORS = """\
With `--format json`, a command that fails before it has a result prints `envsolve.error/1` on standard output.
The message also goes to standard error, and the exit code is the same as without the option.

```json
{
  "exit_code": 2,
  "hint": "write torch; --allow-unknown-names takes the name as it is",
  "kind": "usage",
  "message": "trch: did you mean torch?",
  "schema": "envsolve.error/1"
}
```

| field | |
|---|---|
| `kind` | `usage`, `impossible`, `check-failed`, `index-unavailable`, `interrupted` or `failure` |
| `message` | what happened |
| `hint` | what to do, or `null` |
| `exit_code` | as in the table above; `interrupted` has 128 plus the number of the signal |

A command that has a result prints only that, whatever its exit code: a plan of status `impossible` holds its conflict.
"""


def pages() -> Mapping[str, str]:
    """Return the text of every page by its file name."""
    app = main._app()
    commands = {name: app.get_command(None, name) for name in app.list_commands(None)}
    found = {f"{name}.md": "\n".join(_page(name, command)) for name, command in commands.items()}
    rows = [f"| [{name}]({name}.md) | {_sentence(command)} |" for name, command in commands.items()]
    lines = [
        "# Commands",
        "",
        "Generated from the definitions of the command line; `envsolve COMMAND --help` prints the same.",
        "",
        *("| command | |", "|---|---|", *rows, ""),
        *("## Options of every command", "", *_table(app), ""),
        *("## Exit codes", "", EXIT_CODES),
        *("## Errors as JSON", "", ERRORS),
    ]
    return {"commands.md": "\n".join(lines), **found}


def _page(name: str, command: Any) -> Iterator[str]:
    yield from (f"# envsolve {name}", "")
    subcommands = getattr(command, "commands", None)
    if subcommands is None:
        yield from _command(f"envsolve {name}", command)
    else:
        yield from (_escaped(command.help or ""), "")
        for subname, subcommand in subcommands.items():
            yield from (f"## {name} {subname}", "")
            yield from _command(f"envsolve {name} {subname}", subcommand)
    details = DETAILS.get(name, name)
    if (HERE.parent / f"{details}.md").exists():
        yield f"Outputs, examples and details: [{name}](../{details}.md)."
    yield "All commands, their common options and exit codes: [commands](commands.md)."
    yield ""


def _command(path: str, command: Any) -> Iterator[str]:
    arguments = [one for one in command.params if one.param_type_name == "argument"]
    usage = " ".join([path, "[OPTIONS]", *(_metavar(command, one) for one in arguments)])
    yield from (f"    {usage}", "", _escaped(command.help or ""), "")
    described = [(one.make_metavar(_context(command)), one.help) for one in arguments if getattr(one, "help", None)]
    if described:
        yield from ("| argument | |", "|---|---|")
        yield from (f"| `{_cell(name)}` | {_cell(_escaped(text))} |" for name, text in described)
        yield ""
    yield from _table(command)
    yield ""


def _metavar(command: Any, argument: Any) -> str:
    name = argument.make_metavar(_context(command)).removesuffix("...") + ("..." if argument.nargs == -1 else "")
    return name if argument.required else f"[{name}]"


def _table(command: Any) -> Iterator[str]:
    yield from ("| option | |", "|---|---|")
    for parameter in command.params:
        record = parameter.get_help_record(_context(command)) if parameter.param_type_name == "option" else None
        if record is not None:
            names, text = record
            yield f"| `{_cell(' '.join(names.split()))}` | {_cell(_escaped(' '.join(text.split())))} |"


def _context(command: Any) -> Any:
    # As wide as a table cell can be, so that nothing is cut or wrapped.
    return command.context_class(command, terminal_width=10_000, max_content_width=10_000)


def man_pages() -> Mapping[str, str]:
    """Return the text of every man page by its file name."""
    app = main._app()
    commands = {name: app.get_command(None, name) for name in app.list_commands(None)}
    rows = [(f"envsolve-{name}(1)", _sentence(command)) for name, command in commands.items()]
    summary = [".SH COMMANDS", *_tagged(rows)]
    found = {
        "envsolve.1": "\n".join([*_man("envsolve", app, [".B envsolve", "COMMAND [OPTIONS]"]), *summary, *_ending()])
    }
    for name, command in commands.items():
        parts = getattr(command, "commands", None)
        if parts is None:
            lines = _man(f"envsolve-{name}", command, _synopsis(f"envsolve {name}", command))
        else:
            synopsis = [
                line for part, one in parts.items() for line in (".br", *_synopsis(f"envsolve {name} {part}", one))
            ]
            lines = _man(f"envsolve-{name}", command, synopsis[1:], options=False)
            for part, one in parts.items():
                lines += [f".SH {_roff(f'{name} {part}').upper()}", *_paragraphs(one.help), *_tagged(_parameters(one))]
        found[f"envsolve-{name}.1"] = "\n".join([*lines, *_ending()])
    return found


def _man(page: str, command: Any, synopsis: list[str], options: bool = True) -> list[str]:
    # Without a date: the pages change only if the command line does.
    head = f'.TH {_roff(page).upper()} 1 "" "envsolve {envsolve.__version__}" "User commands"'
    name = _roff(f"{page} - {_sentence(command).rstrip('.')}").replace("\n", " ")
    lines = [head, ".SH NAME", name, ".SH SYNOPSIS", *synopsis, ".SH DESCRIPTION", *_paragraphs(command.help)]
    return [*lines, ".SH OPTIONS", *_tagged(_parameters(command))] if options else lines


def _synopsis(path: str, command: Any) -> list[str]:
    arguments = (_metavar(command, one) for one in command.params if one.param_type_name == "argument")
    return [f".B {_roff(path)}", _roff(" ".join(["[OPTIONS]", *arguments]))]


def _parameters(command: Any) -> Iterator[tuple[str, str]]:
    context = _context(command)
    for one in command.params:
        if one.param_type_name == "argument":
            yield one.make_metavar(context), one.help or ""
        elif record := one.get_help_record(context):
            yield record


def _tagged(rows: Iterable[tuple[str, str]]) -> Iterator[str]:
    for tag, text in rows:
        yield from (".TP", f".B {_roff(' '.join(tag.split()))}", _roff(" ".join(text.split())))


def _paragraphs(text: str | None) -> list[str]:
    parts = (" ".join(part.split()) for part in (text or "").split("\n\n"))
    return "\n.PP\n".join(_roff(part) for part in parts if part).split("\n")


def _ending() -> Iterator[str]:
    codes = re.findall(r"^\| (\d) \| (.*) \|$", EXIT_CODES, re.MULTILINE)
    yield from (".SH EXIT STATUS", *_tagged(codes), ".SH SEE ALSO", ".BR envsolve (1)", "")


def _roff(text: str) -> str:
    text = re.sub(r"\\([<*])", r"\1", text).replace("\\", "\\e").replace("-", "\\-")
    text = re.sub(r"`([^`]*)`", r"\\fB\1\\fR", text)
    lines = textwrap.wrap(text, 78, break_on_hyphens=False, break_long_words=False)
    # A dot or a quote at the start of a line would begin a request.
    return "\n".join(f"\\&{line}" if line.startswith((".", "'")) else line for line in lines)


def _sentence(command: Any) -> str:
    return _escaped(" ".join((command.help or "").split("\n\n")[0].split()))


def _escaped(text: str) -> str:
    text = re.sub(r"[<*]", r"\\\g<0>", text) if "`" not in text else text
    return re.sub(r"(?<!\n)\n(?!\n)", " ", text).strip()


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


if __name__ == "__main__":
    os.environ.pop("COLUMNS", None)
    for directory, written in ((HERE, pages()), (MAN, man_pages())):
        directory.mkdir(exist_ok=True)
        for old in directory.iterdir():
            if old.name not in written:
                old.unlink()
        for file, page in written.items():
            (directory / file).write_text(page, encoding="utf-8")
