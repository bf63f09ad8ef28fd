"""Which torch a wheel off the indexes goes with (rule 9)."""

from __future__ import annotations

import pytest

from envsolve.facts.builds import Build
from envsolve.facts.evidence import Evidence
from envsolve.solve.candidate_selector import goes_with


def build(package: str, version: str, variant: str, cuda: str | None, **rest: object) -> Build:
    return Build(package, version, variant, "linux_x86_64", ("cp312",), "x", Evidence.MEASURED, "s", cuda=cuda, **rest)  # type: ignore[arg-type]


MAJOR = {
    "variant": "cu129",
    "cuda": "12.9",
    "local": "+cu12torch2.8cxx11abiTRUE",
    "torch": "==2.8.*",
    "cxx11_abi": True,
}
EXACT = {"variant": "cu128", "cuda": "12.8", "local": "+pt28cu128", "torch": "==2.8.*"}


@pytest.mark.parametrize(
    ("wheel", "torch", "goes"),
    [
        (MAJOR, ("2.8.0", "cu128", "12.8", True), True),
        (MAJOR, ("2.8.1", "cu126", "12.6", True), True),
        (MAJOR, ("2.8.0", "cu130", "13.0", True), False),
        (MAJOR, ("2.9.0", "cu128", "12.8", True), False),
        (MAJOR, ("2.8.0", "cu128", "12.8", False), False),
        (MAJOR, ("2.8.0", "cu128", "12.8", None), False),
        (MAJOR, ("2.8.0", "cpu", None, True), False),
        (EXACT, ("2.8.0", "cu128", "12.8", True), True),
        (EXACT, ("2.8.0", "cu126", "12.6", True), False),
        ({**EXACT, "torch": None}, ("2.8.0", "cu128", "12.8", True), False),
        ({**EXACT, "cuda": None}, ("2.8.0", "cu128", "12.8", True), False),
    ],
)
def test_torch_minor_cuda_and_abi(
    wheel: dict[str, object], torch: tuple[str, str, str | None, bool | None], goes: bool
) -> None:
    version, variant, cuda, abi = torch
    extension = build("ext", "1.0", **wheel)  # type: ignore[arg-type]
    assert goes_with(extension, build("torch", version, variant, cuda, cxx11_abi=abi)) is goes
