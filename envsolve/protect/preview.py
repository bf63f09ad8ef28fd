"""The effect of an install on the torch of its environment, according to the installer's dry run and the rules."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Literal

from msgspec import structs
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

from envsolve.diagnose.environment import report_of
from envsolve.diagnose.fixes import addressed, companions
from envsolve.diagnose.model import WIDTH, Diagnosis, Finding, ReportFacts, Seen, wrapped
from envsolve.diagnose.reason import concluded, weighed
from envsolve.diagnose.scene import Scene, scene_of
from envsolve.diagnose.signatures import cause_of
from envsolve.environment.model import Environment
from envsolve.environment.read import read_outline
from envsolve.errors import EnvsolveError, UsageError, VerificationError
from envsolve.facts.builds import Build, CondaBuild
from envsolve.facts.catalogue import Catalogue
from envsolve.machine.model import Machine
from envsolve.packages.commands import Argument, Change, Command, changes_in_words, installer
from envsolve.packages.requirement_files import read_requirements
from envsolve.protect.dry_run import check_names_of, read_command, run_dry
from envsolve.protect.keep import TORCH, family_of, version_of
from envsolve.rules.conda import CondaJudge, as_build
from envsolve.rules.judge import judge_of, worst
from envsolve.rules.verdict import Level

SCHEMA: Literal["envsolve.forecast/1"] = "envsolve.forecast/1"

# Named as the source of each version in the causes that a preview reports.
_SOURCE = "the installer's dry run"


class RefusedError(VerificationError):
    """A command was not run because it would harm the torch of its environment."""


@dataclass(frozen=True, slots=True)
class Preview:
    """The effect of a command on the torch family of an environment.

    Attributes:
        command: The command line.
        prefix: The environment.
        changes: Changes of the family and of what torch requires; other changes are left out.
        unasked: Names of those that would be replaced or removed although the command does not request them.
        works: Whether the new torch runs on the machine; None if torch does not change.
        why: The reason.
        causes: Diagnoses of the environment after the command that it does not have today.
        keeps: A command that does the same but leaves the family unchanged, tried as a dry run, or None.
        untried: Likewise, but one of its indexes cannot be reached from here.
        refused: Whether the command should not be run.
    """

    schema: Literal["envsolve.forecast/1"]
    command: str
    prefix: str
    changes: tuple[Change, ...] = ()
    unasked: tuple[str, ...] = ()
    works: Literal["yes", "no", "unknown"] | None = None
    why: str | None = None
    causes: tuple[Diagnosis, ...] = field(default=())
    keeps: str | None = None
    untried: str | None = None
    refused: bool = False


def preview(
    words: Sequence[str],
    machine: Machine,
    catalogue: Catalogue,
    environ: Mapping[str, str],
    *,
    may_build: bool = True,
    allow_unknown_names: bool = False,
) -> Preview | None:
    """Preview what a command of pip, uv or conda would do to the torch family of its environment.

    Args:
        words: The command line.
        machine: The machine that the new torch is judged for.
        catalogue: The facts.
        environ: The environment variables that the command will see.
        may_build: Whether the installer may run the code of source archives to learn what they require.
        allow_unknown_names: Whether to preview names that look like a mistake, such as ``trch``.

    Returns:
        The preview; None if the command changes no environment.

    Raises:
        UsageError: It is not a command of a known installer, has no dry run, its environment is not found, or it
            installs a name that looks like a mistake.
        EnvsolveError: The installer itself fails, or its output is not understood.
    """
    command = read_command(words, environ)
    if installer(command.installer).dry_run(command) is None:
        return None
    if not allow_unknown_names:
        check_names_of(command, catalogue)
    attempt = _Attempt(machine, catalogue, environ, may_build)
    outcome = attempt.outcome(command)
    environment, changes, scene = outcome.environment, outcome.changes, outcome.after
    if not changes:
        return Preview(SCHEMA, shlex.join(words), environment.prefix)
    torch = next((c for c in changes if c.name in TORCH), None)
    requested = _requested(command)
    unasked = tuple(c.name for c in changes if _is_unasked(c, requested, torch, environment, catalogue))
    works, why = verdict_on(scene, torch, machine) if torch and torch.after else (None, None)
    if torch and torch.after and scene.torch:
        changes = tuple(structs.replace(c, variant=scene.torch.variant) if c is torch else c for c in changes)
    keeps, untried = _keeping(command, unasked, outcome, attempt)
    return Preview(
        schema=SCHEMA,
        command=shlex.join(words),
        prefix=environment.prefix,
        changes=changes,
        unasked=unasked,
        works=works,
        why=why,
        causes=outcome.causes,
        keeps=keeps,
        untried=untried,
        refused=bool(unasked or outcome.causes or works == "no"),
    )


@dataclass(frozen=True, slots=True)
class _Outcome:
    """The outcome of a command.

    Attributes:
        changes: Those of the family.
        after: The environment afterwards, for the rules.
        causes: What is wrong with it then and not today.
    """

    environment: Environment
    changes: tuple[Change, ...]
    after: Scene
    causes: tuple[Diagnosis, ...]

    @property
    def replaces(self) -> bool:
        """Whether something of the family that is installed would change."""
        return any(c.before is not None and c.is_another for c in self.changes)


@dataclass(frozen=True, slots=True)
class _Attempt:
    """What the outcome of a command depends on besides its words: see :func:`preview`."""

    machine: Machine
    catalogue: Catalogue
    environ: Mapping[str, str]
    may_build: bool

    def outcome(self, command: Command) -> _Outcome:
        """The outcome by the installer's dry run and the rules."""
        environment, every = _changes_of(command, self.environ, self.may_build)
        changes = _of_family(every, environment, self.catalogue)
        report = report_of(environment, ReportFacts("", self.machine))
        after = scene_of(report_after(report, changes, self.catalogue), (), self.catalogue)
        causes = _new_causes(scene_of(report, (), self.catalogue), after, environment) if changes else ()
        return _Outcome(environment, changes, after, causes)


