"""One environment for each plan of a fleet, in its directory, and the right one on each node.

An environment is at ``envs/NAME-DIGEST``, with the digest of its lock in its name: a new plan makes a new one beside
it, and jobs that run in the old one go on. ``modules`` has a modulefile for each.
"""

from __future__ import annotations

import dataclasses
import os
import platform
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path

from msgspec.structs import replace

from envsolve.errors import EnvsolveError, ImpossibleError, UsageError
from envsolve.fleet.jobs import refuse_links_of_others
from envsolve.fleet.model import Profile, Reader, names_folded
from envsolve.fleet.plan import FleetPlan, Group
from envsolve.fleet.probe import SCRIPT
from envsolve.install.environment import Installed, install
from envsolve.install.errors import Progress
from envsolve.machine.detect import detect
from envsolve.machine.model import Machine, one_line
from envsolve.planning.lock import mismatches, unknowns
from envsolve.system.files import is_file, is_folder, real_path, replace_file
from envsolve.system.processes import ask, capture
from envsolve.values import DriverVersion, processor

_PROBE_SECONDS = 60.0
_PACK_SECONDS = 3600.0
_MODULES, _IMAGES = "modules", "images"


def install_fleet(fleet: Path, made: FleetPlan, *, manager: str | None, progress: Progress) -> Mapping[str, Installed]:
    """Make the environment of every plan that is not there yet, and its modulefile.

    Every environment is made beside its place and put there in one step. Of two calls at once, the second one waits for
    the first and finds the work done. Nothing is verified here: a login node has other GPUs, or none.

    Returns:
        The installed environment of each plan, by its name.

    Raises:
        ImpossibleError: A plan is for another architecture than this computer's; all others are made first.
        EnvsolveError: As :func:`envsolve.install.environment.install`.
    """
    refuse_links_of_others(fleet)
    # What compiles is this computer's; driver and GPUs are those of other nodes.
    here = replace(detect(), driver=None, gpus=None, accelerators=None)
    done, elsewhere = {}, []
    for group in made.groups:
        if group.assumes.arch not in (None, processor(platform.machine())):
            elsewhere.append(group)
            continue
        installed = install(
            group.lock(fleet),
            group.environment(fleet),
            manager=manager,
            python=group.assumes.python,
            machine=here,
            progress=progress,
        )
        expected = unknowns(group.assumes, here)
        warnings = tuple(text for text in installed.warnings if text not in expected)
        done[group.name] = dataclasses.replace(installed, warnings=warnings)
        _write_module(fleet, group)
    if elsewhere:
        raise ImpossibleError(
            f"not made here: {', '.join(f'{one.name} is for {one.assumes.arch}' for one in elsewhere)}",
            hint=f"run the same command on one of {names_folded(elsewhere[0].nodes)}",
        )
    return done


def pack(fleet: Path, group: Group) -> Path:
    """Pack the environment of a plan into ``images/NAME-DIGEST.squashfs``, if that is not there yet.

    An environment has thousands of small files, on which shared file systems are slow; the image is one. It is to be
    mounted where the environment is, because scripts in it contain that path.

    Raises:
        EnvsolveError: mksquashfs is not installed, or fails.
    """
    place = environment_of(fleet, group)
    image = fleet / _IMAGES / f"{place.name}.squashfs"
    if is_file(image):
        return image
    program = shutil.which("mksquashfs")
    if program is None:
        raise UsageError("mksquashfs is not installed", hint="install squashfs-tools")
    image.parent.mkdir(parents=True, exist_ok=True)
    scratch = image.with_name(f".{image.name}.{platform.node()}-{os.getpid()}")
    words = [program, str(place), str(scratch), "-noappend", "-no-progress", "-quiet", "-all-root", "-comp", "zstd"]
    try:
        ended = capture(words, os.environ, limit=_PACK_SECONDS)
        if ended.returncode != 0:
            said = (ended.stderr.strip().splitlines() or ["no message"])[-1]
            raise EnvsolveError(f"mksquashfs: {said}", hint="is the disk full? Run the same command again")
        scratch.replace(image)
    finally:
        scratch.unlink(missing_ok=True)
    return image


def this_node() -> Profile:
    """Probe this node, as quickly as its driver answers.

    Raises:
        EnvsolveError: The probe failed.
    """
    # -I and -S: the environment that a job has set up has no say in it.
    printed = ask([sys.executable, "-I", "-S", str(SCRIPT), "--quick"], os.environ, limit=_PROBE_SECONDS)
    if printed is None:
        raise EnvsolveError("this node could not be probed", hint=f"run {SCRIPT} with the Python of the nodes")
    return Reader().read(printed.encode(), "the probe")


