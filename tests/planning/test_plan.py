"""The whole way from requirements and a machine to a plan, over loopback indexes."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec import structs
from msgspec.structs import replace

import envsolve
from envsolve.errors import IndexUnavailableError, UsageError
from envsolve.formats import render
from envsolve.packages.client import IndexClient
from envsolve.packages.requirement_files import read_requirements
from envsolve.packages.settings import IndexSettings
from envsolve.planning.make import make_plan
from envsolve.planning.plan import Plan
from envsolve.planning.request import Request
from tests.planning.worlds import chosen, codes, package
from tests.smallworld import LINUX, NEW, World


@pytest.mark.parametrize(
    ("target", "torch"),
    [
        ("H100, driver 580.95.05", "2.14.1 cu130"),
        ("H100, driver 535.104.05", "2.14.1+cu126 cu126"),
        ("GTX 1080 Ti, driver 550.54.15", "2.14.1+cu126 cu126"),
        ("RTX 5090, driver 570.86.10", "2.11.0+cu128 cu128"),
        ("RTX 4090, driver 610.43.02", "2.14.1 cu130"),
        ("no gpu", "2.11.0+cpu cpu"),
    ],
)
def test_the_newest_torch_whose_code_and_triton_run_is_chosen(torch_world: World, target: str, torch: str) -> None:
    plan = torch_world.plan("torch", target=target)
    assert plan.status == "ok"
    assert chosen(plan)["torch"] == torch


def test_the_whole_family_is_on_one_variant(torch_world: World) -> None:
    plan = torch_world.plan("torchvision", "torch", target="H100, driver 535.104.05")
    assert plan.cuda == "cu126"
    assert chosen(plan) == {
        "filelock": "1.0",
        "numpy": "1.0",
        "torch": "2.14.1+cu126 cu126",
        "torchvision": "0.29.0+cu126 cu126",
        "triton": "3.8.0",
    }
    assert package(plan, "torchvision").requires == ("numpy", "torch")


def test_a_variant_that_is_asked_for_is_kept(torch_world: World) -> None:
    assert torch_world.plan("torch", cuda="cu126").cuda == "cu126"
    assert chosen(torch_world.plan("torch", cuda="cu128"))["torch"] == "2.11.0+cu128 cu128"


def test_a_companion_pulls_torch_along(torch_world: World) -> None:
    assert chosen(torch_world.plan("torchvision<0.25"))["torch"] == "2.9.1 cu128"


@pytest.mark.parametrize("asked", ["torch==2.9.1", "torch==2.9.1+cu126", "torch==2.9.1+cu128", "torch>=2.9,<2.10"])
def test_torch_pins_with_and_without_a_local_version(torch_world: World, asked: str) -> None:
    plan = torch_world.plan(asked)
    assert package(plan, "torch").version.startswith("2.9.1")
    assert package(plan, "torch").variant == ("cu126" if "cu126" in asked else "cu128")


def test_no_look_alike_wins(torch_world: World) -> None:
    """Not by a higher version, not on an extra index, and not for ordinary packages on the family's index."""
    evil = torch_world.server.index("/evil/")
    for name in ("torch", "torchvision", "triton"):
        evil.wheel(name, "99.0")
        torch_world.default.wheel(name, "99.0")
    evil.wheel("numpy", "99.0")
    torch_world.variant_index("cu126").wheel("numpy", "99.0")
    torch_world.variant_index("cu126").wheel("filelock", "99.0")
    torch_world.extras = (evil.url,)
    plan = torch_world.plan("torch", "torchvision", target="H100, driver 535.104.05")
    assert chosen(plan)["torch"] == "2.14.1+cu126 cu126"
    assert chosen(plan)["numpy"] == chosen(plan)["filelock"] == "1.0"
    assert torch_world.server.asked("/evil/") == 0
    urls = {p.name: p.url for p in plan.packages}
    assert all("/whl/cu126/" in (urls[n] or "") for n in ("torch", "torchvision"))
    assert all("/simple/" in (urls[n] or "") for n in ("numpy", "filelock", "triton"))


