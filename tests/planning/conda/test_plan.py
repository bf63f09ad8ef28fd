"""Conda plans solved by real rattler from conda-forge's records, for machines that this host is not."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest

import envsolve
from envsolve import Request
from envsolve.errors import IndexUnavailableError, UsageError
from envsolve.planning.plan import Plan
from tests.condachannel import CondaChannel, Package, python_package
from tests.planning.conda.conftest import Planner

pytest.importorskip("rattler", reason="pip install 'envsolve[conda]'")

LINUX = "linux-x86_64, glibc 2.35"


def files(made: Plan) -> dict[str, str]:
    return {package.name: str(package.filename).removesuffix(".conda") for package in made.packages}


def codes(made: Plan) -> list[str]:
    return [caution.code for caution in made.warnings]


def told(made: Plan) -> str:
    return "; ".join(fact.fact for fact in made.conflict)


@pytest.mark.parametrize(
    ("target", "python", "torch", "level"),
    [
        # A newer CPU build is there: the trap into which a solver without the target's GPU walks.
        ("RTX 4090, driver 550.54.14", "3.13", "pytorch-2.7.1-cuda129_mkl_py313_h1e53aa0_304", "family"),
        ("RTX 5090, driver 570.86.10", "3.12", "pytorch-2.10.0-cuda129_mkl_py312_hb9da02c_305", "native"),
        # Cards that the wheels of newer torches have dropped.
        ("V100, driver 580.65.06", "3.12", "pytorch-2.10.0-cuda129_mkl_py312_hb9da02c_305", "native"),
        ("GTX 1080, driver 535.54.03", "3.13", "pytorch-2.7.1-cuda129_mkl_py313_h1e53aa0_304", "family"),
        ("GTX 980, driver 580.65.06", "3.12", "pytorch-2.10.0-cuda129_mkl_py312_hb9da02c_305", "family"),
    ],
)
def test_the_build_that_runs_on_the_target(plan: Planner, target: str, python: str, torch: str, level: str) -> None:
    made = plan(f"{target}, python {python}, {LINUX}", "torch")
    assert made.status == "ok"
    assert files(made)["pytorch"] == torch
    assert made.cuda == "cu129"
    assert [s.level for s in made.support if s.package == "pytorch"] == [level]
    assert made.python == python


def test_the_virtual_packages_are_the_targets_whatever_the_host_has(plan: Planner) -> None:
    made = plan(f"RTX 4090, driver 550.54.14, python 3.13, {LINUX}", "torch")
    assert made.conda is not None
    assert made.conda.virtual == {
        "__unix": "0",
        "__linux": "0",
        "__glibc": "2.35",
        "__archspec": "1=x86_64",
        "__cuda": "12.4",
        "__cuda_arch": "8.9",
    }


def test_without_a_gpu_it_is_the_cpu_build(plan: Planner) -> None:
    for made in (
        plan(f"no gpu, python 3.13, {LINUX}", "torch"),
        plan(f"RTX 4090, python 3.13, {LINUX}", "torch", cuda="cpu"),
    ):
        assert (made.status, made.cuda) == ("ok", "cpu")
        assert files(made)["pytorch"] == "pytorch-2.8.0-cpu_mkl_py313_h19d87ba_102"


def test_companions_are_cuda_variants_too(plan: Planner) -> None:
    made = plan(f"RTX 4090, driver 550.54.14, python 3.13, {LINUX}", "torch", "torchvision")
    assert files(made)["torchvision"] == "torchvision-0.22.0-cuda_py313_h6be0d2c_2"
    assert "not-judged" in codes(made)  # its own kernels are in no record


def test_a_package_that_does_not_ask_for_its_cuda_variant_gets_it(
    channel: CondaChannel, plan: Planner, tmp_path: object
) -> None:
    """Two variants of one version, and nothing that prefers one: the newer build number is the CPU's."""
    with CondaChannel(channel.root.parent / "variants") as served:
        served.add(
            *channel.packages,
            Package("faiss", "1.9.0", "py312_h1_cuda129_0", ("python >=3.12,<3.13.0a0", "cuda-version >=12.9,<13")),
            Package("faiss", "1.9.0", "py312_h2_cpu_7", ("python >=3.12,<3.13.0a0",)),
            Package("legacy", "2.0", "py312_cuda118_0", ("python >=3.12,<3.13.0a0", "cuda-version >=11.8,<12")),
            Package("legacy", "2.0", "py312_cpu_0", ("python >=3.12,<3.13.0a0",)),
        ).write()
        made = plan(
            f"RTX 4090, driver 550.54.14, python 3.12, {LINUX}", "torch", "faiss", "legacy", channels=[served.url]
        )
    assert files(made)["faiss"] == "faiss-1.9.0-py312_h1_cuda129_0"
    assert files(made)["legacy"] == "legacy-2.0-py312_cpu_0"
    assert [c.message for c in made.warnings if c.code == "cpu-companion"] == [
        "legacy has CUDA builds, but none of them fits the other packages, so the plan has its CPU build"
    ]


