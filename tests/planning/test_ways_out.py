"""Remedies that lie outside the torch family's own versions, and those of requests that torch has no part in."""

from __future__ import annotations

import pytest

from envsolve.advice.refusals import extension_without_code
from envsolve.planning.plan import Plan
from envsolve.solve.outcome import Conflict, PlannedPackage
from envsolve.toolchain.model import compiled_packages
from tests.planning.questions import Questions
from tests.smallworld import NEW, OLD, World

HERE = "python 3.12, linux-x86_64, glibc 2.35"


def ways(plan: Plan) -> list[tuple[str, str]]:
    assert plan.status == "impossible"
    return [(remedy.text, remedy.unlocks) for remedy in plan.remedies]


def facts(plan: Plan) -> list[str]:
    return [fact.fact for fact in plan.conflict]


def test_a_request_without_torch_is_not_answered_with_torch(ask: Questions) -> None:
    plan = ask.plan(f"V100, driver 470.223.02, {HERE}", "cupy-cuda12x")
    assert not any("torch" in action + unlocks for action, unlocks in ways(plan))
    assert ways(plan)[0] == ("request cupy-cuda11x instead of cupy-cuda12x", "cupy-cuda11x 13.6.0 [cu118]")
    assert ways(plan)[-1] == ("install driver 525.60.13 or newer (branch R525)", "cupy-cuda12x 14.2.0 [cu129]")


def test_what_is_asked_for_beside_torch_can_be_given_up(ask: Questions) -> None:
    plan = ask.plan(f"V100, driver 470.223.02, {HERE}", "torch", "cupy-cuda12x")
    assert ("leave out cupy-cuda12x", "torch 2.7.1 [cu118]") in ways(plan)


def test_libraries_of_no_cuda_of_its_major_serve_the_card(ask: Questions) -> None:
    plan = ask.plan(f"RTX 5090, driver 580.95.05, {HERE}", "cupy-cuda11x")
    assert facts(plan)[-1].endswith("the libraries of CUDA 11.8 (sm_35 to sm_90) do not support cc 12.0")
    assert ways(plan) == [("request cupy-cuda12x instead of cupy-cuda11x", "cupy-cuda12x 14.2.0 [cu129]")]


def test_a_card_that_no_build_has_code_for(ask: Questions) -> None:
    (first, unlocked), (second, _) = ways(ask.plan(f"cc 8.8, driver 580.95.05, {HERE}", "torch"))
    assert first == "compute on the CPU: --cuda cpu" and unlocked.endswith("[cpu]")
    assert second.startswith("use another GPU, such as NVIDIA L") and second.endswith("(cc 8.9)")


def test_a_card_that_came_after_every_build(world: World) -> None:
    """The CUDA that knows it is named, and what measures a wheel that is in no catalogue."""
    world.build("torch", "2.5.1", "cu126", requires=["filelock"], code=OLD)
    ((action, unlocked),) = ways(world.plan("torch==2.5.1", target="RTX 5090, driver 580.95.05"))[:1]
    assert action == (
        "try a pre-release of torch built with CUDA 12.8 or newer, the first version that supports sm_120; "
        "`envsolve index measure URL` reads from a wheel for which GPUs it has code"
    )
    assert unlocked == ""


def test_windows_without_a_build_for_it(ask: Questions) -> None:
    plan = ask.plan("RTX 4090, driver 580.95.05, python 3.12, win-amd64", "vllm")
    assert facts(plan)[1] == "vllm 0.33.0 was published only for linux-x86_64 and linux-aarch64"
    ((action, unlocked),) = ways(plan)
    assert action.startswith("use Linux") and unlocked.endswith("with vllm 0.33.0")


def test_windows_without_a_build_of_what_an_extra_needs(torch_world: World) -> None:
    torch_world.build("jax-cuda12-plugin", "0.10.2", "cu129", code=NEW)
    torch_world.default.wheel("jax", "0.10.2", extras=["cuda12"], requires=['jax-cuda12-plugin; extra == "cuda12"'])
    plan = torch_world.plan("jax[cuda12]", target="RTX 4090, driver 580.95.05, windows-x86_64")
    assert ("use Linux: WSL 2 on this machine can also use the GPU", "jax-cuda12-plugin 0.10.2 [cu129]") in ways(plan)


