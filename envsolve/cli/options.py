"""Options that several commands share: which machine, which Python, which flavour."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import envsolve
from envsolve.cli.declare import option
from envsolve.errors import UsageError

if TYPE_CHECKING:
    from envsolve.machine.model import Machine


MachineFiles = Annotated[
    list[Path] | None,
    option(
        "--machine",
        metavar="FILE|DIR",
        help="A machine saved by `envsolve detect -o`, or a folder of them; repeat for one plan good on all.",
    ),
]
TargetTexts = Annotated[
    list[str] | None,
    option(
        "--target",
        metavar="STRING",
        help="A machine in words: 'RTX 4090, driver 550.54, python 3.12, linux-x86_64'; repeatable.",
    ),
]
GpuNames = Annotated[list[str] | None, option("--gpu", metavar="NAME|CC", help="A GPU: 'RTX 4090', 'H100', '8.9'.")]
DriverVersion = Annotated[str | None, option("--driver", metavar="VERSION", help="The NVIDIA driver, '550.54.15'.")]
PlatformName = Annotated[
    str | None, option("--platform", metavar="NAME", help="linux-x86_64, linux-aarch64 or win-amd64.")
]
Form = Annotated[Literal["text", "json"], option("--format", help="text or json.")]
OutputFile = Annotated[Path | None, option("-o", metavar="FILE", help="Write it to FILE.")]
PythonVersion = Annotated[str | None, option("--python", metavar="X.Y", help="The environment's Python, '3.12'.")]

ManagerName = Annotated[
    str | None,
    option("--manager", metavar="pip|uv|conda", help="Who installs it; conda has its own packages."),
]
ChannelNames = Annotated[
    list[str] | None,
    option("--channel", metavar="NAME|URL", help="A conda channel, the preferred first; conda-forge if none."),
]
# What --gpu, --driver and --platform may say of a target, and how they are written.
_PARTS = {
    "gpu": (("gpus",), "'RTX 4090'"),
    "driver": (("driver",), "550.54.15"),
    "platform": (("os", "arch", "libc", "distro"), "linux-x86_64 (or linux-aarch64, win-amd64)"),
}
#: Formats that hold conda packages.
CONDA_FORMATS = ("conda-lock", "environment-yml", "pixi")


def machines(
    files: list[Path] | None,
    targets: list[str] | None,
    gpus: list[str] | None,
    driver: str | None,
    platform: str | None,
) -> tuple[Machine, ...]:
    """The machines that the options name; this host where they name none.

    ``--gpu``, ``--driver`` and ``--platform`` alone describe a machine; beside ``--machine`` or ``--target`` they
    replace what those say.

    Raises:
        UsageError: Files and a target are both given, or something is not understood.
    """
    if files and targets:
        raise UsageError("--machine and --target both name the machine", hint="give one of them")
    words = [_said("gpu", name) for name in gpus or ()]
    words += [_said("driver", driver)] if driver is not None else []
    words += [_said("platform", platform)] if platform is not None else []
    said = envsolve.describe_target(", ".join(words)) if words else None
    from envsolve.facts.catalogue import Catalogue
    from envsolve.machine.model import changed

    catalogue = Catalogue()  # one for all of them: each reads its files anew
    if files:
        named = [machine for path in files for machine in envsolve.load_machines(path, catalogue)]
    elif targets:
        named = [envsolve.describe_target(target, catalogue) for target in targets]
    elif said is not None:
        return (said,)
    else:
        return (envsolve.detect(),)
    return tuple(changed(machine, said) for machine in named) if said else tuple(named)


def _said(option: str, text: str) -> str:
    """The part of a target that an option stands for; it may not say of the machine what it is not for.

    Raises:
        UsageError: It does, or cannot be read, or is empty: a shell variable was not set.
    """
    from shlex import quote

    from msgspec.structs import asdict

    from envsolve.machine.target import parse_target

    may_say, example = _PARTS[option]
    part = f"driver {text}" if option == "driver" and text.strip() else text
    try:
        target = parse_target(part)
    except UsageError as error:
        hint = error.hint if option == "gpu" and text.strip() else f"write it as: --{option} {example}"
        raise UsageError(f"--{option} {quote(text)}: {error.message}", hint=hint) from None
    if any(value is not None and name not in may_say for name, value in asdict(target).items()):
        hint = f"write it as: --{option} {example}; a whole machine in one string is --target"
        raise UsageError(f"--{option} {quote(text)} is no {option}", hint=hint)
    return part


def machines_named(
    files: list[Path] | None,
    targets: list[str] | None,
    gpus: list[str] | None,
    driver: str | None,
    platform: str | None,
) -> tuple[Machine, ...] | None:
    """Likewise; None where the options name no machine.

    Raises:
        UsageError: As :func:`machines`.
    """
    if not files and not gpus and (targets, driver, platform) == (None, None, None):
        return None
    return machines(files, targets, gpus, driver, platform)


def python_version(text: str | None) -> str | None:
    """Read ``--python``; whether anything is known of that Python is asked where the builds are read.

    Raises:
        UsageError: It is no version of Python 3.
    """
    if text is None:
        return None
    from envsolve.facts.catalogue import Catalogue, check_python, python_named

    return python_named(text) or check_python(text, Catalogue())


def cuda_flavour(text: str) -> str | None:
    """Read ``--cuda``; None for ``auto``. Whether there is such a flavour is asked where the builds are read."""
    return None if text == "auto" else text


def manager_for(
    named: str | None, form: str | None, files: list[Path] | None, channels: list[str] | None
) -> str | None:
    """The package manager that a request means: conda, also where a format, a file or a channel of conda's says so.

    Raises:
        UsageError: There is no such manager, or what goes with conda alone is asked of another.
    """
    conda_file = next((str(path) for path in files or () if path.suffix in (".yml", ".yaml")), None)
    by = [f"--format {form}"] if form in CONDA_FORMATS else []
    by += [f"-r {conda_file}"] if conda_file else []
    by += ["--channel"] if channels else []
    if named == "conda" or (named is None and by):
        return "conda"
    if by:
        raise UsageError(f"{by[0]} is for conda packages, not for {named}", hint="plan with --manager conda")
    if named is not None:
        from envsolve.install.managers import available

        names = [known.name for known in available()]
        if named not in names:
            known = ", ".join((*names, "conda"))
            raise UsageError(f"--manager {named}: not one of {known}", hint="leave it out to use uv or pip")
    return named
