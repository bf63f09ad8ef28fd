"""Options that several commands share, in groups: the machines, and what a plan should contain.

A group is a ``NamedTuple`` of annotated options. A command that has a parameter of its type takes all of its options.
"""

from __future__ import annotations

import inspect
import os
import re
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple, get_type_hints

import typer

from envsolve.cli.completion import gpu_values, python_values, variant_values
from envsolve.cli.output import remark
from envsolve.errors import UsageError
from envsolve.machine.known import describe_target, detect, load_machines
from envsolve.planning.request import Request
from envsolve.system.files import is_folder

if TYPE_CHECKING:
    from envsolve.machine.model import Machine


#: Where environments are made, as uv and most editors have it.
DEFAULT_PREFIX = Path(".venv")


def expanded(command: Callable[..., None]) -> Callable[..., None]:
    """Return a command for typer, in which each option group is replaced by its options."""
    parameters: list[inspect.Parameter] = []
    groups: dict[str, Any] = {}
    for name, parameter in inspect.signature(command, eval_str=True).parameters.items():
        group = parameter.annotation
        if not hasattr(group, "_fields"):
            parameters.append(parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY))
            continue
        groups[name] = group
        for field, hint in get_type_hints(group, include_extras=True).items():
            default = group._field_defaults[field]
            parameters.append(
                inspect.Parameter(field, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=hint)
            )

    @wraps(command)
    def call(**given: Any) -> None:
        for name, group in groups.items():
            given[name] = group(**{field: given.pop(field) for field in group._fields})
        command(**given)

    call.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    call.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return call


def _path(text: str) -> Path:
    # An empty path would mean the working directory, and usually comes from a shell variable that is not set.
    if text == "":
        raise typer.BadParameter("the path is empty")
    return Path(text)


def path(*names: str, metavar: str, help: str) -> Any:
    """Declare an option that takes a path, or several."""
    return typer.Option(*names, metavar=metavar, help=help, parser=_path)


def path_argument(*, metavar: str, help: str) -> Any:
    """Declare an argument that is a path, or several."""
    return typer.Argument(metavar=metavar, help=help, parser=_path)


def option(*names: str, help: str, metavar: str | None = None, values: Callable[[str], list[str]] | None = None) -> Any:
    """Declare an option; ``values`` gives a shell those that start with what was typed."""
    return typer.Option(*names, metavar=metavar, help=help, autocompletion=values)


def argument(*, metavar: str, help: str, values: Callable[[str], list[str]] | None = None) -> Any:
    """Declare an argument; ``values`` as for :func:`option`."""
    return typer.Argument(metavar=metavar, help=help, autocompletion=values)


Form = Annotated[
    Literal["text", "json"] | None, option("--format", help="Output format (default: from the suffix of -o FILE).")
]
OutputFile = Annotated[Path | None, path("-o", metavar="FILE", help="Write the output to FILE.")]
AllowUnknownNames = Annotated[
    bool, option("--allow-unknown-names", help="Accept package names that look like a mistake (pytorch, trch).")
]
PythonVersion = Annotated[
    str | None, option("--python", metavar="X.Y", help="Python version of the environment: 3.12.", values=python_values)
]

# What --gpu, --driver and --platform may say of a target, and how they are written.
_PARTS = {
    "gpu": (("gpus",), "'RTX 4090'"),
    "driver": (("driver",), "550.54.15"),
    "platform": (("os", "arch", "libc", "distro"), "linux-x86_64 (or linux-aarch64, win-amd64)"),
}


