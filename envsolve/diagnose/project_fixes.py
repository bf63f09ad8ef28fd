"""Fixes for projects of uv, Poetry, pixi or conda: the changes to their files.

The next ``uv sync`` (``poetry install``, ``pixi install``, ``conda env update --prune``) puts back what the project
says, which undoes a command that changes only the environment.
"""

from __future__ import annotations

import dataclasses
import re
import shlex
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Literal

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from envsolve._default_index import DEFAULT_INDEX
from envsolve.diagnose.model import Fix
from envsolve.diagnose.scene import Scene
from envsolve.diagnose.signatures import search_near
from envsolve.environment.model import Environment
from envsolve.packages.commands import Argument, Command, Meaning, parse
from envsolve.packages.shell import edit, simple_commands
from envsolve.solve.preferences import DEFAULT
from envsolve.system.files import is_file

Tool = Literal["uv", "poetry", "pixi", "conda"]

#: Each tool's project commands and files, and literals of them; of two tools the one that is mentioned first here
#: counts, because pixi and Poetry projects are also installed with uv's resolver.
_WORDS: dict[Tool, tuple[re.Pattern[str], tuple[str, ...]]] = {
    "pixi": (
        re.compile(
            r"[\\/]\.pixi[\\/]envs|\bpixi (?:run|install|add|update|shell|lock)\b|\bpixi\.(?:toml|lock)\b"
            r"|\[+tool\.pixi\b"
        ),
        ("pixi",),
    ),
    "poetry": (
        re.compile(
            r"pypoetry[\\/]virtualenvs|\bpoetry (?:add|install|run|update|lock|sync)\b|\bpoetry\.lock\b|\[tool\.poetry"
        ),
        ("poetry",),
    ),
    "uv": (
        re.compile(r"\buv (?:sync|run|add|lock)\b|\buv\.lock\b|\[+tool\.uv\b|the project environment path .\.venv"),
        ("uv sync", "uv run", "uv add", "uv lock", "uv.lock", "[tool.uv", "the project environment path"),
    ),
    "conda": (
        re.compile(r"\b(?:conda|mamba) env (?:create|update)\b|\benvironment\.ya?ml\b"),
        (" env create", " env update", "environment.y"),
    ),
}
#: Meanings of arguments that make an install something else than a list of requirements.
_OTHER: tuple[Meaning, ...] = (
    "files",
    "editables",
    "find_links",
    "target",
    "constraints",
    "no_build_isolation",
    "unknown",
)
_PYTHON = re.compile(r"uv venv --python (?P<version>[\d.]+) \S+ && VIRTUAL_ENV=\S+ ")
_MADE = {
    "uv": "uv python pin {0} && ",
    "poetry": "poetry env use {0} && ",
    "pixi": 'pixi add "python={0}.*" && ',
    "conda": "",
}
#: What the launchers of AUTOMATIC1111 and Forge print: the Python that no activated environment reaches.
_VENV = re.compile(r"^venv \"([A-Z]:\\[^\"\n]{1,200}\\python\.exe)\"", re.IGNORECASE | re.MULTILINE)
#: What ComfyUI prints.
_EXECUTABLE = re.compile(r"\*\* Python executable: ((?:[A-Z]:\\|/)[^\"\n]{1,200}?)\s*$", re.MULTILINE)
#: The Python that a program for Windows brings, by the path of its packages.
_BROUGHT = re.compile(r"([A-Z]:\\[^\"<>|\n]{1,200}?\\(?:python|runtime))\\lib\\site-packages\\", re.IGNORECASE)
_REVERTS = {
    "uv": "a pip command lasts only until the next uv sync or uv run",
    "poetry": "a pip command lasts only until the next poetry install",
    "pixi": "a pip or conda command lasts only until the next pixi install or pixi run",
    "conda": "if the environment is made again from the file, changes that are not in the file are lost",
}
_SYNC = {"pixi": "pixi install", "conda": "conda env update -f environment.yml --prune"}
_WRITES = "The command writes these lines."
_EXPLICIT = "The command writes these lines, except explicit = true, which keeps other packages off this index."
_SYSTEM = "The command writes these lines, except those of [system-requirements]."
_FOLLOWS = "The command then installs what the file says."


@dataclasses.dataclass(frozen=True, slots=True)
class Project:
    """A project of one tool; ``root`` is its directory, if that is on this computer."""

    tool: Tool
    root: str | None = None


def project_of_report(scene: Scene) -> Project | None:
    """The project that a report's commands, paths and files show."""
    text = scene.report.text
    return next(
        (Project(tool) for tool, (pattern, words) in _WORDS.items() if search_near(text, pattern, *words)), None
    )