def test_packages_of_merged_indexes_are_named(world: World) -> None:
    extra = world.server.index("/extra/")
    for index, version in ((world.default, "1.0"), (extra, "2.0")):
        index.wheel("lib", version)
    extra.wheel("own", "1.0")
    asked = read_requirements(["lib", "own"])
    for strategy, told in (("first-index", []), ("unsafe-best-match", ["lib 2.0 comes from"])):
        settings = IndexSettings(world.default.url, (extra.url,), strategy=strategy)
        with IndexClient(settings, cache_dir=world.cache) as client:
            machine = world.machine("H100, driver 580.95.05")
            plan = make_plan(asked, [machine], Request(), world.catalogue(), client)
        merged = [warning.message for warning in plan.warnings if warning.code == "indexes-merged"]
        assert chosen(plan) == {"lib": "2.0" if told else "1.0", "own": "1.0"}
        assert [part in message for part, message in zip(told, merged, strict=True)] == [True] * len(told)
    with pytest.raises(UsageError, match="'best' is not known"):
        Request(index_strategy="best")


def test_the_family_is_judged_without_asking_more_than_the_chosen_index(torch_world: World) -> None:
    torch_world.plan("torch", target="H100, driver 535.104.05")
    assert torch_world.server.asked("/whl/cu126/torch/") == 1
    assert torch_world.server.asked("/whl/cu128") == 0
    assert torch_world.server.asked("/simple/torch/") == 0


def test_hashes_and_addresses_come_from_the_index(torch_world: World) -> None:
    torch = package(torch_world.plan("torch", target="H100, driver 535.104.05"), "torch")
    assert torch.filename == "torch-2.14.1+cu126-cp312-cp312-manylinux_2_28_x86_64.whl"
    assert torch.url and torch.url.endswith("torch-2.14.1%2Bcu126-cp312-cp312-manylinux_2_28_x86_64.whl")
    assert len(torch.hashes["sha256"]) == 64


def test_a_file_that_vanished_from_its_index_is_not_planned(torch_world: World) -> None:
    torch_world.build("torch", "2.15.0", "cu130", requires=["filelock", "triton==3.8.0"], code=NEW, served=False)
    assert chosen(torch_world.plan("torch"))["torch"] == "2.14.1 cu130"


def test_an_index_out_of_reach_leaves_the_catalogue_and_says_so(torch_world: World) -> None:
    torch_world.server.fault("/whl/cu126/torch/", status=503)
    plan = torch_world.plan("torch", target="H100, driver 535.104.05")
    assert chosen(plan)["torch"] == "2.14.1+cu126 cu126"
    assert "index-unreachable" in codes(plan)
    assert package(plan, "torch").hashes == {}


def test_the_default_index_out_of_reach_is_an_index_failure(torch_world: World) -> None:
    torch_world.server.fault("/simple/", status=503)
    with pytest.raises(IndexUnavailableError):
        torch_world.plan("torch")


def test_one_plan_that_is_good_on_all_machines(torch_world: World) -> None:
    machines = [torch_world.machine(t) for t in ("H100, driver 580.95.05", "V100, driver 535.104.05")]
    plan = torch_world.plan_for(machines, "torch")
    assert chosen(plan)["torch"] == "2.14.1+cu126 cu126"
    assert {s.compute_capability for s in plan.support if s.package == "torch"} == {"9.0", "7.0"}


def test_what_is_not_known_makes_the_plan_unknown(torch_world: World) -> None:
    plan = torch_world.plan("torch", target="H100")
    assert plan.status == "unknown"
    assert "driver-unknown" in codes(plan)


def test_a_torch_held_back_for_its_triton_is_told(torch_world: World) -> None:
    torch_world.build("torch", "2.13.0", "cu129", index="pytorch", requires=["filelock", "triton==3.7.1"], code=NEW)
    torch_world.build("triton", "3.7.1", "any")
    plan = torch_world.plan("torch", target="RTX 5090, driver 570.86.10")
    assert chosen(plan)["torch"] == "2.11.0+cu128 cu128"
    [warning] = [warning for warning in plan.warnings if warning.code == "newer-torch-held-back"]
    assert warning.message.startswith("the plan has torch 2.11.0 [cu128] although torch 2.13.0 [cu129] is newer and ")
    assert "because the Triton of the newer torch would not work here" in warning.message
    assert (warning.remedy or "").startswith(
        "you do not have to do anything; to get torch 2.13.0: install driver 580.65.06 or newer (branch R580) and "
        "plan again, or "
    )
    raised = torch_world.plan("torch", target="RTX 5090, driver 580.65.06")
    assert (chosen(raised)["torch"], "newer-torch-held-back" in codes(raised)) == ("2.14.1 cu130", False)