# The installer's side: its dry run.


def _changes_of(
    command: Command, environ: Mapping[str, str], may_build: bool
) -> tuple[Environment, tuple[Change, ...]]:
    """The environment of a command, and its changes with the versions that are installed."""
    named, changes = run_dry(command, environ, may_build=may_build)
    prefix = named or installer(command.installer).prefix(command, environ)
    if prefix is None:
        raise UsageError("cannot determine which environment the command changes", hint="give it, or activate it")
    environment = read_outline(Path(prefix), environ)
    known = (structs.replace(c, before=c.before or version_of(environment, c.name, command.installer)) for c in changes)
    return environment, tuple(known)


def _requested(command: Command) -> frozenset[str] | None:
    """Names of the packages that a command requests; None if it requests everything that it changes."""
    # A sync applies a lock file or a list of requirements as a whole.
    if "sync" in command.verb:
        return None
    one = installer(command.installer)
    names = {name for word in (*command.requirements, *command.values("editables")) if (name := one.requested(word))}
    for file in command.values("files"):
        try:
            asked = read_requirements((), (Path(file),))
        except EnvsolveError:
            continue  # The installer itself will report what is wrong with it.
        names |= {canonicalize_name(need.requirement.name) for need in asked.needs}
    return frozenset(names)


def _keeping(
    command: Command, unasked: Sequence[str], outcome: _Outcome, attempt: _Attempt
) -> tuple[str | None, str | None]:
    """The same command with pins on what it would replace, and with the builds of companions for the installed torch.

    Returns:
        The command, if its dry run finds a solution with nothing wrong in it; and one whose index cannot be reached.
    """
    one, installed = installer(command.installer), outcome.environment
    versions = {n: v for n in unasked if (v := version_of(installed, n, command.installer, exact=True))}
    # Pins as further requirements: unlike constraints, every installer accepts them on its command line.
    pinned = command.adding(requirements=[one.pin(name, version) for name, version in versions.items()])
    try:
        found = attempt.outcome(pinned) if unasked else outcome
        if found.causes and not found.replaces and (built := _with_companions(pinned, found)):
            pinned = built
            found = attempt.outcome(pinned)
    except EnvsolveError as error:
        # Without the index that has the pins, the failure says nothing against them.
        unreachable = cause_of(error.message) == "index-unreachable"
        return None, shlex.join(pinned.words) if unreachable else None
    works = found is not outcome and not found.replaces and not found.causes
    return shlex.join(pinned.words) if works else None, None