def choose(made: FleetPlan, node: str | None, machine: Machine) -> Group:
    """Return the plan for a node: the one that was made for it if that still fits, otherwise another one that fits.

    Raises:
        ImpossibleError: No plan fits, with the reason for each.
    """
    own = made.group_of.get(node or "")
    failed = {group.name: _against(group, machine, planned=group is own) for group in made.groups}
    fitting = [group for group in made.groups if not failed[group.name]]
    if not fitting:
        reasons = "".join(f"\n  {name}: {'; '.join(why)}" for name, why in failed.items())
        raise ImpossibleError(
            f"no plan of the fleet fits this node ({one_line(machine)}):{reasons}",
            hint="probe and plan the fleet again, or run the job on another "
            "node (the plan has constraints for Slurm and HTCondor)",
        )
    # Of several, the one with the newest driver requirement has the newest code.
    newest = max(fitting, key=lambda one: DriverVersion.parse(one.assumes.driver_required or "0"))
    return own if own in fitting and own is not None else newest


def _against(group: Group, machine: Machine, *, planned: bool) -> tuple[str, ...]:
    """Say why a plan does not fit a node; unknown facts count as reasons, because a job must not fail later.

    Args:
        planned: Whether the plan was made for this node, which may have GPUs that its packages do not use.
    """
    assumes = group.assumes
    if assumes.gpus and machine.gpus == ():
        return ("the plan is for GPUs, and this node has none",)
    if not assumes.gpus and machine.gpus != () and not (planned and machine.gpus):
        return ("the plan uses no GPU, but this node has one",)
    python = dataclasses.replace(assumes, python=None)  # the environment brings its own
    return (*mismatches(python, machine), *unknowns(python, machine))


def environment_of(fleet: Path, group: Group) -> Path:
    """Return the environment of a plan.

    Raises:
        UsageError: It is not installed, or its interpreter is not on this node.
    """
    place = group.environment(fleet)
    python = place / "bin/python"
    if not is_folder(place):
        raise UsageError(f"{place} is not installed", hint=f"run: envsolve fleet install --fleet {fleet}")
    if not is_file(python):
        raise UsageError(
            f"{real_path(python)}, the interpreter of {place}, is not on this node",
            hint="use a Python that all nodes have: envsolve fleet plan --python X.Y",
        )
    return place


def variables(place: Path, environ: Mapping[str, str]) -> Mapping[str, str]:
    """Return the variables of a process that runs in an environment, as its activation script sets them."""
    search = f"{place / 'bin'}{os.pathsep}{environ.get('PATH', os.defpath)}"
    kept = {name: value for name, value in environ.items() if name != "PYTHONHOME"}
    return {**kept, "PATH": search, "VIRTUAL_ENV": str(place)}


def _write_module(fleet: Path, group: Group) -> None:
    place = group.environment(fleet).absolute()
    path = fleet / _MODULES / "envsolve" / group.name
    path.parent.mkdir(parents=True, exist_ok=True)
    what = f"{' '.join(group.classes)}: {names_folded(group.nodes)}"
    replace_file(
        path,
        "#%Module1.0\n"
        f"module-whatis {_tcl(what)}\n"
        "conflict envsolve\n"
        f"setenv VIRTUAL_ENV {_tcl(str(place))}\n"
        f"prepend-path PATH {_tcl(str(place / 'bin'))}\n",
    )
    # Lmod takes this one, and splits the path of the other at blanks; Environment Modules ignore it.
    replace_file(
        path.with_name(f"{path.name}.lua"),
        f"whatis({_lua(what)})\n"
        'conflict("envsolve")\n'
        f'setenv("VIRTUAL_ENV", {_lua(str(place))})\n'
        f'prepend_path("PATH", {_lua(str(place / "bin"))})\n',
    )


def _lua(text: str) -> str:
    """Quote a string of Lua."""
    return '"' + "".join(one if one.isprintable() and one not in '\\"' else f"\\{ord(one):03d}" for one in text) + '"'


def _tcl(text: str) -> str:
    """Quote a word of Tcl, in which brackets and dollars would run commands."""
    return '"' + "".join(f"\\{one}" if one in '\\"$[]' else one for one in text) + '"'