def test_triton_that_cannot_serve_the_card_is_a_warning(torch_world: World) -> None:
    plan = torch_world.plan("torch", target="GTX 1080 Ti, driver 550.54.15")
    assert "triton-limited" in codes(plan)


def test_the_same_request_gives_the_same_plan(torch_world: World) -> None:
    assert torch_world.plan("torch", "torchvision") == torch_world.plan("torchvision", "torch").__class__(
        **{
            **{f: getattr(torch_world.plan("torchvision", "torch"), f) for f in Plan.__struct_fields__},
            "requirements": ("torch", "torchvision"),
        }
    )


def test_extras_markers_and_constraints(world: World, tmp_path: Path) -> None:
    world.default.wheel(
        "lib", "1.0", requires=["win-only; sys_platform == 'win32'", "fast>=1; extra == 'speed'"], extras=["speed"]
    )
    world.default.wheel("fast", "1.0")
    world.default.wheel("fast", "2.0")
    assert chosen(world.plan("lib")) == {"lib": "1.0"}
    limits = tmp_path / "constraints.txt"
    limits.write_text("fast<2\nunused==9\n")
    asked = read_requirements(["lib[speed]"], constraints=[limits])
    assert chosen(world.plan(asked=asked)) == {"fast": "1.0", "lib": "1.0"}


def test_prereleases_yanked_files_and_cutoff(world: World) -> None:
    world.default.wheel("lib", "1.0", upload_time="2024-01-01T00:00:00Z")
    world.default.wheel("lib", "1.1", upload_time="2025-01-01T00:00:00Z")
    world.default.wheel("lib", "1.2", upload_time="2025-02-01T00:00:00Z", yanked="broken")
    world.default.wheel("lib", "2.0rc1", upload_time="2025-03-01T00:00:00Z")
    assert chosen(world.plan("lib"))["lib"] == "1.1"
    assert chosen(world.plan("lib", prereleases=True))["lib"] == "2.0rc1"
    assert chosen(world.plan("lib>=2.0rc1"))["lib"] == "2.0rc1"
    assert chosen(world.plan("lib", exclude_newer="2024-06-01"))["lib"] == "1.0"
    yanked = world.plan("lib==1.2")
    assert chosen(yanked)["lib"] == "1.2"
    assert "yanked" in codes(yanked)


def test_wheels_of_other_pythons_and_platforms_are_no_candidates(world: World) -> None:
    world.default.wheel("lib", "1.0", tags="cp312-cp312-manylinux_2_17_x86_64")
    world.default.wheel("lib", "2.0", tags="cp313-cp313-manylinux_2_17_x86_64")
    world.default.wheel("lib", "3.0", tags="cp312-cp312-manylinux_2_39_x86_64")
    world.default.wheel("lib", "4.0", tags="cp312-cp312-win_amd64")
    world.default.wheel("lib", "5.0", requires_python=">=3.13")
    assert chosen(world.plan("lib"))["lib"] == "1.0"


def test_a_source_distribution_serves_where_no_wheel_does(world: World) -> None:
    world.default.sdist("lib", "1.0", requires=["dep"])
    world.default.sdist("odd", "1.0", requires=["dep"], dynamic=["Requires-Dist"])
    world.default.wheel("dep", "1.0")
    plan = world.plan("lib", "odd")
    assert package(plan, "lib").kind == "sdist"
    assert chosen(plan)["dep"] == "1.0"
    assert codes(plan).count("source-build") == 2
    assert codes(plan).count("dependencies-guessed") == 1


def test_builds_of_several_platforms_are_told_apart(torch_world: World) -> None:
    for version in ("2.9.1", "2.11.0", "2.14.1"):
        pins = next(b for b in torch_world.builds if b.package == "torch" and b.version == version).requires or ()
        torch_world.build("torch", version, "cu130", requires=pins, code=("sm_90",), platform="manylinux_2_28_aarch64")
    for build in [b for b in torch_world.builds if b.package == "triton"]:
        torch_world.build("triton", build.version, "any", platform="manylinux_2_28_aarch64")
    assert package(torch_world.plan("torch"), "triton").filename == f"triton-3.8.0-cp312-cp312-{LINUX}.whl"
    arm = torch_world.plan("torch", target="GH200, driver 580.95.05, linux-aarch64")
    assert [p.filename for p in arm.packages if p.name in ("torch", "triton")] == [
        "torch-2.14.1-cp312-cp312-manylinux_2_28_aarch64.whl",
        "triton-3.8.0-cp312-cp312-manylinux_2_28_aarch64.whl",
    ]


