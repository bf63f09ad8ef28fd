"""``envsolve fleet``: a cluster of different machines, from probing its nodes to verifying them."""

from __future__ import annotations

import shlex
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from envsolve.cli.completion import package_values
from envsolve.cli.install import ShownSteps
from envsolve.cli.options import Asked, Form, OutputFile, argument, option, path
from envsolve.cli.output import check_output, deliver, deliver_as, form_of, remark
from envsolve.errors import ImpossibleError, IndexUnavailableError, UsageError, VerificationError

if TYPE_CHECKING:
    from envsolve.fleet.engines import Engine

HELP = "Probe, plan, install and verify on a cluster."
_FLEET = Path("fleet")
# Kubernetes: the most completions of an Indexed Job whose indexes have limits of their own.
_MOST_PODS = 10_000

FleetDirectory = Annotated[
    Path, path("--fleet", metavar="DIR", help="The fleet's directory, on a file system that the nodes share.")
]


class Reach(NamedTuple):
    """The options that say how commands reach nodes."""

    slurm: Annotated[bool, option("--slurm", help="Run one Slurm job on each node.")] = False
    partition: Annotated[
        str | None, option("--partition", metavar="NAME", help="Use only the nodes of this partition.")
    ] = None
    nodes: Annotated[
        str | None,
        option(
            "--nodes",
            metavar="SET",
            help="Use only these nodes: 'gpu[01-64]'. With --from: the nodes that should have a profile.",
        ),
    ] = None
    ssh: Annotated[
        str | None,
        option("--ssh", metavar="SET", help="Connect to these nodes with ClusterShell: 'gpu[01-64]', '@gpu'."),
    ] = None
    worker: Annotated[
        str,
        option("--worker", metavar="NAME", help="How ClusterShell runs commands: ssh, rsh, or exec (on this machine)."),
    ] = "ssh"
    ssh_options: Annotated[
        str | None, option("--ssh-options", metavar="WORDS", help="Additional ssh options: '-p 2222 -l admin'.")
    ] = None
    fanout: Annotated[
        int, option("--fanout", metavar="N", help="Maximum number of nodes to contact at the same time.")
    ] = 64
    time_limit: Annotated[
        float | None,
        option("--time-limit", metavar="SECONDS", help="Time limit for each node (default: probe 120, verify 1200)."),
    ] = None
    wait: Annotated[
        float,
        option(
            "--wait", metavar="SECONDS", help="Time limit for all Slurm jobs together, including time in the queue."
        ),
    ] = 1800.0

    def engine(self, *, time_limit: float = 120.0, whole: bool = False) -> Engine | None:
        """Return the engine that the options name; None if they name none.

        Raises:
            UsageError: They name two.
        """
        from envsolve.fleet.engines import Options, engine_named

        if self.slurm and self.ssh is not None:
            raise UsageError("--slurm and --ssh are two ways to reach the nodes", hint="give one of them")
        if not self.slurm and self.ssh is None:
            return None
        limit = time_limit if self.time_limit is None else self.time_limit
        if min(self.fanout, limit, self.wait) <= 0:
            raise UsageError(
                "--fanout, --time-limit and --wait must be above 0", hint="leave them out for the defaults"
            )
        options = Options(
            nodes=self.nodes if self.slurm else self.ssh,
            partition=self.partition,
            worker=self.worker,
            ssh_options=self.ssh_options,
            fanout=self.fanout,
            time_limit=limit,
            wait=self.wait,
            whole=whole,
        )
        return engine_named("slurm" if self.slurm else "clustershell", options)

    def through_ray(self, address: str) -> Engine:
        """Return the engine for a Ray cluster."""
        from envsolve.fleet.engines import Options, engine_named

        limit = 120.0 if self.time_limit is None else self.time_limit
        return engine_named("ray", Options(nodes=address, time_limit=limit, wait=self.wait))


