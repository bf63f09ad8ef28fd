"""Commands of conda, mamba and micromamba: the pytorch that they install, and packages that are not judged."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.version import Version

from envsolve.dockerfile.context import Context
from envsolve.dockerfile.model import Command, Finding, Stage, Unjudged
from envsolve.dockerfile.offers import Asked, Within, running
from envsolve.errors import UsageError
from envsolve.facts.builds import CondaBuild
from envsolve.machine.model import Machine, one_line
from envsolve.packages import commands as grammar
from envsolve.packages.conda_inputs import read_spec, yaml_table
from envsolve.rules.conda import CondaJudge, Spec, as_build, subdir_of
from envsolve.rules.verdict import Level
from envsolve.values import CudaVersion

_VERBS = (("install",), ("create",), ("env", "create"), ("env", "update"))
_TORCH = frozenset({"pytorch", "pytorch-gpu", "pytorch-cpu", "libtorch"})
# What names the CUDA of a build, by the channel that such builds are on.
_CUDA = ("pytorch-cuda", "cudatoolkit", "cuda-version")


@dataclass(frozen=True, slots=True)
class CondaInstall:
    """One ``conda install``, or an environment that is made from a file.

        Attributes:
            command: The command.
            specs: What it
    names.
            channels: Where it looks, the preferred first; empty if only in the channels that conda is configured for.
            pip: The lines that pip installs on top.
            missing: A file that is not in the build context, or cannot be read.
    """

    command: Command
    specs: tuple[Spec, ...]
    channels: tuple[str, ...]
    pip: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()

    @property
    def torch(self) -> Spec | None:
        """The spec that brings torch."""
        return next((spec for spec in self.specs if spec.name in _TORCH), None)

    @property
    def pip_command(self) -> Command | None:
        """The pip command that conda runs for it."""
        words = [word for line in self.pip for word in (line.split(maxsplit=1) if line.startswith("-") else [line])]
        return replace(self.command, words=("pip", "install", *words)) if words else None


def conda_install(command: Command, context: Context) -> CondaInstall | None:
    """Read a conda command; None for another command."""
    parsed = grammar.parse(command.words)
    if parsed is None or parsed.installer != "conda" or parsed.verb not in _VERBS:
        return None
    read = _Read(context, command, list(parsed.values("channels")))
    read.add(parsed.requirements, "command line")
    for name in parsed.values("files") or (("environment.yml",) if parsed.verb[0] == "env" else ()):
        read.file(name)
    return CondaInstall(command, tuple(read.specs), tuple(read.channels), tuple(read.pip), tuple(read.missing))


@dataclass(slots=True)
class _Read:
    """The specs, channels and pip lines of a command, collected from its words and files."""

    context: Context
    command: Command
    channels: list[str]
    specs: list[Spec] = field(default_factory=list)
    pip: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)

    def add(self, lines: Iterable[str], origin: str) -> None:
        for line in lines:
            try:
                self.specs.append(read_spec(line, origin, {}))
            except UsageError:
                self.missing.append(line)

    def file(self, name: str) -> None:
        path = self.context.file(name, self.command)
        if path is None:
            self.missing.append(name)
        elif path.suffix in (".yml", ".yaml"):
            try:
                table = yaml_table(path)
            except UsageError:
                self.missing.append(name)
                return
            dependencies = table.get("dependencies") or ()
            self.channels += [str(one) for one in table.get("channels") or () if one != "nodefaults"]
            self.pip += _pip_lines(dependencies)
            self.add((str(one) for one in dependencies if not isinstance(one, dict)), name)
        else:
            written = (line.strip() for line in (self.context.text(name, self.command) or "").splitlines())
            self.add((line for line in written if line and line[0] not in "#@"), name)


def _pip_lines(dependencies: Iterable[object]) -> list[str]:
    lists = (entry.get("pip") for entry in dependencies if isinstance(entry, dict))
    return [str(line) for one in lists if isinstance(one, list) for line in one]


# The pytorch that a solver takes.


def torch_builds(install: CondaInstall, asked: Asked) -> tuple[CondaBuild, ...]:
    """The builds of the newest version that a spec allows, on the first channel that has it; none if not known."""
    spec = install.torch
    if spec is None:
        return ()
    try:
        subdir = subdir_of(asked.platform)
    except KeyError:
        return ()
    channels = (spec.channel,) if spec.channel else install.channels
    for channel in channels:
        named = [one for one in asked.catalogue.conda if one.channel == channel and one.subdir == subdir]
        here = [one for one in named if one.package == "pytorch" and _admits(spec.version, one.version)]
        if here:
            newest = max(Version(one.version) for one in here)
            return tuple(one for one in here if Version(one.version) == newest and _is_meant(one, install))
        if named:
            return ()
    return ()


def _admits(spec: str | None, version: str) -> bool:
    """Whether a version spec of conda's allows a version: ``=1.12``, ``1.12.*``, ``>=2,<2.3``, ``1.9|1.10``."""
    for one in (spec or "*").split("|"):
        text = one.strip()
        plain = text.removeprefix("==") if text.startswith("==") else text.removeprefix("=").removesuffix(".*")
        if text == "*" or version == plain or (not text.startswith("==") and version.startswith(f"{plain}.")):
            return True
        try:
            if plain[:1] in "<>!~" and SpecifierSet(text).contains(version):
                return True
        except InvalidSpecifier:
            continue
    return False