class Machines(NamedTuple):
    """The options that name machines.

    ``--gpu``, ``--driver`` and ``--platform`` describe a machine; with ``--machine`` or ``--target`` they replace what
    those say.
    """

    machine: Annotated[
        list[Path] | None,
        path(
            "--machine",
            metavar="FILE|DIR",
            help="A machine file from `envsolve detect -o`, or a directory of them. "
            "Repeat it to plan for several machines.",
        ),
    ] = None
    target: Annotated[
        list[str] | None,
        option(
            "--target",
            metavar="STRING",
            help="A machine in words: 'RTX 4090, driver 550.54, python 3.12, linux-x86_64'. Repeatable.",
            values=gpu_values,
        ),
    ] = None
    gpu: Annotated[
        list[str] | None,
        option("--gpu", metavar="NAME|CC", help="The GPU: 'RTX 4090', H100 or 8.9.", values=gpu_values),
    ] = None
    driver: Annotated[
        str | None, option("--driver", metavar="VERSION", help="Version of the GPU driver: 550.54.15.")
    ] = None
    platform: Annotated[
        str | None, option("--platform", metavar="NAME", help="linux-x86_64, linux-aarch64 or win-amd64.")
    ] = None

    def named(self) -> tuple[Machine, ...] | None:
        """Return the machines; None if no option names one.

        Raises:
            UsageError: Files and a target are both given, or something cannot be read.
        """
        if not self.machine and not self.gpu and (self.target, self.driver, self.platform) == (None, None, None):
            return None
        if self.machine and self.target:
            raise UsageError("--machine and --target both describe the machine", hint="give one of them")
        words = [_part("gpu", name) for name in self.gpu or ()]
        words += [_part("driver", self.driver)] if self.driver is not None else []
        words += [_part("platform", self.platform)] if self.platform is not None else []
        changes = describe_target(", ".join(words)) if words else None
        from envsolve.facts.catalogue import Catalogue
        from envsolve.machine.model import changed

        catalogue = Catalogue()  # one for all of them: each reads its files anew
        if self.machine:
            found = [machine for path in self.machine for machine in load_machines(path, catalogue)]
        elif self.target:
            found = [describe_target(target, catalogue) for target in self.target]
        else:
            assert changes is not None
            return (changes,)
        return tuple(changed(machine, changes) for machine in found) if changes else tuple(found)

    def named_or_host(self) -> tuple[Machine, ...]:
        """Return the machines; this host if no option names one.

        Raises:
            UsageError: As :meth:`named`.
        """
        return self.named() or (detect(),)


def _part(option: str, text: str) -> str:
    """Return the part of a target that an option gives.

    Raises:
        UsageError: It contradicts the machine, cannot be read, or is empty: a shell variable was not set.
    """
    from shlex import quote

    from msgspec.structs import asdict

    from envsolve.facts.catalogue import Catalogue
    from envsolve.machine.completed import in_words_of_parts
    from envsolve.machine.target import parse_target

    may_say, example = _PARTS[option]
    part = f"driver {text}" if option == "driver" and text.strip() else text
    try:
        target = parse_target(part)
        if option == "platform":  # WSL is a name that the catalogue has
            target = in_words_of_parts(target, Catalogue())
    except UsageError as error:
        hint = error.hint if option == "gpu" and text.strip() else f"write it as: --{option} {example}"
        raise UsageError(f"--{option} {quote(text)}: {error.message}", hint=hint) from None
    if any(value is not None and name not in may_say for name, value in asdict(target).items()):
        hint = f"write it as: --{option} {example}; to describe a whole machine in one string, use --target"
        raise UsageError(f"--{option} {quote(text)} is not a valid {option}", hint=hint)
    return part