def probe(
    fleet: FleetDirectory = _FLEET,
    sources: Annotated[
        list[Path] | None,
        path(
            "--from", metavar="DIR", help="Read machine files or probe logs from DIR, and contact no nodes. Repeatable."
        ),
    ] = None,
    reach: Reach = Reach(),
    ray: Annotated[
        str | None,
        option(
            "--ray",
            metavar="ADDRESS",
            help="Run one task on each node of this Ray cluster ('auto': the cluster that this machine belongs to).",
        ),
    ] = None,
    kubernetes: Annotated[
        Path | None,
        path(
            "--kubernetes",
            metavar="FILE",
            help="Only write a Kubernetes manifest. Its pods print the profiles, which you read with --from.",
        ),
    ] = None,
    job: Annotated[
        int | None,
        option(
            "--job",
            metavar="COUNT",
            help="With --kubernetes: write a Job of COUNT pods, one per node, instead of a DaemonSet.",
        ),
    ] = None,
    python: Annotated[
        str, option("--python", metavar="EXE", help="The Python interpreter on the nodes, 3.6 or newer.")
    ] = "python3",
    form: Form = None,
    output: OutputFile = None,
) -> None:
    """Collect the hardware and driver of every node.

    Nothing needs to be installed on the nodes. Nodes that do not answer are listed with the reason. Exit code 4 if no
    node answers.
    """
    from envsolve.fleet.jobs import only_one
    from envsolve.fleet.kubernetes import probe_manifest
    from envsolve.fleet.model import describe, names_expanded
    from envsolve.fleet.probe import probe_files, probe_nodes
    from envsolve.system.processes import signals_raised

    check_output(form, output)
    form_of(form, output)
    engine = reach.engine()
    if sum((engine is not None, ray is not None, bool(sources), kubernetes is not None)) != 1:
        raise UsageError(
            "choose exactly one way to reach the nodes",
            hint="give one of --slurm, --ssh SET, --ray ADDRESS, --from DIR, --kubernetes FILE",
        )
    if ray is not None:
        engine = reach.through_ray(ray)
    if job is not None and (kubernetes is None or not 1 <= job <= _MOST_PODS):
        hint = f"use --kubernetes FILE --job COUNT, with a COUNT from 1 to {_MOST_PODS}"
        raise UsageError(f"--job {job}: --job is the number of pods in a manifest", hint=hint)
    if kubernetes is not None:
        deliver(probe_manifest(nodes=job), kubernetes)
        return
    with only_one(fleet), signals_raised(signal.SIGINT, hint="run the same command again to continue"):
        if engine is None:
            inventory = probe_files(fleet, sources or (), names_expanded(reach.nodes or ""))
        else:
            inventory = probe_nodes(fleet, engine, python=python)
    deliver_as(form, inventory, lambda: describe(inventory), output)
    if not inventory.classes:
        raise typer.Exit(VerificationError.exit_code)
    _next(f"fleet plan torch{_of(fleet)}", "or with -r FILE and your own requirements")


def _of(fleet: Path) -> str:
    return "" if fleet == _FLEET else f" --fleet {shlex.quote(str(fleet))}"


def _next(words: str, note: str) -> None:
    """Name the next command after the result."""
    remark(f"Next      envsolve {words}  ({note})")


def show(fleet: FleetDirectory = _FLEET, form: Form = None, output: OutputFile = None) -> None:
    """Show what the last probe found."""
    from envsolve.fleet.model import describe
    from envsolve.fleet.probe import read_inventory

    inventory = read_inventory(fleet)
    deliver_as(form, inventory, lambda: describe(inventory), output)


def plan(
    requirements: Annotated[
        list[str] | None,
        argument(
            metavar="REQ", help="Requirements: torch, 'torch>=2.8', name @ URL, or a project.", values=package_values
        ),
    ] = None,
    asked: Asked = Asked(),
    fleet: FleetDirectory = _FLEET,
    without: Annotated[
        list[str] | None, option("--without", metavar="CLASS", help="Leave out the nodes of this class. Repeatable.")
    ] = None,
    form: Form = None,
    output: OutputFile = None,
) -> None:
    """Make the fewest plans that fit all nodes.

    Writes a lock for each plan into the fleet's directory, and shows which class gets which plan, what jobs must ask
    for, and what a driver upgrade would save. Without --python it uses the newest Python that all nodes have. Exit
    code 3 if a class gets no plan; 5 if an index cannot be reached, also if the catalogue answers in its place: the
    plan is then shown and not saved, because locks require hashes.
    """
    from envsolve.fleet.jobs import only_one
    from envsolve.fleet.plan import describe, plan_fleet
    from envsolve.fleet.probe import read_inventory

    check_output(form, output)
    form_of(form, output)
    request = asked.request(requirements)
    inventory = read_inventory(fleet)
    with only_one(fleet):
        made = plan_fleet(fleet, inventory, request, without=without or ())
    deliver_as(form, made, lambda: describe(made, inventory), output)
    if made.unlocked:
        raise IndexUnavailableError(
            f"the plan is shown but not saved: {made.unlocked}",
            hint="run the same command again when the index can be reached",
        )
    if made.unserved:
        raise typer.Exit(ImpossibleError.exit_code)
    _next(f"fleet install{_of(fleet)}", "run it once; it installs into the directory that the nodes share")