def test_the_solver_backtracks_to_an_older_version(world: World) -> None:
    world.default.wheel("app", "2.0", requires=["lib>=2"])
    world.default.wheel("app", "1.0", requires=["lib"])
    world.default.wheel("lib", "1.0")
    assert chosen(world.plan("app")) == {"app": "1.0", "lib": "1.0"}


def test_direct_references(world: World) -> None:
    entry = world.default.wheel("lib", "1.5", requires=["dep"])
    world.default.wheel("dep", "1.0")
    url = f"{world.server.url}{entry.url}"
    plan = world.plan(f"lib @ {url}", "tree @ git+https://example.org/tree.git")
    assert package(plan, "lib").url == url
    assert package(plan, "tree").kind == "sdist"
    assert package(plan, "tree").url == "git+https://example.org/tree.git"
    assert chosen(plan)["dep"] == "1.0"


def test_a_constraint_that_nothing_meets_is_named(world: World) -> None:
    entry = world.default.wheel("lib", "1.5")
    asked = read_requirements(["lib"])
    held = structs.replace(asked, constraints=read_requirements(["lib==3"]).needs)
    direct = structs.replace(held, needs=read_requirements([f"lib @ {world.server.url}{entry.url}"]).needs)
    for request, fact in ((held, "none"), (direct, f"the lib at {world.server.url}{entry.url} does not satisfy ==3")):
        plan = world.plan(asked=request)
        assert plan.remedies[0].text == "relax the constraint lib==3"
        assert "the constraints limit lib to ==3" in [one.fact for one in plan.conflict]
        assert fact == "none" or plan.conflict[-1].fact == fact


def test_the_login_of_an_address_is_sent_and_is_in_no_lock(world: World) -> None:
    entry = world.server.index("/private/", auth=("me", "s3cret")).wheel("lib", "1.5")
    plan = world.plan(f"lib @ {world.server.url.replace('://', '://me:s3cret@')}{entry.url}#sha256={'0' * 64}")
    assert chosen(plan) == {"lib": "1.5"}
    assert f'url = "{world.server.url}{entry.url}#' in render(plan, "pylock")


def test_a_target_without_a_platform_is_one_platform(torch_world: World) -> None:
    for build in list(torch_world.builds):
        if build.index == "default":
            requires = build.requires or ()
            platform = "manylinux_2_28_aarch64"
            torch_world.build(
                build.package, build.version, build.variant, requires=requires, code=NEW, platform=platform
            )
    machine = replace(torch_world.machine("H100, driver 580.95.05"), platform=None)
    plan = torch_world.plan_for([machine], "torch")
    assert "platform-unknown" in codes(plan)
    assert {p.filename and p.filename.rsplit("-", 1)[-1] for p in plan.packages if p.variant or p.name == "triton"} == {
        f"{LINUX}.whl"
    }


@pytest.mark.parametrize(
    ("asked", "target", "status"),
    [
        ("triton", "GTX 1080 Ti, driver 580.95.05", "impossible"),
        ("triton==3.5.1", "GB10, driver 580.95.05", "impossible"),
        ("triton", "GB10, driver 580.95.05", "ok"),
        ("triton", "RTX 5090, driver 570.86.10", "ok"),
        ("triton", "no gpu", "ok"),
        ("triton", "H100", "unknown"),
    ],
)
def test_triton_alone_is_judged(torch_world: World, asked: str, target: str, status: str) -> None:
    plan = torch_world.plan(asked, target=target)
    assert plan.status == status
    if "570" in target:
        assert package(plan, "triton").version == "3.6.0"
    if status == "impossible" and "GB10" in target:
        assert plan.remedies[0].text == "request triton==3.8.0"