def _with_companions(command: Command, found: _Outcome) -> Command | None:
    """The command with the builds of its companions for the installed torch, and their index; None if there are none.

    Installers look at versions only: with a CPU torch they take a torchvision for CUDA from the default index.
    """
    scene = found.after
    names = [c.name for c in found.changes if c.after and scene.family.follows_torch(c.name)]
    public = {c.name: (c.after or "").partition("+")[0] for c in found.changes}
    same = companions(scene, {name: SpecifierSet(f"=={public[name]}") for name in names})
    options = same or companions(scene, {name: SpecifierSet() for name in names})
    place = next((scene.catalogue.indexes.get(o.build.index) for o in options if o.build.local), None)
    if command.installer == "conda" or place is None:
        return None
    url = place.url.format(variant=options[0].build.variant)
    index = Argument("--index", "indexes", url)
    if command.installer != "uv":
        index = Argument("--extra-index-url", "extra_index_urls", url)
    pins = (f"{o.build.package}=={o.build.version}{o.build.local}" for o in options)
    return command.adding(index, requirements=pins)


# The rules' side: the environment after the changes.


def report_after(before: ReportFacts, changes: Sequence[Change], catalogue: Catalogue) -> ReportFacts:
    """A report of an environment after changes, without what was read from the files of a torch that is replaced."""
    installed = dict(before.installed)
    wheels = before.wheels | {c.name for c in changes if c.after and c.build is None}
    for change in changes:
        # torch and pytorch are one package to the rules: the new one replaces either.
        if change.name in TORCH:
            for name in TORCH:
                installed.pop(name, None)
        installed.pop(change.name, None)
        if change.after is not None:
            installed[change.name] = Seen(change.after, _SOURCE, change.text)
    torch = next((c for c in changes if c.name in TORCH), None)
    if torch is None:
        return replace(before, installed=installed, wheels=wheels)
    found = _conda_build(torch, catalogue)
    return replace(
        before,
        installed=installed,
        wheels=wheels,
        cuda=Seen(found.cuda or "none", _SOURCE, torch.text) if found else None,
        arch_list=Seen(found.code, _SOURCE, torch.text) if found and found.code else None,
    )


def verdict_on(scene: Scene, torch: Change, machine: Machine) -> tuple[Literal["yes", "no", "unknown"], str]:
    """Whether the new torch runs on the machine's GPUs (or on its CPU, if it has none), and the reason."""
    record = _conda_build(torch, scene.catalogue)
    if record is not None:
        build: Build | None = as_build(record)
    else:
        build = scene.torch.build if scene.torch and torch.build is None else None
    if build is None:
        return "unknown", f"the catalogue does not know {torch.name} {torch.after}, so its contents are unknown"
    if build.cuda and machine.gpus == ():
        return "yes", "only on the CPU, since it has no supported GPU"
    verdict = (
        CondaJudge((scene.machine,), scene.facts, ()).verdict(build)
        if record is not None
        else worst(judge_of(scene.machine, scene.facts).verdicts(build, None))
    )
    if verdict.level is Level.NONE:
        failed = "; ".join(reason.text for reason in verdict.failures if not reason.rule.startswith("triton"))
        return "no", failed
    if verdict.level is Level.UNKNOWN:
        return "unknown", "; ".join(reason.text for reason in verdict.reasons if reason.ok is None)
    return "yes", f"{verdict.code} runs on the GPU" if verdict.code else "nothing in it requires a GPU"


def _conda_build(torch: Change, catalogue: Catalogue) -> CondaBuild | None:
    """The catalogue's record of a conda build that would be installed."""
    if torch.build is None:
        return None
    matching = (
        b
        for b in catalogue.conda
        if (b.package, b.version) == (torch.name, torch.after)
        and fnmatchcase(torch.build, b.build)
        and torch.subdir in (None, b.subdir)
    )
    return next(matching, None)