def test_a_build_that_the_catalogue_does_not_know_is_the_last_choice(plan: Planner) -> None:
    """2.10.0 for CUDA 13.0 has another build number than the record; 2.10.0 for 12.9 is described."""
    target = f"H100, driver 580.65.06, python 3.12, {LINUX}"
    assert files(plan(target, "torch"))["cuda-version"].startswith("cuda-version-12.9")
    made = plan(target, "torch", "cuda-version=13.0")
    assert made.status == "unknown"
    assert files(made)["pytorch"] == "pytorch-2.10.0-cuda130_mkl_py312_h9405518_301"
    [caution] = [c for c in made.warnings if c.code == "not-judged"]
    assert "envsolve index update" in (caution.remedy or "")


def test_a_driver_too_old_for_every_build_is_told_and_the_driver_named(plan: Planner) -> None:
    made = plan(f"RTX 3090, driver 455.23.04, python 3.13, {LINUX}", "torch")
    assert made.status == "impossible"
    assert [fact.fact for fact in made.conflict] == [
        "CUDA 12.9 needs driver 525.60.13 or newer; the machine has driver 455.23.04",
        "CUDA 13.0 needs driver 580.65.06 or newer; the machine has driver 455.23.04",
    ]
    assert [(remedy.text, remedy.unlocks) for remedy in made.remedies] == [
        ("install driver 525.60.13 or newer (branch R525)", "pytorch 2.7.1 [cu129]")
    ]


def test_what_the_solver_refuses_is_told_with_what_to_relax(plan: Planner) -> None:
    made = plan(f"RTX 4090, driver 550.54.14, python 3.13, {LINUX}", "torch<2")
    assert made.status == "impossible"
    assert "pytorch <2" in told(made)
    assert [(r.text, r.unlocks) for r in made.remedies] == [("relax pytorch <2", "pytorch 2.7.1 [cu129]")]


def test_a_package_of_a_channel_that_ended_is_given_up(plan: Planner) -> None:
    made = plan(f"RTX 4090, driver 550.54.14, python 3.13, {LINUX}", "torch", "pytorch-cuda=12.1")
    assert "No candidates were found for pytorch-cuda 12.1.*" in told(made)
    assert [(r.text, r.unlocks) for r in made.remedies] == [("leave out pytorch-cuda", "pytorch 2.7.1 [cu129]")]


def test_a_file_for_the_channel_pytorch_is_told_all_that_has_to_change(plan: Planner) -> None:
    tutorial = ("pytorch=2.1.0=py3.10_cuda12.1_cudnn8.9.2_0", "pytorch-cuda=12.1", "numpy")
    made = plan(f"RTX 4090, driver 550.54.14, python 3.13, {LINUX}", *tutorial)
    [remedy] = made.remedies
    assert remedy.text == "relax pytorch 2.1.0 py3.10_cuda12.1_cudnn8.9.2_0 and leave out pytorch-cuda"
    assert remedy.unlocks == "pytorch 2.7.1 [cu129]"