def test_arm_without_a_build_for_it(ask: Questions) -> None:
    """Where the whole request was published for another processor alone, nothing of it is left to change."""
    plan = ask.plan("GH200, driver 580.95.05, python 3.12, linux-aarch64, glibc 2.35", "fbgemm-gpu")
    assert facts(plan)[1] == "fbgemm-gpu 1.9.0 was published only for linux-x86_64"
    ((action, unlocked),) = ways(plan)
    assert action == "use a machine with an x86_64 processor" and unlocked.endswith("with fbgemm-gpu 1.9.0")


def test_demands_that_contradict_each_other(ask: Questions) -> None:
    plan = ask.plan(f"H100, driver 580.95.05, {HERE}", "torch==2.5.1", "torch>=2.6")
    assert facts(plan)[1] == "no known release of torch satisfies ==2.5.1 and >=2.6 at the same time"
    assert dict(ways(plan))["leave out torch>=2.6"] == "torch 2.5.1 [cu124]"


def test_a_card_that_every_build_has_dropped(ask: Questions) -> None:
    plan = ask.plan("GTX 680, driver 470.223.02, python 3.8, linux-x86_64, glibc 2.35", "torch")
    assert ways(plan) == [
        ("compute on the CPU: --cuda cpu", "torch 2.4.1 [cpu]"),
        ("use another GPU, such as Tesla K80 (cc 3.7)", "torch 2.4.1 [cu118]"),
    ]


def test_a_companion_that_never_had_code_for_the_card_says_so(ask: Questions) -> None:
    plan = ask.plan(f"P100, driver 580.95.05, {HERE}", "vllm")
    assert any(fact.startswith("vllm 0.19.1 [cu129]: no code for cc 6.0") for fact in facts(plan))
    ((action, unlocked),) = ways(plan)
    assert action == "use another GPU, such as Tesla V100 (cc 7.0)" and "with vllm 0.19.1" in unlocked


def test_a_date_is_a_limit_like_any_other(ask: Questions) -> None:
    target = f"RTX 5090, driver 580.95.05, {HERE}"
    plan = ask.plan(target, "torch", before="2024-12-31")
    assert facts(plan)[0] == "--exclude-newer excludes files uploaded on 2025-01-01 or later"
    assert ways(plan) == [("leave out --exclude-newer", "torch 2.15.0 [cu132]")]
    pinned = ask.plan(target, "torch==2.7.0", before="2024-12-31")
    assert "torch 1.7.0 to 2.5.1 uploaded before 2025-01-01" in facts(pinned)[1]
    assert ways(pinned) == [("leave out --exclude-newer", "torch 2.7.0 [cu128]")]


@pytest.mark.parametrize(
    ("requirement", "cuda"), [("torch", "cu126"), ("torch", "cu131"), ("torch==2.0.0+cu121", None)]
)
def test_cuda_planned_where_there_is_no_gpu(ask: Questions, requirement: str, cuda: str | None) -> None:
    plan = ask.plan(f"no gpu, {HERE}", requirement, cuda=cuda)
    assert ways(plan)[0] == ("plan for the machine with the GPU: --target 'GPU, driver VERSION'", "")


def test_a_torch_whose_triton_works_is_named_where_the_request_forbids_it(ask: Questions) -> None:
    plan = ask.plan(f"cc 12.1, driver 580.95.05, {HERE}", "torch==2.7.1")
    (limited,) = (caution for caution in plan.warnings if caution.code == "triton-limited")
    assert limited.remedy == "relax the requirements to allow torch 2.15.0 [cu132], whose Triton works here"


def test_ordinary_packages(world: World) -> None:
    world.default.wheel("old", "1.0", tags="cp37-cp37m-manylinux2014_x86_64")
    world.default.wheel("old", "2.0")
    assert ways(world.plan("old==1.0")) == [
        ("relax old==1.0", "old 2.0"),
        ("use another Python: 3.7", "old==1.0 has matching files"),
    ]
    assert ways(world.plan("old>=3")) == [("relax old>=3", "old 2.0")]
    assert ways(world.plan("none")) == [
        ("check the name, or add the index that has the package: --extra-index-url URL", "")
    ]