def _of_family(changes: Sequence[Change], environment: Environment, catalogue: Catalogue) -> tuple[Change, ...]:
    members = family_of(environment, catalogue)
    return tuple(c for c in changes if c.name in TORCH or (c.name in members and c.is_another))


def _is_unasked(
    change: Change,
    requested: frozenset[str] | None,
    torch: Change | None,
    environment: Environment,
    catalogue: Catalogue,
) -> bool:
    """Whether an installed package changes although neither it nor the torch that requires it is requested."""
    if requested is None or change.before is None or not change.is_another or change.name in requested:
        return False
    # Who asks for torch accepts the Triton and the GPU libraries that it requires.
    asks_torch = torch is not None and torch.name in requested
    return not (asks_torch and (change.name == "triton" or change.name not in catalogue.family))


def _new_causes(before: Scene, after: Scene, environment: Environment) -> tuple[Diagnosis, ...]:
    """Faults by the rules after the command that do not exist today, with commands that name the environment."""
    today = {answer.cause for answer in weighed(before) if isinstance(answer, Finding)}
    if not after.gpus:
        today.add("cpu-build")  # Without a known GPU, a CPU build may be just right.
    new = [answer for answer in weighed(after) if isinstance(answer, Finding) and answer.cause not in today]
    return addressed(concluded(after, new), environment).diagnoses


# A preview as text for a terminal.


def describe(found: Preview, width: int = WIDTH) -> str:
    """The effect, why it is harmful, and what to do instead, wrapped at a width."""
    if not found.changes:
        return f"torch and the packages that belong to it stay as they are in {found.prefix}."
    lines = [f"In {found.prefix}:", *wrapped(changes_in_words(found.changes), width)]
    torch = next((c for c in found.changes if c.name in TORCH and c.after), None)
    if torch is not None and found.works is not None:
        says = {
            "yes": "runs on this machine",
            "no": "does not run on this machine",
            "unknown": "may or may not run here",
        }
        lines += wrapped(f"{torch.name} {torch.after} {says[found.works]}: {found.why}.", width)
    # The line above already tells why torch itself does not run.
    for diagnosis in found.causes if found.works != "no" else found.causes[1:]:
        lines += wrapped(f"Afterwards: {diagnosis.cause}. {diagnosis.explanation}", width)
    if found.unasked:
        lines += wrapped(f"The command does not request {' or '.join(found.unasked)}; a dependency replaces it.", width)
    return "\n".join([*lines, *_instead(found, width)])


def _instead(found: Preview, width: int) -> Iterator[str]:
    """Alternatives to a command that is refused."""
    if found.keeps:
        yield f"  This {'leaves them as they are' if found.unasked else 'installs the builds for the installed torch'}:"
        yield f"      {found.keeps}"
    if found.untried:
        yield from wrapped("This should work, but its index cannot be reached from here, so it was not tried:", width)
        yield f"      {found.untried}"
    if found.keeps and found.unasked:
        yield "  To make plain installs keep them from now on:"
        yield f"      envsolve guard --write --prefix {shlex.quote(found.prefix)}"
    if found.keeps or found.untried:
        return
    if found.unasked:
        held = " ".join(f"{c.name}=={c.before}" for c in found.changes if c.name in found.unasked)
        yield from wrapped(
            f"The installer finds no solution that keeps {held}. `envsolve plan` finds compatible versions; install "
            "them into a separate environment.",
            width,
        )
    for diagnosis in found.causes[:1]:
        # Others only ask for more facts, and of this environment and machine all are known.
        remedies = [r.command for r in diagnosis.remedies if r.command and " install " in r.command]
        for command in remedies[:1]:
            yield "  Instead:"
            yield f"      {command}"
        if not remedies and not found.unasked:
            names = " and ".join(c.name for c in found.changes if c.after)
            yield from wrapped(f"No known build of {names} works with this torch: do not install it.", width)