def install(
    fleet: FleetDirectory = _FLEET,
    manager: Annotated[str | None, option("--manager", metavar="pip|uv", help="Package manager to use.")] = None,
    squashfs: Annotated[
        bool, option("--squashfs", help="Also pack each environment into one SquashFS file that the nodes can mount.")
    ] = False,
) -> None:
    """Make the environment of each plan.

    Makes them in the fleet's directory, once for all nodes, with a modulefile for each. Environments that are there and
    whole are left alone. Nothing is verified: see `envsolve fleet verify`.
    """
    from envsolve.fleet.install import install_fleet, pack
    from envsolve.fleet.plan import read_plan

    made = read_plan(fleet)
    done = install_fleet(fleet, made, manager=manager, progress=ShownSteps())
    for name, one in done.items():
        for warning in one.warnings:
            remark(f"{name}: note: {warning}")
        remark(f"{name}: {'ready' if one.changed else 'as planned'}: {one.prefix}")
    for group in made.groups if squashfs else ():
        remark(f"{group.name}: image: {pack(fleet, group)}")
    _next(f"fleet verify{_of(fleet)} --slurm", "or --ssh SET; then start jobs with envsolve run --fleet")


def verify(
    fleet: FleetDirectory = _FLEET,
    reach: Reach = Reach(),
    compile_only: Annotated[
        bool, option("--compile-only", help="Only compile kernels for the GPUs of each node. Requires no GPU.")
    ] = False,
    quick: Annotated[bool, option("--quick", help="Run only the fastest and most useful checks.")] = False,
    again: Annotated[bool, option("--again", help="Also verify nodes that have already passed.")] = False,
    reports: Annotated[
        bool,
        option(
            "--reports",
            help="Do not run anything; evaluate the reports in the fleet's directory (see emit kubernetes).",
        ),
    ] = False,
    python: Annotated[
        str | None,
        option(
            "--python",
            metavar="EXE",
            help="A Python interpreter on the nodes that has envsolve installed "
            "(default: the one running this command).",
        ),
    ] = None,
    html: Annotated[
        Path | None,
        path(
            "--html", metavar="FILE", help="Also write the report as an HTML page, for example to attach to a ticket."
        ),
    ] = None,
    form: Form = None,
    output: OutputFile = None,
) -> None:
    """Verify the environments on every node.

    Writes one report for each node into the fleet's directory. Nodes that have passed with the same environment are not
    run again. Exit code 4 unless all nodes pass.
    """
    from envsolve.fleet.jobs import only_one
    from envsolve.fleet.plan import read_plan
    from envsolve.fleet.probe import read_inventory
    from envsolve.fleet.verify import Choice, describe, fold_reports, page, verify_fleet
    from envsolve.system.processes import signals_raised

    check_output(form, output)
    form_of(form, output)
    if compile_only and quick:
        raise UsageError("--quick applies only to checks that run on a GPU", hint="leave out --compile-only")
    engine = reach.engine(time_limit=1200.0, whole=not compile_only)
    if (engine is not None) is reports:
        what = (
            "--reports only reads files, and cannot be combined with a way to reach the nodes"
            if reports
            else "the command does not say how to reach the nodes"
        )
        raise UsageError(what, hint="give one of --slurm, --ssh SET and --reports")
    made, inventory = read_plan(fleet), read_inventory(fleet)
    choice = Choice(compile_only, quick, again, python or sys.executable)
    with only_one(fleet), signals_raised(signal.SIGINT, hint="run the same command again to continue"):
        if engine is None:
            report = fold_reports(fleet, made, inventory, choice)
        else:
            report = verify_fleet(fleet, made, inventory, engine, choice)
    if html is not None:
        deliver(page(report), html)
    deliver_as(form, report, lambda: describe(report), output)
    if not report.passed:
        raise typer.Exit(VerificationError.exit_code)


def emit(
    tool: Annotated[
        str,
        argument(
            metavar="TOOL",
            help="The tool to write files for: ansible, kubernetes, ray, skypilot, slurm-nccl or slurm-prolog.",
        ),
    ],
    fleet: FleetDirectory = _FLEET,
    plan: Annotated[str | None, option("--plan", metavar="NAME", help="Write the file for this plan only.")] = None,
    python: Annotated[
        str | None,
        option(
            "--python",
            metavar="EXE",
            help="A Python interpreter on the nodes that has envsolve installed "
            "(default: the one running this command).",
        ),
    ] = None,
    output: OutputFile = None,
) -> None:
    """Write a file for a tool that starts programs.

    Jobs of Kubernetes that verify, a runtime_env of Ray, tasks of SkyPilot, a playbook of Ansible, a prolog of Slurm,
    or a job of Slurm that checks NCCL between nodes, with the fleet's environments.
    """
    from msgspec.structs import replace

    from envsolve.fleet.emit import emitted
    from envsolve.fleet.plan import read_plan

    made = read_plan(fleet)
    if plan is not None:
        chosen = tuple(group for group in made.groups if group.name == plan)
        if not chosen:
            names = ", ".join(group.name for group in made.groups)
            raise UsageError(f"--plan {plan}: the fleet has no such plan", hint=f"plans: {names}")
        made = replace(made, groups=chosen)
    deliver(emitted(tool, fleet, made, python=python or sys.executable), output)


COMMANDS = (probe, show, plan, install, verify, emit)