def test_a_cpu_environment_can_be_asked_for_on_a_gpu_machine(torch_world: World) -> None:
    plan = torch_world.plan("torch", cuda="cpu")
    assert (plan.status, chosen(plan)["torch"]) == ("ok", "2.11.0+cpu cpu")


def test_machines_with_different_pythons_and_unknown_branches_are_told(torch_world: World) -> None:
    targets = ("H100, driver 999.1, python 3.12", "H100, driver 580.95.05, python 3.11")
    plan = torch_world.plan_for([torch_world.machine(t) for t in targets], "torch")
    assert {"python-differs", "driver-newer-than-facts"} <= set(codes(plan))


def test_a_cuda_beyond_the_driver_s_branch_is_that_of_a_compat_library(torch_world: World) -> None:
    plan = torch_world.plan("torch", target="RTX 4090, driver 550.54.15, cuda 13.0")
    assert "driver-cuda-overstated" in codes(plan)
    assert plan.cuda == "cu126"


def test_versions_of_a_plan_for_several_machines_install_on_all(torch_world: World) -> None:
    lib = torch_world.default
    lib.wheel("lib", "1.0", tags="py3-none-any", upload_time="2024-01-01T00:00:00Z")
    lib.wheel("lib", "2.0", tags="cp312-cp312-manylinux_2_31_x86_64", upload_time="2024-01-01T00:00:00Z")
    targets = ("H100, driver 580.95.05, glibc 2.35", "H100, driver 580.95.05, glibc 2.28")
    machines = [torch_world.machine(target) for target in targets]
    assert chosen(torch_world.plan_for(machines[:1], "lib"))["lib"] == "2.0"
    assert chosen(torch_world.plan_for(machines, "lib"))["lib"] == "1.0"
    arm = torch_world.machine("GH200, driver 580.95.05, linux-aarch64, glibc 2.35")
    plan = torch_world.plan_for([machines[0], arm], "lib")
    assert chosen(plan)["lib"] == "1.0"
    assert "several-systems" in codes(plan)


def test_a_tree_that_was_not_read_is_not_called_good(torch_world: World) -> None:
    plan = torch_world.plan("torch @ git+https://example.org/pytorch.git")
    assert plan.status == "unknown"
    assert "not-judged" in codes(plan)


def test_only_files_that_are_listed_by_hash_are_taken(world: World, tmp_path: Path) -> None:
    world.default.wheel("lib", "1.0")
    old = world.default.projects["lib"][0].sha256
    world.default.wheel("lib", "2.0")
    listed = tmp_path / "requirements.txt"
    listed.write_text(f"lib --hash=sha256:{old}\n")
    assert chosen(world.plan(asked=read_requirements([], [listed])))["lib"] == "1.0"
    listed.write_text(f"lib --hash=sha256:{'0' * 64}\n")
    assert world.plan(asked=read_requirements([], [listed])).status == "impossible"


def test_a_family_file_with_another_hash_is_refused(torch_world: World, tmp_path: Path) -> None:
    listed = tmp_path / "requirements.txt"
    listed.write_text(f"torch --hash=sha256:{'0' * 64}\n")
    with pytest.raises(UsageError, match="the hash of"):
        torch_world.plan(asked=read_requirements([], [listed]))


def test_what_a_triton_imports_without_declaring_it_is_planned(torch_world: World) -> None:
    torch_world.build("triton", "3.2.0", "any")
    torch_world.default.wheel("setuptools", "80.0", upload_time="2024-01-01T00:00:00Z")
    assert chosen(torch_world.plan("triton==3.2.0"))["setuptools"] == "80.0"
    assert "setuptools" not in chosen(torch_world.plan("triton==3.6.0"))


def test_a_plan_renders_saves_and_loads(torch_world: World) -> None:
    made = torch_world.plan("torch", "torchvision")
    assert made.to_pylock() == made.render("pylock")
    assert Plan.from_json(made.to_json()) == made
    assert Plan.from_json(made.to_json().encode()).to_pylock() == made.to_pylock()
    assert envsolve.to_json(made) == made.to_json()
    with pytest.raises(UsageError, match="not the JSON of a plan"):
        Plan.from_json("{")
    with pytest.raises(UsageError, match="not the JSON of a plan"):
        Plan.from_json("{}")
    with pytest.raises(UsageError, match="unknown plan format"):
        made.render("nothing")
