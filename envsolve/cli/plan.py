"""``envsolve plan``: from requirements and machines to a plan, or several, as text or files."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, NamedTuple

import typer
from msgspec import structs

from envsolve.cli.completion import format_values, package_values
from envsolve.cli.options import Asked, Machines, argument, option, path
from envsolve.cli.output import SETTINGS, STDOUT, check_target, confirm, deliver, deliver_text, remark
from envsolve.cli.remembered import recalled, remember
from envsolve.errors import EnvsolveError, ImpossibleError, UsageError
from envsolve.planning import plans as planning
from envsolve.system import files
from envsolve.system.limits import count_of

if TYPE_CHECKING:
    from envsolve.machine.model import Machine
    from envsolve.planning.groups import Plans, WhatIf
    from envsolve.planning.plan import Plan
    from envsolve.planning.request import Request

Pairs = tuple[tuple[str, str], ...]


class Preferred(NamedTuple):
    """The options that name versions to prefer: those of a lock, or of an environment."""

    lock: Annotated[
        Path | None,
        path(
            "--lock",
            metavar="FILE",
            help="Prefer the versions and the Python of this pylock.toml (default: the versions of the lock in -o).",
        ),
    ] = None
    upgrade: Annotated[bool, option("-U", "--upgrade", help="Ignore the existing lock and upgrade everything.")] = False
    upgrade_package: Annotated[
        list[str] | None, option("-P", "--upgrade-package", metavar="NAME", help="Upgrade this package. Repeatable.")
    ] = None
    prefer: Annotated[
        Literal["newest", "installed"] | None,
        option("--prefer", help="Prefer the newest versions, or installed ones (see --prefix and --installed)."),
    ] = None
    prefix: Annotated[
        Path | None, path("--prefix", metavar="DIR", help="Prefer the versions installed in this environment.")
    ] = None
    installed: Annotated[
        Path | None,
        path("--installed", metavar="FILE", help="Prefer the versions in this list (output of `pip freeze`, or JSON)."),
    ] = None

    def existing_lock(self, output: Path | None, form: str) -> Path | None:
        """Return the lock whose versions are preferred: the named one, otherwise the lock that is overwritten."""
        if self.upgrade:
            return None
        if self.lock is None and form == "pylock" and output is not None:
            from envsolve.install.lock_classes import is_own_lock

            return output if is_own_lock(output) else None
        return self.lock

    def named(self, output: Path | None) -> Path | None:
        """Return the lock that remembers the request, if the command has none of its own."""
        return self.lock or (output if output is not None and output.suffix == ".toml" else None)

    def requires_python(self) -> str | None:
        """Return the ``requires-python`` of the lock that is named; the Python of one that is overwritten is free.

        Raises:
            UsageError: The lock cannot be read.
        """
        if self.lock is None or self.upgrade:
            return None
        from envsolve.install.files import read_lock

        required = read_lock(self.lock).pylock.requires_python
        return str(required) if required else None

    def versions(self, lock: Path | None) -> Pairs:
        """Return names and versions to prefer.

        Raises:
            UsageError: Options contradict each other, or a place cannot be read.
        """
        prefix, installed = self.prefix, self.installed
        if self.prefer == "installed" and prefix is None and installed is None:
            hint = "give the environment: --prefix DIR or --installed FILE"
            raise UsageError("--prefer installed requires an environment", hint=hint)
        if self.prefer == "newest":
            prefix = installed = None
        if lock is None and prefix is None and installed is None:
            return ()
        text = _text(installed) if installed is not None else None
        from envsolve.diagnose.report.packages import installed_versions

        return installed_versions(lock, prefix=prefix, installed=text, upgrade=self.upgrade_package or ())


def command(
    requirements: Annotated[
        list[str] | None,
        argument(
            metavar="REQ", help="Requirements: torch, 'torch>=2.8', name @ URL, or a project.", values=package_values
        ),
    ] = None,
    asked: Asked = Asked(),
    machines: Machines = Machines(),
    form: Annotated[
        str | None,
        option(
            "--format",
            metavar="NAME",
            help="Output format: summary, json, pylock, environment-yml, pip, ...",
            values=format_values,
        ),
    ] = None,
    builder: Annotated[
        str | None, option("--for", metavar="docker|apptainer", help="Write a container file for docker or apptainer.")
    ] = None,
    output: Annotated[
        Path | None,
        path("-o", metavar="FILE|DIR", help="Write the plan to FILE; several plans into DIR, one file each."),
    ] = None,
    allow_groups: Annotated[
        bool, option("--allow-groups", help="If no single plan fits all machines, make as few plans as possible.")
    ] = False,
    what_if: Annotated[
        str | None,
        option("--what-if", metavar="CHANGE", help="Show the plan for a changed machine: 'driver 580', 'RTX 5090'."),
    ] = None,
    write: Annotated[
        Path | None,
        path(
            "--write",
            metavar="FILE",
            help="Change this pyproject.toml (uv, Poetry) or pixi.toml, so that uv, Poetry or pixi installs the plan.",
        ),
    ] = None,
    sure: Annotated[bool, option("--yes", "-y", help="Do not ask before --write changes FILE.")] = False,
    preferred: Preferred = Preferred(),
) -> None:
    """Choose what to install on a machine.

    Judges every published torch build for the machine, resolves the whole set, and writes it down.
    """
    from envsolve.formats import format_named, in_containers

    if write is not None:
        if output is not None or builder is not None or what_if is not None:
            raise UsageError("--write cannot be combined with -o, --for or --what-if", hint="leave those options out")
        request = asked.request(requirements)
        write_project(write, form, request, machines.named_or_host(), sure=sure)
        return
    words, asked, machines, groups = recalled(requirements or (), asked, machines, preferred.named(output))
    allow_groups = allow_groups or groups
    chosen = _format(form, builder, output, several=allow_groups)
    family = format_named(chosen).FAMILY
    request = asked.request(words, chosen if family == "conda" else None)
    (check_place if allow_groups else _check_file)(chosen, output)
    _check_question(chosen, what_if, conda=request.manager == "conda", several=allow_groups)
    lock = preferred.existing_lock(output, chosen)
    required = preferred.requires_python() if request.python is None else None
    request = structs.replace(request, keep=preferred.versions(lock), requires_python=required)
    given = machines.named_or_host()
    if family == "container":
        given = in_containers(given)

    def remembering(text: str) -> str:
        if chosen != "pylock":
            return text
        return remember(text, words, asked, machines, groups=allow_groups, place=output)

    if allow_groups:
        plans = planning.plan_groups(request, given)
        deliver_plans(plans, chosen, output, remembering)
        made, failed = plans.plans, bool(plans.unserved)
    elif what_if is not None:
        answer = planning.what_if(what_if, request, given)
        _deliver(_answered(answer, chosen), chosen, output)
        made, failed = (), answer.now.status == "impossible"
    else:
        made = (planning.plan(request, given),)
        _deliver(remembering(_written(made[0], chosen)), chosen, output)
        if output is not None or chosen not in ("summary", "json"):
            tell(made[0])
        failed = made[0].status == "impossible"
    for plan in made:
        tell_kept(plan, tuple(request.keep), lock)
    if failed:
        raise typer.Exit(ImpossibleError.exit_code)


def write_project(file: Path, form: str | None, request: Request, machines: Sequence[Machine], *, sure: bool) -> None:
    """Plan for machines, show what changes in a project's file, and write it after confirmation.

    Raises:
        UsageError: The file cannot be changed, or confirmation requires a terminal.
        ImpossibleError: Nothing fits some machine.
    """
    import difflib  # like the editing of TOML, only here

    from envsolve.formats import also_asked, edited, edits, next_step
    from envsolve.machine.model import one_line

    check_target(file, "--write")
    old = _text(file) if files.is_file(file) else ""
    chosen = edits(file, form, old)
    request = structs.replace(request, requirements=(*request.requirements, *also_asked(old, chosen)))
    plans = planning.plan_groups(request, machines)
    for made in plans.unserved:
        show_impossible(made)
    if plans.unserved:
        raise typer.Exit(ImpossibleError.exit_code)
    new, extras = edited(old, plans, chosen, file.absolute().parent.name)
    for made in plans.plans:
        tell(made)
    if new == old:
        remark(f"{file} needs no change")
    else:
        changes = difflib.unified_diff(old.splitlines(True), new.splitlines(True), str(file), f"{file} (new)")
        deliver("".join(changes), None)
        if not sure:
            confirm()
        deliver(new, file)
    for place, made in enumerate(plans.plans):
        command = next_step(chosen, extras.get(place))
        remark(f"next: {command}   # {'; '.join(map(one_line, made.machines))}")


def _format(named: str | None, builder: str | None, output: Path | None, *, several: bool) -> str:
    """Return the format that the options name, otherwise the one for the output's file name.

    Raises:
        UsageError: The format or builder is unknown, or they contradict each other.
    """
    from envsolve.formats import format_built_by, format_for, format_named

    if builder is not None:
        read = format_built_by(builder)
        if named not in (None, "dockerfile", read):
            message = f"--for {builder} writes a container file, and cannot be combined with --format {named}"
            raise UsageError(message, hint="leave --format out")
        return read
    if named is not None:
        return format_named(named).NAME
    return "pylock" if several and is_directory(output) else format_for(output)


def _check_question(form: str, question: str | None, *, conda: bool, several: bool) -> None:
    """Refuse combinations with --what-if and --allow-groups that have no answer.

    Raises:
        UsageError: The options contradict each other.
    """
    if conda and (several or question is not None):
        raise UsageError("--allow-groups and --what-if do not support conda packages", hint="make one plan at a time")
    if question is None:
        return
    if form not in ("summary", "json"):
        raise UsageError(f"--what-if gives two plans, and --format {form} holds one", hint="formats: summary, json")
    if several:
        raise UsageError("--what-if and --allow-groups cannot be combined", hint="give one machine at a time")


def _check_file(form: str, output: Path | None) -> None:
    """Refuse a file that a plan of that format cannot be written to.

    Raises:
        UsageError: It is one.
    """
    check_target(output)
    if form == "pylock" and output not in (None, STDOUT):
        from envsolve.formats.pylock import check_path

        check_path(output)


def is_directory(output: Path | None) -> bool:
    """Whether ``-o`` names a directory; a path without a suffix where nothing is yet becomes one."""
    return output is not None and (files.is_folder(output) or (not output.suffix and not files.is_there(output)))


def check_place(form: str, output: Path | None) -> None:
    """Refuse to write several plans to one file in a format that holds one.

    Raises:
        UsageError: It is such a format, or the place cannot be written to.
    """
    from envsolve.formats import format_named

    if output is not None and is_directory(output):
        if not files.is_folder(output.absolute().parent):
            raise UsageError(
                f"there is no directory {output.parent}", hint="create it, or give another directory after -o"
            )
        return
    _check_file(form, output)
    if not format_named(form).HOLDS_SEVERAL:
        raise UsageError(
            f"--allow-groups may give several plans, but --format {form} can hold only one",
            hint="give a directory with -o; envsolve writes one file for each plan into it",
        )


def deliver_plans(
    made: Plans, form: str, output: Path | None, remembering: Callable[[str], str] = lambda text: text
) -> None:
    """Print several plans, or write them to a file or a directory, and say what they are.

    Args:
        made: The plans.
        form: The format's name.
        output: The place.
        remembering: What adds the request to the text of a lock of all of them.

    Raises:
        EnvsolveError: Something cannot be written, or a plan cannot be in that format.
    """
    from envsolve.formats import files, group_names, remarks, render_plans

    if output is not None and is_directory(output):
        texts = files(made, form)
        try:
            output.mkdir(exist_ok=True)
        except OSError as error:
            reason = error.strerror or str(error)
            raise EnvsolveError(f"cannot make {output}: {reason}", hint="choose another place with -o") from error
        for name, text in texts.items():
            deliver(text, output / name)
    else:
        _deliver(remembering(render_plans(made, form, sources=SETTINGS.verbose)), form, output)
    if output is not None:
        named = [*zip(group_names(made), made.plans, strict=True), *(("unserved", plan) for plan in made.unserved)]
        for name, plan in named:
            for line in remarks(plan):
                remark(f"{name}: {line}")


def _answered(answer: WhatIf, form: str) -> str:
    from envsolve.formats import json, summary

    if form == "json":
        return json.render_what_if(answer)
    return summary.render_what_if(answer, sources=SETTINGS.verbose)


def _written(made: Plan, form: str) -> str:
    if form != "summary":
        return made.render(form)
    from envsolve.formats import summary

    # Nothing is printed that may hold a password, as the URL of an index does.
    given = SETTINGS.words
    planned = given[:1] == ["plan"] and not {"-o", "--format"} & {*given} and not any("@" in word for word in given)
    words = ["envsolve", *given] if planned else []
    return summary.render(made, sources=SETTINGS.verbose, command=words)


def show_impossible(made: Plan) -> None:
    """Print the conflict and the fixes."""
    deliver_text(_written(made, "summary"), None)


def _deliver(text: str, form: str, output: Path | None) -> None:
    (deliver_text if form == "summary" else deliver)(text, output)


def tell(made: Plan) -> None:
    """Print the warnings of a plan that is written for a program, or into a file."""
    from envsolve.formats import remarks

    for line in remarks(made):
        remark(line)


def tell_kept(made: Plan, kept: Pairs, lock: Path | None) -> None:
    """Print how much of a lock the plan keeps."""
    if lock is None or made.status == "impossible":
        return
    same = sum((package.name, package.version) in kept for package in made.packages)
    remark(f"kept: {same} of {count_of(len(made.packages))} are as in {lock}; --upgrade allows all to change")


def _text(installed: Path) -> str:
    try:
        return files.read_regular(installed).decode("utf-8", "replace")
    except OSError as error:
        raise UsageError(f"cannot read {installed}: {error.strerror or error}") from error
