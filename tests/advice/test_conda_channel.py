"""A conda channel that cannot be read: no plan, and what the catalogue says of the builds that were asked for."""

from __future__ import annotations

from packaging.requirements import Requirement

from envsolve.advice.conda import without_channel
from envsolve.errors import IndexUnavailableError
from envsolve.facts.catalogue import Catalogue
from envsolve.machine.known import describe_target
from envsolve.rules.conda import CondaJudge, Spec
from envsolve.rules.nvidia import Facts

FAILED = IndexUnavailableError("the channel conda-forge cannot be read", hint="try again")


def said(target: str, *specs: Spec, channel: str = "conda-forge", pip: str | None = None) -> IndexUnavailableError:
    catalogue = Catalogue()
    judge = CondaJudge((describe_target(target, catalogue),), Facts.of(catalogue), catalogue.conda)
    by_pip = [Requirement(pip)] if pip else []
    return without_channel(FAILED, specs, [channel], judge, "linux-64", catalogue, by_pip)


def test_the_verdicts_of_a_pinned_build_are_shown() -> None:
    error = said("H100, driver 580.95, linux-x86_64, glibc 2.35", Spec("pytorch", "2.7.*"))
    assert error.exit_code == 5 and error.hint == "try again"
    first, *lines = error.message.splitlines()
    assert first == "the channel conda-forge cannot be read; what the catalogue knows about the builds:"
    assert lines and all("pytorch 2.7." in line for line in lines if "more" not in line)
    assert any("native code" in line for line in lines)


def test_a_build_that_does_not_run_is_shown_with_its_reason() -> None:
    error = said("RTX 5090, driver 580.95, linux-x86_64, glibc 2.35", Spec("pytorch", "2.5.1"))
    assert "does not run: " in error.message


def test_nothing_is_added_if_pytorch_is_not_asked_for() -> None:
    assert said("H100, driver 580.95, linux-x86_64", Spec("numpy")) is FAILED


def test_the_builds_are_those_of_the_channels_that_were_asked() -> None:
    target, spec = "RTX 5090, driver 580.95, linux-x86_64, glibc 2.35", Spec("pytorch", "2.5.1")
    error = said(target, spec, channel="https://conda.test/pytorch/")
    assert "pytorch::pytorch 2.5.1 [cu118]: does not run: " in error.message
    assert "conda-forge::" not in error.message
    assert "conda-forge::" in said(target, spec, channel="https://mirror.test/forge").message


def test_a_spec_that_names_a_channel_itself() -> None:
    spec = Spec("pytorch", "2.1.0", channel="pytorch")
    error = said("RTX 5090, driver 580.95, linux-x86_64, glibc 2.35", spec)
    assert "pytorch::pytorch 2.1.0 [cu118]: does not run: " in error.message
    assert "conda-forge::" not in error.message


def test_the_torch_that_pip_was_to_install() -> None:
    target = "RTX 5090, driver 580.95, linux-x86_64, glibc 2.35"
    error = said(target, Spec("python", "3.11"), pip="torch==2.4.0+cu121")
    assert error.message.splitlines()[1].startswith("  torch 2.4.0 [cu121]: does not run: no code for cc 12.0")
    assert said(target, Spec("python", "3.11"), pip="torch") is FAILED
