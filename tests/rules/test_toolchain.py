"""Rule 10: nvcc, host compiler and TORCH_CUDA_ARCH_LIST for compiling against a torch build."""

from __future__ import annotations

import pytest

from envsolve.facts.builds import Build
from envsolve.facts.catalogue import Catalogue
from envsolve.facts.evidence import Evidence
from envsolve.rules.nvidia.toolchain import CompilerFacts, arch_list, gcc_for, nvcc_for
from envsolve.values import ComputeCapability


@pytest.fixture(scope="module")
def facts() -> CompilerFacts:
    return CompilerFacts.of(Catalogue())


def torch(version: str, cuda: str | None) -> Build:
    variant = "cu" + cuda.replace(".", "") if cuda else "cpu"
    return Build("torch", version, variant, "linux_x86_64", ("cp311",), "default", Evidence.MEASURED, "s", cuda=cuda)


def cards(text: str) -> list[ComputeCapability]:
    return [ComputeCapability.parse(cc) for cc in text.split()]


@pytest.mark.parametrize(
    ("version", "cuda", "gpus", "ok"),
    [
        ("2.9.0", "12.8", "12.0 8.6", True),
        ("2.6.0", "12.4", "12.0", False),  # nvcc 12.4 is older than the card
        ("2.11.0", "13.0", "7.0 9.0", False),  # nvcc 13 dropped Volta
        ("2.9.0", "12.8", "", True),
        ("2.9.0", "99.0", "9.0", None),
    ],
)
def test_nvcc_is_of_the_cuda_of_torch(
    facts: CompilerFacts, version: str, cuda: str, gpus: str, ok: bool | None
) -> None:
    nvcc, reason = nvcc_for(torch(version, cuda), cards(gpus), facts)
    assert (nvcc, reason.ok) == (cuda, ok)


def test_a_cpu_build_has_nothing_to_compile_against(facts: CompilerFacts) -> None:
    nvcc, reason = nvcc_for(torch("2.9.0", None), cards("9.0"), facts)
    assert nvcc is None and reason.ok is False


@pytest.mark.parametrize(
    ("version", "cuda", "first", "last", "preferred"),
    [
        ("2.14.0", "13.0", 11, 15, 13),  # C++20 needs gcc 11
        ("2.11.0", "12.8", 9, 13, 13),  # nvcc takes 14, torch does not
        ("2.12.0", "12.8", 11, 14, 13),
        ("2.1.0", "12.1", 8, 12, 9),
        ("2.0.0", "11.7", 8, 11, 9),
        ("1.7.1", "10.2", 5, 8, 7),
        ("9.9.9", "12.8", None, 14, None),  # a torch that is not recorded
        ("9.9.9", "99.0", None, None, None),
    ],
)
def test_the_host_compiler_is_within_every_limit(
    facts: CompilerFacts, version: str, cuda: str, first: int | None, last: int | None, preferred: int | None
) -> None:
    found = gcc_for(torch(version, cuda), facts)
    assert (found.first, found.last, found.preferred) == (first, last, preferred)
    assert len(found.reasons) == (first is not None) + (last is not None)
    assert not found.empty
    assert preferred is None or found.holds(preferred)
    assert first is None or not found.holds(first - 1)
    assert last is None or not found.holds(last + 1)


@pytest.mark.parametrize(
    ("version", "cuda", "gpus", "expected"),
    [
        ("2.11.0", "12.8", "8.9 8.6 8.6", "8.6;8.9"),
        ("2.9.0", "12.8", "12.0", "12.0"),
        ("2.14.1", "12.6", "7.0 8.0", "7.0;8.0"),
        ("2.7.1", "12.8", "12.1", "12.0"),  # this torch cannot be asked for 12.1; code for 12.0 runs there
        ("1.7.1", "11.0", "8.6", "8.0"),  # nvcc 11.0 does not know 8.6
        ("2.6.0", "12.4", "12.0", None),
        ("2.9.0", "12.8", "", None),
        ("9.9.9", "12.8", "9.0 8.0", "8.0;9.0"),
    ],
)
def test_the_arch_list_serves_every_card(
    facts: CompilerFacts, version: str, cuda: str, gpus: str, expected: str | None
) -> None:
    listed, reason = arch_list(torch(version, cuda), cards(gpus), facts)
    assert listed == expected
    assert reason.text