def _is_meant(build: CondaBuild, install: CondaInstall) -> bool:
    """Whether a build is compatible with the CUDA that the other specs name, and with the build string of its own."""
    names = {one.name: one.version or "" for one in install.specs}
    if names.keys() & {"cpuonly", "pytorch-cpu"}:
        return build.cuda is None
    own = install.torch.build if install.torch else None
    if own and (wanted := re.search(r"cuda_?(\d+)\.?(\d)", own)):
        return build.cuda == f"{wanted[1]}.{wanted[2]}"
    if own and "cpu" in own:
        return build.cuda is None
    pins = [".".join(names[name].lstrip("=").split(".")[:2]) for name in _CUDA if names.get(name)]
    if pins and build.cuda:
        return all(_admits(pin, build.cuda) for pin in pins)
    # Without a pin, either a CUDA build is taken or a CPU build.
    return not pins and ("pytorch-gpu" not in names or build.cuda is not None)


def builds(stage: Stage, asked: Asked) -> Iterator[Finding]:
    """Judge the pytorch that each command installs on every machine."""
    for command in stage.commands:
        install = conda_install(command, asked.context)
        if install and (found := torch_builds(install, asked)):
            yield from _judged(install, found, asked)


def _judged(install: CondaInstall, found: Sequence[CondaBuild], asked: Asked) -> Iterator[Finding]:
    command, channel, name = install.command, found[0].channel, f"pytorch {found[0].version}"
    with_cuda = [one for one in found if one.cuda]
    if not with_cuda:
        text = f"{name} from {channel} is a CPU build, which does not use a GPU"
        yield Finding(command.line, "cpu-build", "warning", text, tuple(_remedies(asked, channel)))
    elif not command.variables.get("CONDA_OVERRIDE_CUDA") and all("__cuda" in one.depends for one in with_cuda):
        only = len(with_cuda) == len(found)
        what = "finds no CUDA build that it can install" if only else "installs a CPU build"
        best = _best(asked, channel)
        remedy = f"add before this line: ENV CONDA_OVERRIDE_CUDA={best.cuda if best else '12.9'}"
        text = f"{name} from {channel}: no GPU is visible during an image build, so conda {what}"
        yield Finding(command.line, "conda-no-gpu", "error" if only else "warning", text, (remedy,))
    else:
        refused = (one for machine in asked.machines if (one := _refused(with_cuda, machine, asked)))
        for text, source in islice(refused, 1):
            text = f"conda installs {name} from {channel}, which does not run on {text}"
            yield Finding(command.line, "build-does-not-run", "error", text, tuple(_remedies(asked, channel)), source)


