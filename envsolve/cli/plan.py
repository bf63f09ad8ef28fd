"""``envsolve plan``: from requirements and a machine to a plan."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import click

import envsolve
from envsolve.cli import options, plan_output
from envsolve.cli.declare import argument, option
from envsolve.cli.output import SETTINGS, STDOUT, check_target, deliver, remark
from envsolve.errors import ImpossibleError, UsageError

if TYPE_CHECKING:
    from envsolve.planning.groups import WhatIf
    from envsolve.planning.plan import Plan


Requirements = Annotated[
    list[str] | None, argument(metavar="REQ", help="Requirements: torch, 'torch>=2.8', name @ URL, a project.")
]
Files = Annotated[
    list[Path] | None, option("-r", "--requirement", metavar="FILE", help="A requirements file or environment.yml.")
]
Constraints = Annotated[list[Path] | None, option("-c", "--constraint", metavar="FILE", help="A constraints file.")]
Extras = Annotated[list[str] | None, option("--extra", metavar="NAME", help="An extra of the project.")]
Groups = Annotated[list[str] | None, option("--group", metavar="NAME", help="A dependency group of the project.")]
Cuda = Annotated[str, option("--cuda", metavar="auto|cpu|cuNNN", help="The CUDA flavour.")]
ExcludeNewer = Annotated[str | None, option("--exclude-newer", metavar="DATE", help="Nothing published later.")]
Prereleases = Annotated[bool, option("--pre", help="Consider pre-releases.")]
IndexUrl = Annotated[str | None, option("--index-url", metavar="URL", help="The default package index.")]
ExtraIndexUrls = Annotated[
    list[str] | None, option("--extra-index-url", metavar="URL", help="Another index, for names that it lacks.")
]
Offline = Annotated[bool, option("--offline", help="Answer from the cache and the catalogue alone.")]
_CONTAINERS = ("dockerfile", "apptainer")


def command(
    requirements: Requirements = None,
    files: Files = None,
    constraints: Constraints = None,
    extras: Extras = None,
    groups: Groups = None,
    machine: options.MachineFiles = None,
    target: options.TargetTexts = None,
    gpu: options.GpuNames = None,
    driver: options.DriverVersion = None,
    platform: options.PlatformName = None,
    python: options.PythonVersion = None,
    cuda: Cuda = "auto",
    manager: options.ManagerName = None,
    channel: options.ChannelNames = None,
    form: Annotated[
        str | None, option("--format", metavar="NAME", help="summary, json, pylock, environment-yml, pip, ...")
    ] = None,
    builder: Annotated[
        str | None, option("--for", metavar="docker|apptainer", help="A container file, for its builder.")
    ] = None,
    output: Annotated[
        Path | None,
        option("-o", metavar="FILE|DIR", help="Write it to FILE; several plans, a file each, into DIR."),
    ] = None,
    allow_groups: Annotated[
        bool, option("--allow-groups", help="The fewest plans that serve all machines, where one does not.")
    ] = False,
    what_if: Annotated[
        str | None,
        option("--what-if", metavar="CHANGE", help="What another machine would give: 'driver 580', 'RTX 5090'."),
    ] = None,
    lock: plan_output.LockFile = None,
    upgrade: plan_output.Upgrade = False,
    upgrade_package: plan_output.UpgradePackages = None,
    prefer: plan_output.Prefer = None,
    prefix: plan_output.PrefixFolder = None,
    installed: plan_output.InstalledList = None,
    exclude_newer: ExcludeNewer = None,
    prereleases: Prereleases = False,
    index_url: IndexUrl = None,
    extra_index_url: ExtraIndexUrls = None,
    offline: Offline = False,
) -> None:
    """Choose what to install on a machine.

    Judges every published torch build for the machine, resolves the whole set, and writes it down.
    """
    form = _container_file(builder, form)
    chosen = _format(form or ("pylock" if allow_groups and plan_output.is_folder(output) else None), output)
    manager = options.manager_for(manager, chosen, files, channel)
    check_asked(requirements, files)
    (plan_output.check_place if allow_groups else _check_place)(chosen, output)
    if what_if is not None:
        _check_question(chosen, allow_groups=allow_groups)
    stays = plan_output.lock_to_keep(lock, output, chosen, upgrade=upgrade)
    keep = plan_output.to_keep(stays, upgrade_package, prefer, prefix, installed)
    if manager == "conda" and (allow_groups or what_if is not None):
        raise UsageError("--allow-groups and --what-if are not for conda packages", hint="plan one by one")
    request = envsolve.Request(
        requirements or (),
        files=files or (),
        constraints=constraints or (),
        extras=extras or (),
        groups=groups or (),
        python=options.python_version(python),
        cuda=options.cuda_flavour(cuda),
        exclude_newer=exclude_newer,
        prereleases=prereleases,
        keep=keep,
        index_url=index_url,
        extra_index_urls=extra_index_url or (),
        offline=offline,
        manager=manager,
        channels=channel or (),
    )
    machines = options.machines(machine, target, gpu, driver, platform)
    if chosen in _CONTAINERS:
        machines = envsolve.in_containers(machines)
    if allow_groups:
        plans = envsolve.plan_groups(request, machines)
        plan_output.deliver_plans(plans, chosen, output)
        for made in plans.plans:
            plan_output.tell_kept(made, keep, stays)
        if plans.unserved:
            raise click.exceptions.Exit(ImpossibleError.exit_code)
        return
    if what_if is not None:
        answer = envsolve.what_if(what_if, request, machines)
        deliver(_answered(answer, chosen), output)
        if answer.now.status == "impossible":
            raise click.exceptions.Exit(ImpossibleError.exit_code)
        return
    made = envsolve.plan(request, machines)
    deliver(_written(made, chosen), output)
    if output is not None or chosen not in ("summary", "json"):
        tell(made)
    plan_output.tell_kept(made, keep, stays)
    if made.status == "impossible":
        raise click.exceptions.Exit(ImpossibleError.exit_code)


def _check_question(form: str, *, allow_groups: bool) -> None:
    """Refuse what an answer to a question cannot be.

    Raises:
        UsageError: The format is one of a plan alone, or several plans are asked for.
    """
    if form not in ("summary", "json"):
        raise UsageError(f"--what-if is a question, and --format {form} holds a plan", hint="formats: summary, json")
    if allow_groups:
        raise UsageError("--what-if and --allow-groups do not go together", hint="ask for the machines one by one")


def _answered(answer: WhatIf, form: str) -> str:
    from envsolve.formats import _several

    return _several.as_json(answer) if form == "json" else _several.as_text(answer, sources=SETTINGS.verbose)


def _check_place(form: str, output: Path | None) -> None:
    """Refuse a place that a plan of that format cannot be written to.

    Raises:
        UsageError: It is one.
    """
    check_target(output)
    if form == "pylock" and output not in (None, STDOUT):
        from envsolve.formats.pylock import check_path

        check_path(output)


def show_impossible(made: Plan) -> None:
    """Print the conflict and the remedies."""
    deliver(_written(made, "summary"), None)


def tell(made: Plan) -> None:
    """What a person should know of a plan whose text is for a program, or is not on the terminal."""
    from envsolve.formats import remarks

    for line in remarks(made):
        remark(line)


def _written(made: Plan, form: str) -> str:
    from envsolve.formats import render, summary

    return summary.render(made, sources=SETTINGS.verbose) if form == "summary" else render(made, form)


def check_asked(requirements: list[str] | None, files: list[Path] | None) -> None:
    """Refuse a request for nothing.

    Raises:
        UsageError: Neither a requirement nor a file is named.
    """
    if not requirements and not files:
        raise UsageError("what shall be planned?", hint="name packages (torch), a project (.) or a file (-r FILE)")


def _format(named: str | None, output: Path | None) -> str:
    """The format that was named, else the one that the name of the output file stands for.

    Raises:
        UsageError: There is no such format.
    """
    from envsolve.formats import formats

    if named is not None:
        if named not in formats():
            raise UsageError(f"--format {named}: there is no such plan format", hint=f"formats: {', '.join(formats())}")
        return named
    name = output.name if output else ""
    if name.startswith("pylock.") and name.endswith(".toml"):
        return "pylock"
    if name.startswith(("Dockerfile", "Containerfile")) or name.lower().endswith((".dockerfile", ".containerfile")):
        return "dockerfile"
    if name.startswith("conda-") and name.endswith(".lock"):
        return "conda-lock"
    if name in ("environment.yml", "pixi.toml"):
        return {"environment.yml": "environment-yml", "pixi.toml": "pixi"}[name]
    if name.endswith(".toml"):
        from envsolve.formats.pylock import check_path

        check_path(Path(name))
    return {".json": "json", ".txt": "requirements", ".def": "apptainer"}.get(Path(name).suffix, "summary")


def _container_file(builder: str | None, form: str | None) -> str | None:
    """The format that a builder of containers reads.

    Raises:
        UsageError: There is no such builder, or the format is not one of containers.
    """
    if builder is None:
        return form
    read = {"docker": "dockerfile", "podman": "dockerfile", "apptainer": "apptainer"}
    if builder not in read:
        raise UsageError(f"--for {builder}: there is no such builder", hint=f"builders: {', '.join(read)}")
    if form not in (None, "dockerfile", read[builder]):
        raise UsageError(f"--for {builder} is for a container file, not for --format {form}", hint="leave --format out")
    return read[builder]