def test_an_unknown_driver_is_no_bare_no(plan: Planner) -> None:
    made = plan(f"H100, python 3.12, {LINUX}", "torch")
    assert made.status == "unknown"
    assert {"driver-unknown", "cuda-assumed"} <= {*codes(made)}
    assert "cuda129" in files(made)["pytorch"]


def test_triton_is_given_the_ptxas_of_the_environment(plan: Planner) -> None:
    made = plan(f"RTX 5090, driver 570.86.10, python 3.12, {LINUX}", "torch")
    assert dict(made.environment) == {"TRITON_PTXAS_BLACKWELL_PATH": "{site_packages}/../../../bin/ptxas"}
    assert [s.level for s in made.support if s.package == "triton"] == ["native"]


def test_machines_together_get_what_all_of_them_run(channel: CondaChannel) -> None:
    targets = [f"V100, driver 535.54.03, python 3.12, {LINUX}", f"H100, driver 580.65.06, python 3.12, {LINUX}"]
    made = envsolve.plan(
        Request(["torch"], manager="conda", channels=[channel.url]), list(map(envsolve.describe_target, targets))
    )
    assert made.conda is not None
    assert (made.conda.virtual["__cuda"], made.conda.virtual["__cuda_arch"]) == ("12.2", "7.0")
    assert {(s.gpu, s.level) for s in made.support if s.package == "pytorch"} == {
        ("Tesla V100", "native"),
        ("NVIDIA H100", "native"),
    }


def test_machines_of_two_systems_need_two_plans(channel: CondaChannel) -> None:
    machines = [
        envsolve.describe_target("H100, driver 580, linux-x86_64"),
        envsolve.describe_target("GH200, driver 580, linux-aarch64"),
    ]
    made = envsolve.plan(Request(["torch"], manager="conda", channels=[channel.url]), machines)
    assert made.status == "impossible"
    assert "linux-64, linux-aarch64" in told(made) or "linux-aarch64, linux-64" in told(made)


def test_a_channel_that_cannot_be_read_is_an_index_failure(plan: Planner) -> None:
    with pytest.raises(IndexUnavailableError, match=r"the conda channel \S+/nowhere could not be read"):
        plan("no gpu", "numpy", channels=["http://127.0.0.1:9/nowhere"])


@pytest.mark.slow
def test_the_channel_that_fails_is_named_alone_and_without_its_secrets(channel: CondaChannel, plan: Planner) -> None:
    dead = "http://me:s3cret@127.0.0.1:9/t/s3cret/x"
    with pytest.raises(IndexUnavailableError, match=r"the conda channel http://127\.0\.0\.1:9/x could not") as caught:
        plan("no gpu", "numpy", channels=[channel.url, dead])
    assert "s3cret" not in str(caught.value)


def test_offline_says_that_the_cache_lacks_the_channel(plan: Planner) -> None:
    with pytest.raises(IndexUnavailableError, match="the cache has no index of") as caught:
        plan("no gpu", "numpy", channels=["http://127.0.0.1:9/never"], offline=True)
    assert "--offline" in (caught.value.hint or "")


def test_without_rattler_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "rattler", None)
    with pytest.raises(UsageError) as caught:
        envsolve.plan(Request(["torch"], manager="conda"), [envsolve.describe_target("no gpu")])
    assert caught.value.exit_code == 2
    assert "pip install 'envsolve[conda]'" in (caught.value.hint or "")


def test_it_plans_inside_a_running_loop(plan: Planner) -> None:
    """As in a notebook."""

    async def cell() -> Plan:
        return plan(f"no gpu, python 3.13, {LINUX}", "torch")

    assert asyncio.run(cell()).status == "ok"


def test_nothing_newer_than_a_date(plan: Planner) -> None:
    made = plan(f"no gpu, python 3.13, {LINUX}", "torch", exclude_newer="2024-01-01")
    assert made.status == "impossible"