def test_only_pythons_with_which_everything_fits_are_proposed(world: World) -> None:
    """3.11 has files of both, 3.10 and 3.13 of one of them."""
    for tag in ("cp310-cp310", "cp311-cp311"):
        world.default.wheel("old", "1.0", tags=f"{tag}-manylinux2014_x86_64")
    for tag in ("cp311-cp311", "cp312-cp312", "cp313-cp313"):
        world.default.wheel("new", "1.0", tags=f"{tag}-manylinux2014_x86_64")
    assert ("use another Python: 3.11", "old has matching files") in ways(world.plan("old", "new"))


def test_a_python_with_which_something_else_fails_says_so(world: World) -> None:
    world.default.wheel("old", "1.0", tags="cp310-cp310-manylinux2014_x86_64")
    world.default.wheel("new", "1.0", tags="cp312-cp312-manylinux2014_x86_64")
    texts = [text for text, _ in ways(world.plan("old", "new"))]
    assert (
        "use another Python: 3.10, and relax the requirements that conflict with it: --python 3.10 shows them" in texts
    )


def test_a_python_of_which_there_are_only_pre_releases_is_not_proposed(world: World) -> None:
    world.default.wheel("old", "1.0", tags="cp310-cp310-manylinux2014_x86_64")
    world.default.wheel("old", "2.0rc1", tags="cp312-cp312-manylinux2014_x86_64")
    assert ways(world.plan("old"))[0][0] == "use another Python: 3.10"


def test_an_extension_that_compiles_for_none_of_the_cards(ask: Questions) -> None:
    def refusal(target: str, *requirements: str) -> Conflict | None:
        machine = ask.machine(target)
        names = [PlannedPackage(n, v, None, None, f"{n}-{v}.tar.gz", None, {}, "sdist") for n, v in [requirements]]
        return extension_without_code(compiled_packages(names, ask.catalogue), [machine], ask.catalogue)

    told = refusal("V100, driver 580.95.05", "mamba-ssm", "2.3.2")
    assert told is not None
    assert [fact.fact for fact in told.facts] == [
        "mamba-ssm >=2.3.2 can be compiled only for compute capability 7.5 and newer",
        "the machine has Tesla V100 (cc 7.0)",
    ]
    assert told.remedies[0].text == "request 'mamba-ssm>=1.2.1,<2.3.2'"
    assert refusal("V100 + T4, driver 580.95.05", "mamba-ssm", "2.3.2") is None, "one of the cards has use for it"
    assert refusal("no gpu", "mamba-ssm", "2.3.2") is None


@pytest.mark.parametrize(
    ("target", "requirement", "cuda", "action", "unlocked"),
    [
        (
            "RTX 4090, driver 580.95, linux-x86_64, musl 1.2, python 3.9",
            "torch",
            "cu132",
            "make all of these changes: use Python 3.10, 3.11, 3.12, 3.13, 3.14, 3.15; "
            "use a container or a system with glibc 2.28 or newer",
            "torch 2.15.0 [cu132]",
        ),
        (
            "T600, driver 450.80.02, linux-x86_64, musl 1.2, python 3.12",
            "torch==2.13.*",
            None,
            "make all of these changes: use a container or a system with glibc 2.28 or newer; relax torch==2.13.*",
            "torch 2.7.1 [cu118]",
        ),
        (
            "P104-101, driver 560.35.03, linux-x86_64, musl 1.2, python 3.7",
            "torch==2.7.*",
            None,
            "make all of these changes: use Python 3.9, 3.10, 3.11, 3.12, 3.13; "
            "use a container or a system with glibc 2.28 or newer",
            "torch 2.7.1 [cu126]",
        ),
    ],
    ids=["python and libc", "libc and version", "python and libc, a version"],
)
def test_where_no_single_change_helps_those_that_help_together_are_named(
    ask: Questions, target: str, requirement: str, cuda: str | None, action: str, unlocked: str
) -> None:
    assert ways(ask.plan(target, requirement, cuda=cuda)) == [(action, unlocked)]


