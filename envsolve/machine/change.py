"""One machine with what another says: what options change of a profile, and what a question supposes."""

from __future__ import annotations

from msgspec.structs import asdict, replace

from envsolve.machine.model import Driver, Machine, Platform


def changed(machine: Machine, said: Machine) -> Machine:
    """A machine with the platform, driver, GPUs and Python that another states; what that leaves open stays.

    Another operating system takes the old one's libc and distribution away. A cuda-compat ``libcuda`` stays on the
    loader path whatever the driver.
    """
    return replace(
        machine,
        platform=_platform(machine.platform, said.platform),
        driver=_driver(machine.driver, said.driver),
        gpus=machine.gpus if said.gpus is None else said.gpus,
        python=said.python or machine.python,
    )


def _platform(own: Platform | None, said: Platform | None) -> Platform | None:
    if own is None or said is None or (said.os is not None and said.os != own.os):
        return own if said is None else said
    stated = {name: value for name, value in asdict(said).items() if value is not None}
    return replace(own, **stated)


def _driver(own: Driver | None, said: Driver | None) -> Driver | None:
    if said is None or own is None:
        return own if said is None else said
    return replace(said, compat_libcuda=said.compat_libcuda or own.compat_libcuda)