def project_of_environment(environment: Environment) -> Project | None:
    """The project whose environment it is, by the files beside it."""
    prefix = Path(environment.prefix)
    if environment.kind == "pixi" and ".pixi" in prefix.parts:
        return Project("pixi", str(prefix.parents[len(prefix.parts) - 1 - prefix.parts.index(".pixi")]))
    for tool, lock in (("uv", "uv.lock"), ("poetry", "poetry.lock")):
        if is_file(prefix.parent / lock):
            return Project("uv" if tool == "uv" else "poetry", str(prefix.parent))
    return None


def in_project(fix: Fix, project: Project | None, scene: Scene) -> Fix:
    """The fix as a change of the project; unchanged if it installs nothing that a project file can name."""
    if fix.command is None:
        return fix
    if project is None:
        return Fix(fix.text, edit(fix.command, lambda found, _: _embedded(found, scene)))
    installs = [found for words, _ in simple_commands(fix.command, {}) if (found := parse(words)) and _is_plain(found)]
    if not installs or (project.tool in ("uv", "poetry") and installs[0].installer == "conda"):
        return fix
    lines = [line for command in installs for line in _lines(command, project.tool, scene)]
    # pixi add names no index, and conda has no command that edits the file.
    edits = project.tool != "conda" and not (project.tool == "pixi" and any(map(_index_of, installs)))
    name = {"pixi": "pixi.toml", "conda": "environment.yml"}.get(project.tool, "pyproject.toml")
    first = f"{fix.text} The project must name it, because {_REVERTS[project.tool]}; in {name}:"
    explicit = project.tool == "uv" and any(map(_index_of, installs))
    last = _EXPLICIT if explicit else _FOLLOWS if not edits else _SYSTEM if project.tool == "pixi" else _WRITES
    command = _in_tool(fix.command, project.tool) if edits else _SYNC[project.tool]
    command = _PYTHON.sub(lambda match: _MADE[project.tool].format(match["version"]), command)
    text = "\n".join((first, *lines, last))
    return Fix(text, f"cd {shlex.quote(project.root)} && {command}" if project.root else command)


def _embedded(command: Command, scene: Scene) -> Command:
    """A pip command for the Python that the program of a report brings, which no activated environment reaches."""
    if command.installer != "pip":
        return command
    if venv := _VENV.search(scene.report.text):
        return dataclasses.replace(command, program=(f'"{venv[1]}"', "-m", "pip"))
    if scene.mentions("python_embeded", "comfyui_windows_portable"):
        return dataclasses.replace(command, program=(r".\python_embeded\python.exe", "-s", "-m", "pip"))
    if printed := _EXECUTABLE.search(scene.report.text):
        return dataclasses.replace(command, program=(f'"{printed[1]}"', "-m", "pip"))
    if brought := _BROUGHT.search(scene.report.text):
        return dataclasses.replace(command, program=(f'"{brought[1]}\\python.exe"', "-m", "pip"))
    return command


def _is_plain(command: Command) -> bool:
    return command.verb[-1:] == ("install",) and bool(command.requirements) and not command.has(*_OTHER)


def _index_of(command: Command) -> str | None:
    """The URL of the index other than the default one."""
    urls = [url.partition("=")[2] or url for url in command.values("indexes", "index_urls", "extra_index_urls")]
    return next((url.strip("\"'") for url in urls if url.strip("\"'").rstrip("/") != DEFAULT_INDEX.rstrip("/")), None)


def _from_index(command: Command, scene: Scene) -> list[str]:
    """The names of what a command takes from its own index: what the catalogue knows to be there."""
    if _index_of(command) is None:
        return []
    names = [name for word in command.requirements if (name := _name(word))]
    return [name for name in names if any(build.index != DEFAULT for build in scene.catalogue.builds(name))]


def _name(word: str) -> str | None:
    try:
        return canonicalize_name(Requirement(word.strip("\"'")).name)
    except InvalidRequirement:
        return None


