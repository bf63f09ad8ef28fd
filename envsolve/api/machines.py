"""What a machine is: ``detect``, ``describe_target``, ``load_machines``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from envsolve.planning.request import StrPath, items, path_of

if TYPE_CHECKING:
    from envsolve.facts.catalogue import Catalogue
    from envsolve.machine.model import Machine


def detect() -> Machine:
    """Read this host: driver, GPUs, platform, toolkits, compilers, Pythons, installers.

    No GPU, or no driver, is an ordinary answer.
    """
    from envsolve.facts.catalogue import Catalogue
    from envsolve.machine.detect import detect as read_host
    from envsolve.machine.target import complete

    return complete(read_host(), Catalogue())


def describe_target(target: str, catalogue: Catalogue | None = None) -> Machine:
    """The machine that a target string stands for, ``"RTX 4090, driver 550.54, python 3.12, linux-x86_64"``.

    Raises:
        UsageError: The string, or a GPU name in it, is not understood.
    """
    from envsolve.facts.catalogue import Catalogue
    from envsolve.machine.target import machine_from_target, parse_target

    return machine_from_target(parse_target(target), catalogue or Catalogue())


def load_machines(path: StrPath, catalogue: Catalogue | None = None) -> tuple[Machine, ...]:
    """The machine of a profile file that ``envsolve detect -o FILE`` or another tool wrote, or all those of a folder.

    Raises:
        UsageError: A file is not an ``envsolve.machine/2`` value.
    """
    from envsolve.facts.catalogue import Catalogue
    from envsolve.machine import profile
    from envsolve.machine.target import complete

    facts = catalogue or Catalogue()
    return tuple(complete(machine, facts) for machine in profile.load_machines([path_of(path, "path")]))


def in_containers(machines: Sequence[Machine]) -> tuple[Machine, ...]:
    """Machines as a container on them sees them: its own libc, compilers and toolkits, their driver and GPUs.

    The libc is that of the oldest official image of Python, unless a newer one is asked for.
    """
    from msgspec.structs import replace

    from envsolve.facts.catalogue import Catalogue
    from envsolve.machine.model import Platform
    from envsolve.rules.platform import libc_of, libc_text

    catalogue = Catalogue()
    images = {image.distribution for image in catalogue.images if image.repository == "python"}
    bases = [libc_of(Platform(libc=catalogue.distributions[name].libc)) for name in images]
    oldest = min(filter(None, bases))
    seen = []
    for machine in machines:
        platform = machine.platform or Platform()
        libc = libc_of(platform)
        own = libc if libc and libc[0] == oldest[0] and libc > oldest else oldest
        if platform.os != "windows" and not platform.jetson:
            machine = replace(
                machine, platform=replace(platform, libc=libc_text(own)), host_compilers=None, toolkits=None
            )
        seen.append(machine)
    return tuple(seen)


def machines_given(machines: Sequence[Machine] | None) -> tuple[Machine, ...]:
    """The machines that a program passes to a stage; none where None.

    Raises:
        UsageError: They are no list of machines.
    """
    from envsolve.machine.model import Machine

    return items(machines, Machine, "machines")
