"""Write the reference of all commands from the definitions of the command line: python docs/reference.py

One page for each command in ``docs/reference/``. ``tests/test_docs.py`` fails if a page is not what this writes.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from envsolve.cli import main

HERE = Path(__file__).parent / "reference"
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
  "hint": "write torch; --allow-unknown-names plans the name as it is",
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


def _sentence(command: Any) -> str:
    return _escaped(" ".join((command.help or "").split("\n\n")[0].split()))


def _escaped(text: str) -> str:
    text = re.sub(r"[<*]", r"\\\g<0>", text) if "`" not in text else text
    return re.sub(r"(?<!\n)\n(?!\n)", " ", text).strip()


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


if __name__ == "__main__":
    os.environ.pop("COLUMNS", None)
    HERE.mkdir(exist_ok=True)
    written = pages()
    for old in HERE.glob("*.md"):
        if old.name not in written:
            old.unlink()
    for file, page in written.items():
        (HERE / file).write_text(page, encoding="utf-8")