def _lines(command: Command, tool: Tool, scene: Scene) -> Iterator[str]:
    """The lines of the project file that are equivalent to an install command."""
    words = [word.strip("\"'") for word in command.requirements]
    url, own = _index_of(command), _from_index(command, scene)
    index = f"pytorch-{url.rstrip('/').rpartition('/')[2]}" if url else ""
    if tool == "conda":
        yield from _of_environment_file(command, words, url)
    elif tool == "pixi":
        yield from _of_pixi(command, words, url, own)
    elif tool == "uv":
        listed = "".join(f'"{word}", ' for word in words)
        yield from ("[project]", f"dependencies = [{listed}...]")
        if url:
            yield from ("[tool.uv.sources]", *(f'{name} = {{ index = "{index}" }}' for name in own))
            yield from ("[[tool.uv.index]]", f'name = "{index}"', f'url = "{url}"', "explicit = true")
    else:
        if url:
            yield from ("[[tool.poetry.source]]", f'name = "{index}"', f'url = "{url}"', 'priority = "explicit"')
        yield "[tool.poetry.dependencies]"
        for word in words:
            source = f', source = "{index}"' if _name(word) in own else ""
            yield f'{_name(word) or word} = {{ version = "{_pin(word)}"{source} }}'


def _pin(word: str) -> str:
    return re.sub(r"^[\w.-]+(?:\[[^\]]*\])?", "", word).removeprefix("==") or "*"


def _of_environment_file(command: Command, words: Sequence[str], url: str | None) -> Iterator[str]:
    yield "dependencies:"
    if command.installer == "conda":
        yield from (f"  - {word}" for word in words)
        return
    yield from ("  - pip", "  - pip:")
    if url:
        yield f"    - --extra-index-url {url}"
    yield from (f"    - {word}" for word in words)


def _of_pixi(command: Command, words: Sequence[str], url: str | None, own: Sequence[str]) -> Iterator[str]:
    if command.installer != "conda":
        yield "[pypi-dependencies]"
        for word in words:
            index = f', index = "{url}"' if _name(word) in own else ""
            pin = re.sub(r"^[\w.-]+(?:\[[^\]]*\])?", "", word) or "*"
            yield f'{_name(word) or word} = {{ version = "{pin}"{index} }}'
        return
    # Without it pixi solves for machines with no driver, and takes the CPU build.
    cuda = next((match[1] for word in words if (match := re.match(r"cuda-version=(\d+)", word))), "12")
    yield from ("[system-requirements]", f'cuda = "{cuda}"', "[dependencies]")
    for word in words:
        if bound := re.match(r"([\w.-]+)([<>!~].*)", word):
            yield f'{bound[1]} = "{bound[2]}"'
            continue
        name, *rest = re.split(r"[= ]+", word, maxsplit=2)
        version = f'version = "{rest[0]}"' if rest and rest[0] else 'version = "*"'
        yield f"{name} = {{ {version}" + (f', build = "{rest[1]}"' if len(rest) > 1 else "") + " }"


def _in_tool(text: str, tool: Tool) -> str:
    """The command lines of a tool that make the changes of pip commands in its project."""
    commands = [found for words, _ in simple_commands(text, {}) if (found := parse(words))]
    added = {_name(word) for found in commands if found.verb[-1:] == ("install",) for word in found.requirements}
    gone = [word for found in commands if found.verb[-1:] == ("uninstall",) for word in found.requirements]
    text = edit(text, lambda found, _: _added(found, tool, added))
    # Removing a package also removes files that another one has in the same place.
    again = [name for name in gone if name in added]
    if tool == "uv" and again and len(again) < len(gone):
        return f"{text} && uv sync {' '.join(f'--reinstall-package {name}' for name in again)}"
    return text


def _removed(command: Command, tool: Tool, added: Collection[str | None]) -> Command:
    """The tool's command that takes packages out of its project, except those that are added again."""
    kept = tuple(o for o in command.arguments if o.meaning == "requirements" and str(o.value) not in added)
    if not kept or tool == "conda":
        return command
    options = (Argument("--pypi", "other"),) if tool == "pixi" and command.installer != "conda" else ()
    return Command(tool, (tool,), (), ("remove",), (*options, *kept))


def _added(command: Command, tool: Tool, added: Collection[str | None] = ()) -> Command:
    """The tool's command that makes the same change in its project."""
    if command.verb[-1:] == ("uninstall",):
        return _removed(command, tool, added)
    if not _is_plain(command) or tool == "conda":
        return command
    url = _index_of(command)
    options: tuple[Argument, ...] = ()
    if tool == "pixi":
        options = (Argument("--pypi", "other"),) if command.installer != "conda" else ()
    elif url:
        index = f"pytorch-{url.rstrip('/').rpartition('/')[2]}"
        if tool == "uv":
            options = (Argument("--index", "indexes", f"{index}={url}"),)
        else:
            options = (Argument("--source", "other", index),)
    kept = tuple(one for one in command.arguments if one.meaning == "requirements")
    program = (
        ("poetry", "source", "add", "--priority", "explicit", index, url, "&&", "poetry")
        if (tool == "poetry" and url)
        else (tool,)
    )
    return Command(tool, program, (), ("add",), (*options, *kept))