def _refused(builds: Sequence[CondaBuild], machine: Machine, asked: Asked) -> tuple[str, str | None] | None:
    """Reasons and source if none of some builds runs on a machine; None if one may."""
    judge = CondaJudge((machine,), asked.facts, asked.catalogue.conda)
    verdicts = [judge.verdict(as_build(one)) for one in builds]
    if any(verdict.level is not Level.NONE for verdict in verdicts):
        return None
    failures = verdicts[-1].failures
    failed = [one for one in failures if not one.rule.startswith("triton")] or failures
    source = next((one.source for one in failed if one.source), None)
    return f"{one_line(machine)}: {'; '.join(one.text for one in failed)}", source


def _best(asked: Asked, channel: str) -> CondaBuild | None:
    """The newest build of a channel that runs on every machine, of the newest CUDA that does."""
    judge = CondaJudge(asked.machines, asked.facts, asked.catalogue.conda)
    try:
        subdir = subdir_of(asked.platform)
    except KeyError:
        return None
    some = [one for one in asked.catalogue.conda if one.cuda and (one.channel, one.subdir) == (channel, subdir)]
    some.sort(key=lambda one: (Version(one.version), CudaVersion.parse(one.cuda or "")), reverse=True)
    return next((one for one in some if judge.verdict(as_build(one)).level.usable), None)


def _remedies(asked: Asked, channel: str) -> Iterator[str]:
    best = _best(asked, channel)
    if best:
        cuda = f"pytorch-cuda={best.cuda} -c pytorch -c nvidia"
        if channel != "pytorch":
            cuda = f"cuda-version={best.cuda} -c {channel}"
        elif Version(best.version) < Version("1.13"):
            cuda = f"cudatoolkit={best.cuda} -c pytorch"
        yield f"conda install pytorch={best.version} {cuda}"
    offer = next(running(asked.offers("torch"), Within()), None)
    if offer:
        yield offer.command(asked.catalogue.indexes)


def unjudged(command: Command, asked: Asked) -> Iterator[Unjudged]:
    """Missing files, and packages of which it is not known whether they use a GPU."""
    install = conda_install(command, asked.context)
    if install is None:
        return
    line = command.line
    for name in install.missing:
        yield Unjudged(
            line,
            f"{name} is not in the build context (choose another one with --context DIR), or is not in a known format",
        )
    if install.torch and not torch_builds(install, asked):
        yield Unjudged(line, f"{install.torch}: it is not known which build conda installs")
    # A solver pairs what belongs to torch's family with its torch.
    judged = {*_TORCH, *(asked.catalogue.family if install.torch else ())}
    others = [spec.name for spec in install.specs if spec.name not in judged and not _is_plain(spec.name, asked)]
    if others:
        shown = ", ".join(others[:4]) + (f" and {len(others) - 4} more" if len(others) > 4 else "")
        yield Unjudged(
            line,
            f"these conda packages are not checked: {shown} (`envsolve plan --manager conda` chooses builds that fit)",
        )


def _is_plain(name: str, asked: Asked) -> bool:
    """Whether a package certainly neither uses a GPU nor brings one that does."""
    plain = (one.packages for one in asked.catalogue.dependents if not one.brings)
    known = {one.package: one.requires for one in asked.catalogue.known_metadata}
    if name in known:
        return not any(re.match(r"(?:torch|nvidia|cuda|triton|jax|tensorflow)", line) for line in known[name])
    return name in _CUDA or name in _ALONE or any(name in some for some in plain)


# Names that only conda has, and that the indexes of wheels say nothing of.
_ALONE = frozenset({"python", "pip", "conda", "mamba", "cpuonly", "pytorch-mutex"})


CHECKS = (builds,)
