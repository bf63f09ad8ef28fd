"""One machine with what another says."""

from __future__ import annotations

import pytest

from envsolve.machine.model import Driver, Gpu, Machine, Platform, changed

OWN = Machine(
    platform=Platform("linux", "x86_64", "glibc 2.35", "ubuntu 22.04", wsl=True),
    driver=Driver("550.54.15", "12.4"),
    gpus=(Gpu("NVIDIA H100", "9.0"),),
    python="3.10",
)


@pytest.mark.parametrize(
    ("said", "field", "expected"),
    [
        (Machine(), "platform", OWN.platform),
        (Machine(), "driver", OWN.driver),
        (Machine(), "gpus", OWN.gpus),
        (Machine(python="3.12"), "python", "3.12"),
        (Machine(gpus=()), "gpus", ()),
        (Machine(driver=Driver("580.95", "13.0")), "driver", Driver("580.95", "13.0")),
        (
            Machine(platform=Platform(libc="glibc 2.28")),
            "platform",
            Platform("linux", "x86_64", "glibc 2.28", "ubuntu 22.04", wsl=True),
        ),
        (
            Machine(platform=Platform("linux", "aarch64")),
            "platform",
            Platform("linux", "aarch64", "glibc 2.35", "ubuntu 22.04", wsl=True),
        ),
        (Machine(platform=Platform("windows", "x86_64")), "platform", Platform("windows", "x86_64")),
    ],
)
def test_what_is_said_changes_and_the_rest_stays(said: Machine, field: str, expected: object) -> None:
    assert getattr(changed(OWN, said), field) == expected


def test_a_compat_library_stays_whatever_the_driver() -> None:
    own = Machine(driver=Driver("535.1", "12.2", compat_libcuda="12.8"))
    assert changed(own, Machine(driver=Driver("550.1", "12.4"))).driver == Driver("550.1", "12.4", "12.8")


def test_a_machine_of_which_nothing_is_known_is_what_is_said() -> None:
    said = Machine(platform=Platform("linux", "x86_64"), driver=Driver("550.1", "12.4"), gpus=())
    assert changed(Machine(), said) == said