class Asked(NamedTuple):
    """The options that say what a plan should contain, and how to choose it."""

    requirement: Annotated[
        list[Path] | None, path("-r", "--requirement", metavar="FILE", help="A requirements file or environment.yml.")
    ] = None
    constraint: Annotated[list[Path] | None, path("-c", "--constraint", metavar="FILE", help="A constraints file.")] = (
        None
    )
    extra: Annotated[list[str] | None, option("--extra", metavar="NAME", help="An extra of the project.")] = None
    group: Annotated[
        list[str] | None,
        option("--group", metavar="NAME", help="A dependency group of the project, or of the lock to install."),
    ] = None
    python: PythonVersion = None
    cuda: Annotated[
        str, option("--cuda", metavar="auto|cpu|cuNNN", help="The CUDA variant: cu128 or 12.8.", values=variant_values)
    ] = "auto"
    manager: Annotated[
        str | None,
        option(
            "--manager",
            metavar="pip|uv|conda",
            help="Package manager. `conda` resolves conda packages instead of wheels.",
        ),
    ] = None
    channel: Annotated[
        list[str] | None,
        option(
            "--channel", metavar="NAME|URL", help="A conda channel, the preferred one first (default: conda-forge)."
        ),
    ] = None
    exclude_newer: Annotated[
        str | None, option("--exclude-newer", metavar="DATE", help="Ignore files uploaded after DATE.")
    ] = None
    pre: Annotated[bool, option("--pre", help="Allow pre-releases.")] = False
    index_url: Annotated[str | None, option("--index-url", metavar="URL", help="URL of the default index.")] = None
    extra_index_url: Annotated[
        list[str] | None,
        option("--extra-index-url", metavar="URL", help="Another index, for packages that the default index lacks."),
    ] = None
    index_strategy: Annotated[
        str | None,
        option(
            "--index-strategy",
            metavar="first-index|unsafe-best-match",
            help="Use the first index that has a package (default), or the best version from all indexes.",
        ),
    ] = None
    find_links: Annotated[
        list[str] | None,
        option(
            "--find-links", "-f", metavar="DIR|URL", help="Also use package files in a directory or on a page of links."
        ),
    ] = None
    no_index: Annotated[bool, option("--no-index", help="Do not use a package index, only --find-links.")] = False
    allow_unknown_names: AllowUnknownNames = False
    build_metadata: Annotated[
        bool,
        option("--build-metadata", help="Let pip build source packages to read their metadata. This runs their code."),
    ] = False
    offline: Annotated[bool, option("--offline", help="Use no network, only the cache and the catalogue.")] = False

    def request(self, requirements: list[str] | None, conda_format: str | None = None) -> Request:
        """Return the request.

        Args:
            requirements: The arguments of the command.
            conda_format: The output format, if it holds conda packages.

        Raises:
            UsageError: Nothing is requested, or options contradict each other.
        """
        manager = self.manager_for(conda_format)
        if not requirements and not self.requirement:
            hint = "name a requirement (torch), a project (.) or a file (-r FILE)"
            raise UsageError("nothing to plan", hint=hint)
        return Request(
            requirements or (),
            files=self.requirement or (),
            constraints=self.constraint or (),
            extras=self.extra or (),
            groups=self.group or (),
            python=python_version(self.python),
            cuda=cuda_variant(self.cuda),
            exclude_newer=self.exclude_newer,
            prereleases=self.pre,
            index_url=self.index_url,
            extra_index_urls=self.extra_index_url or (),
            index_strategy=self.index_strategy,
            find_links=self.find_links or (),
            no_index=self.no_index,
            offline=self.offline,
            allow_unknown_names=self.allow_unknown_names,
            build_metadata=self.build_metadata,
            manager=manager,
            channels=self.channel or (),
        )

    def manager_for(self, conda_format: str | None = None) -> str | None:
        """Return the package manager: conda also if a format, a file or a channel of conda's says so.

        Raises:
            UsageError: The manager is unknown, or an option of conda's is given with another manager.
        """
        conda_file = next(
            (str(p) for p in self.requirement or () if p.suffix in (".yml", ".yaml") or p.name == "pixi.toml"), None
        )
        by = [f"--format {conda_format}"] if conda_format else []
        by += [f"-r {conda_file}"] if conda_file else []
        by += ["--channel"] if self.channel else []
        if self.manager == "conda" or (self.manager is None and by):
            return "conda"
        if by:
            raise UsageError(f"{by[0]} is only for conda packages, not for {self.manager}", hint="add --manager conda")
        if self.manager is not None:
            from envsolve.install.managers import available

            names = [known.name for known in available()]
            if self.manager not in names:
                known = ", ".join((*names, "conda"))
                raise UsageError(
                    f"--manager {self.manager} is not one of {known}", hint="leave it out to use uv or pip"
                )
        return self.manager

    @property
    def plans(self) -> bool:
        """Whether an option sets something that the lock already determines."""
        beside = (self.requirement, self.constraint, self.extra, self.exclude_newer, self.pre, self.index_url)
        indexes = (self.extra_index_url, self.index_strategy, self.find_links, self.no_index)
        return any((*beside, *indexes, self.build_metadata, self.offline, self.channel)) or self.cuda != "auto"


def active_environment(message: str, hint: str) -> Path:
    """Return the environment to use if none is named: the activated one, otherwise ``.venv`` in this directory.

    Raises:
        UsageError: No environment was found; with the given message and hint.
    """
    prefix, variable = in_use()
    if prefix is None:
        raise UsageError(message, hint=f"{hint}; or activate an environment, or create one in {DEFAULT_PREFIX}")
    remark(f"environment: {prefix}" + (f" ({variable})" if variable else ""))
    return prefix


def in_use() -> tuple[Path | None, str]:
    """Return the environment in use, and the variable that names it; None if there is none."""
    named = (
        (Path(active), variable) for variable in ("VIRTUAL_ENV", "CONDA_PREFIX") if (active := os.environ.get(variable))
    )
    return next(named, (DEFAULT_PREFIX if is_folder(DEFAULT_PREFIX) else None, ""))


def python_version(text: str | None) -> str | None:
    """Read ``--python``.

    Raises:
        UsageError: It is not a version of Python 3. Whether there are builds for it is checked once they are read.
    """
    if text is None:
        return None
    from envsolve.facts.catalogue import Catalogue
    from envsolve.facts.choices import check_python, python_named

    return python_named(text) or check_python(text, Catalogue())


def cuda_variant(text: str) -> str | None:
    """Read ``--cuda``; None for ``auto``. Whether there is such a variant is checked once the builds are read."""
    # People copy "12.8" out of nvidia-smi and version tables.
    dotted = re.fullmatch(r"(?:cuda|cu)?[- ]?(\d+)\.(\d+)", text.strip().lower())
    return None if text == "auto" else f"cu{dotted[1]}{dotted[2]}" if dotted else text