@pytest.mark.parametrize(
    ("target", "action", "unlocked"),
    [
        ("T4, driver 470.82.01", "install driver 525.60.13 or newer (branch R525)", "triton 3.9.0 [any]"),
        ("GTX 1080, driver 550.54", "use another GPU, such as Tesla V100 (cc 7.0)", "triton 3.9.0 [any]"),
        (
            "GTX 1080 + H100, driver 550.54",
            "plan only for NVIDIA H100 (cc 9.0), and hide the other GPUs of the machine (CUDA_VISIBLE_DEVICES)",
            "triton 3.8.0 [any]",
        ),
        (
            "K80, driver 470.82.01",
            "use another GPU with a newer driver; see envsolve builds triton --target 'GPU, driver VERSION'",
            "",
        ),
    ],
)
def test_a_triton_alone_that_runs_nothing_has_a_way_out(
    ask: Questions, target: str, action: str, unlocked: str
) -> None:
    assert ways(ask.plan(f"{target}, {HERE}", "triton")) == [(action, unlocked)]


def test_a_python_for_which_what_torch_needs_was_never_published(ask: Questions) -> None:
    """torch 2.8 has CUDA wheels for Python 3.9 on aarch64, its Triton has none."""
    plan = ask.plan("A100, driver 580.95.05, linux-aarch64, glibc 2.35, python 3.9", "torch")
    assert facts(plan)[0] == "torch 2.8.0 [cu129] requires triton==3.4.0"
    ((action, unlocked),) = ways(plan)
    assert action == "use another Python: 3.11, 3.12, 3.13" and unlocked == "torch 2.15.0 [cu132]"


def test_an_extension_without_a_build_for_the_processor_is_compiled(world: World) -> None:
    """The request that is proposed is one that plans: sources by address, of a version that takes that torch."""
    arm, target = "manylinux_2_28_aarch64", "GH200, driver 580.95.05, linux-aarch64"
    world.build("torch", "2.9.1", "cu130", code=("sm_90",), platform=arm)
    world.build("xformers", "0.0.35", "cu130", code=("sm_90",), torch=">=2.10")
    world.default.sdist("xformers", "0.0.35", requires=["torch>=2.10"])
    asked = world.default.sdist("xformers", "0.0.33.post2", requires=["torch==2.9.1"])
    world.default.sdist("xformers", "0.0.1")
    action, unlocked = ways(world.plan("xformers", "torch==2.9.1", target=target))[0]
    assert unlocked == "xformers 0.0.33.post2 with torch 2.9.1 [cu130]"
    request = action.removeprefix("compile it from source: request '").removesuffix("'")
    assert request.startswith(f"xformers @ {world.server.url}{asked.url}#sha256=")
    plan = world.plan(request, "torch==2.9.1", target=target)
    assert plan.toolchain is not None and plan.toolchain.compiles == ("xformers",)
    windows = world.plan("xformers", target="RTX 4090, driver 580.95, python 3.12, win-amd64")
    assert not any("compile it" in action for action, _ in ways(windows))


def test_what_needs_torch_on_a_gpu_that_no_torch_serves_is_answered_at_once(torch_world: World) -> None:
    """ultralytics on a Jetson: a search went back through all releases, to those from before they needed torch."""
    for minor in range(30):
        requires = ["torch>=1.8"] if minor else []
        torch_world.default.wheel("ultralytics", f"8.{minor}", requires=requires)
    plan = torch_world.plan("ultralytics", target="Tesla K80, driver 470.82")
    facts = [fact.fact for fact in plan.conflict]
    assert plan.status == "impossible"
    assert facts[0] == "ultralytics 8.29 requires torch>=1.8"
    assert any("no code for cc 3.7" in fact for fact in facts)
    assert plan.remedies and not any("ultralytics" in fix.text for fix in plan.remedies)


def test_a_gpu_with_an_index_of_its_own_is_sent_there(torch_world: World) -> None:
    target = "cc 8.7, driver 580.95"
    plan = torch_world.plan("torch", "torchvision", target=target)
    assert plan.status == "impossible"
    assert "pip install --index-url https://pypi.jetson-ai-lab.io/jp6/cu126/+simple/ torch" in plan.remedies[0].text
    both = torch_world.plan_for([torch_world.machine(target), torch_world.machine("V100, driver 580.95")], "torch")
    assert not any("index-url" in fix.text for fix in both.remedies)