def test_a_channel_that_is_named_with_a_package_is_where_it_comes_from(plan: Planner) -> None:
    target = f"RTX 4090, driver 550.54.14, python 3.13, {LINUX}"
    assert plan(target, "conda-forge::pytorch=2.7.1=cuda*").status == "ok"
    assert plan(target, "elsewhere::pytorch").status == "impossible"


def test_packages_without_torch(channel: CondaChannel, plan: Planner) -> None:
    made = plan(f"RTX 4090, driver 550.54.14, python 3.12, {LINUX}", "numpy")
    assert (made.status, made.cuda, made.support, made.driver) == ("ok", None, (), None)
    assert python_package().name in files(made)


def test_options_of_package_indexes_are_refused(plan: Planner) -> None:
    with pytest.raises(UsageError, match="index_url: conda plans do not support these settings"):
        plan("no gpu", "numpy", index_url="https://example.org/simple")
    with pytest.raises(UsageError, match="channels apply only to conda packages"):
        envsolve.plan(Request(["numpy"], channels=["conda-forge"]), [envsolve.describe_target("no gpu")])


@pytest.mark.parametrize("name", ["", " ", "file:///nowhere/channel", "/nowhere/channel", "./nowhere"])
def test_a_channel_that_is_nowhere_is_wrong_usage(name: str, plan: Planner) -> None:
    with pytest.raises(UsageError, match=r"conda channel .* does not exist"):
        plan("RTX 4090, driver 550.54.14, python 3.12, linux-x86_64", "numpy", channels=[name])


@pytest.mark.parametrize(("requires", "python"), [(">=3.13", "3.13"), ("<3.13", "3.12"), ("==3.12.*", "3.12")])
def test_what_a_project_requires_of_python_goes_before_the_targets_own(
    plan: Planner, tmp_path: Path, requires: str, python: str
) -> None:
    own = {"3.12": "3.13", "3.13": "3.12"}[python]
    (tmp_path / "pyproject.toml").write_text(
        f'[project]\nname = "demo"\nversion = "1"\nrequires-python = "{requires}"\ndependencies = ["torch"]\n'
    )
    made = plan(f"RTX 4090, driver 580.65.06, python {own}, {LINUX}", projects=[tmp_path])
    assert (made.status, made.python) == ("ok", python)


def test_a_chosen_python_that_the_project_does_not_allow_is_refused(plan: Planner, tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text(
        '[project]\nname = "demo"\nversion = "1"\nrequires-python = ">=3.13"\ndependencies = ["torch"]\n'
    )
    made = plan(f"RTX 4090, driver 580.65.06, {LINUX}", projects=[tmp_path], python="3.12")
    assert made.status == "impossible"
    assert "relax python 3.12.*" in [remedy.text for remedy in made.remedies]


@pytest.mark.parametrize(
    ("requirements", "python", "wanted"),
    [
        (["python=3.13"], "3.13", "marked-new"),  # the request says which
        (["python=3.12"], "3.12", "marked-old"),
        (["for-newer"], "3.13", "marked-new"),  # only the solve shows which
        (["only-older"], "3.12", "marked-old"),
    ],
)
def test_markers_hold_for_the_python_that_the_solve_chooses(
    rattler_cache: Path, tmp_path: Path, requirements: list[str], python: str, wanted: str
) -> None:
    listed = tmp_path / "requirements.txt"
    listed.write_text("marked-new; python_version >= '3.13'\nmarked-old; python_version < '3.13'\n")
    with CondaChannel(tmp_path / "channels") as served:
        served.add(python_package("3.12"), python_package("3.13"))
        served.add(*(Package(name, "1.0", "h0_0", ("python",)) for name in ("marked-new", "marked-old")))
        served.add(Package("for-newer", "1.0", "h0_0", ("python >=3.13",)))
        served.add(Package("only-older", "1.0", "h0_0", ("python <3.13",))).fill()
        request = Request(requirements, files=[listed], manager="conda", channels=[served.url])
        made = envsolve.plan(request, [envsolve.describe_target(f"no gpu, {LINUX}")])
    assert (made.status, made.python) == ("ok", python)
    assert {package.name for package in made.packages} & {"marked-new", "marked-old"} == {wanted}
