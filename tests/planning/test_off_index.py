"""Extensions whose wheels are on release pages or pages of links: taken where they fit the torch, and told."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from envsolve.errors import UsageError
from envsolve.facts.builds import Build, FileFact, IndexPlace
from envsolve.facts.evidence import Evidence
from envsolve.formats import render
from envsolve.planning.lock import assumptions_of
from envsolve.planning.plan import Plan
from tests.planning.worlds import codes, package
from tests.smallworld import World

SHA = "a" * 64


def wheel(world: World, name: str, version: str, index: str, **fields: object) -> None:
    code, platform, pythons = ("sm_80", "sm_90"), "linux_x86_64", ("cp312",)
    made = Build(
        name, version, "cu129", platform, pythons, index, Evidence.DOCUMENTED, "small", local="+cu12torch2.9", code=code
    )
    made = replace(made, torch="==2.9.*", cuda="12.9", cxx11_abi=True)
    world.builds.append(replace(made, **fields))


@pytest.fixture
def extensions(torch_world: World) -> World:
    """flash-attn with wheels on a release page, torch-scatter with wheels on a page of links; sdists on the index."""
    world = torch_world
    world.builds = [replace(build, cxx11_abi=True) if build.package == "torch" else build for build in world.builds]
    for name, versions in (("flash-attn", ("2.8.0", "2.9.0")), ("torch-scatter", ("2.1.2",))):
        for version in versions:
            world.default.sdist(name, version, requires=["torch", "filelock"], upload_time="2024-01-01T00:00:00Z")
    url = f"{world.server.url}/releases/{{tag}}/{{filename}}"
    world.places.append(
        IndexPlace("releases", url, Evidence.DOCUMENTED, "small", kind="release", tags={"2.8.0": "v2.8.0.again"})
    )
    page = f"{world.server.url}/links/torch-{{torch}}.0+{{variant}}.html"
    world.places.append(IndexPlace("links", page, Evidence.DOCUMENTED, "small", kind="links"))
    wheel(world, "flash-attn", "2.8.0", "releases", files={"cp312": FileFact(sha256=SHA)}, evidence=Evidence.PUBLISHED)
    wheel(world, "torch-scatter", "2.1.2", "links", variant="cu128", cuda="12.8", local="+pt29cu128", cxx11_abi=None)
    return world


def ask(world: World, *requirements: str, target: str = "H100, driver 580.95.05") -> Plan:
    return world.plan(*requirements, target=target)


def test_a_ready_wheel_goes_before_compiling_a_newer_version(extensions: World) -> None:
    plan = ask(extensions, "torch==2.9.1", "flash-attn")
    found = package(plan, "flash-attn")
    assert (found.version, found.kind, found.index) == ("2.8.0+cu12torch2.9", "wheel", None)
    name = "flash_attn-2.8.0%2Bcu12torch2.9-cp312-cp312-linux_x86_64.whl"
    assert found.url == f"{extensions.server.url}/releases/v2.8.0.again/{name}"
    assert found.hashes == {"sha256": SHA}
    assert found.requires == ("filelock", "torch")  # by the sdist of the same version
    assert ("flash-attn", "native") in {(s.package, s.level) for s in plan.support}
    assert "off-index-wheel" in codes(plan) and "compiles" not in codes(plan)
    assert plan.toolchain is not None and plan.toolchain.compiles == ()
    assert f'sha256 = "{SHA}"' in render(plan, "pylock")


@pytest.mark.parametrize(
    ("asked", "target"),
    [
        (("torch==2.11.0", "flash-attn"), "H100, driver 580.95.05"),  # another torch
        (("torch==2.9.1", "flash-attn>2.8"), "H100, driver 580.95.05"),  # another version
        (("torch==2.9.1", "flash-attn"), "H100, driver 580.95.05, glibc 2.28"),  # the wheel needs a newer libc
    ],
)
def test_where_none_fits_it_is_compiled(extensions: World, asked: tuple[str, ...], target: str) -> None:
    extensions.builds = [
        replace(build, libc="glibc 2.32") if build.package == "flash-attn" else build for build in extensions.builds
    ]
    plan = ask(extensions, *asked, target=target)
    assert package(plan, "flash-attn").kind == "sdist"
    assert "compiles" in codes(plan)


def test_where_neither_wheel_nor_source_serves_the_card_it_is_refused(extensions: World) -> None:
    plan = ask(extensions, "torch==2.9.1", "flash-attn", target="T4, driver 580.95.05")
    assert [fact.fact for fact in plan.conflict] == [
        "flash-attn >=2.7.4 can be compiled only for compute capability 8.0 and newer",
        "the machine has Tesla T4 (cc 7.5)",
    ]


def test_torch_is_not_bent_to_a_wheel_and_the_one_to_ask_for_is_told(extensions: World) -> None:
    plan = ask(extensions, "torch", "flash-attn")
    assert package(plan, "torch").version == "2.14.1"
    assert package(plan, "flash-attn").version == "2.9.0"
    (told,) = (w for w in plan.warnings if w.code == "ready-wheel-elsewhere")
    assert told.message == "flash-attn has prebuilt wheels for torch 2.9, but none for torch 2.14.1 [cu130]"
    assert told.remedy == "request torch==2.9.* to compile nothing"


def test_torch_is_that_of_the_ready_wheel_of_a_pinned_release(extensions: World) -> None:
    plan = ask(extensions, "torch", "flash-attn==2.8.0")
    assert package(plan, "torch").version == "2.9.1"
    assert package(plan, "flash-attn").kind == "wheel"
    (told,) = (w for w in plan.warnings if w.code == "torch-for-ready-wheel")
    assert told.remedy == "request torch==2.14.1 to use the newest torch and compile the package"


@pytest.mark.parametrize(
    ("asked", "remedies"),
    [
        (("torch", "flash-attn==2.9.0"), []),  # the wheels are of another release
        (("torch==2.14.1", "flash-attn==2.8.0"), [None]),  # that torch is pinned
    ],
)
def test_wheels_that_the_request_excludes_are_not_proposed(
    extensions: World, asked: tuple[str, ...], remedies: list[str | None]
) -> None:
    plan = ask(extensions, *asked)
    assert package(plan, "torch").version == "2.14.1"
    assert [w.remedy for w in plan.warnings if w.code == "ready-wheel-elsewhere"] == remedies


def test_a_wheel_of_another_abi_is_none(extensions: World) -> None:
    extensions.builds = [b for b in extensions.builds if b.package != "flash-attn"]
    wheel(extensions, "flash-attn", "2.8.0", "releases", cxx11_abi=False)
    assert package(ask(extensions, "torch==2.9.1", "flash-attn"), "flash-attn").kind == "sdist"


def test_a_file_without_a_known_hash_is_told_and_locked_by_none(extensions: World) -> None:
    wheel(extensions, "flash-attn", "2.9.0", "releases", libc="glibc 2.32")
    plan = ask(extensions, "torch==2.9.1", "flash-attn")
    assert package(plan, "flash-attn").version == "2.9.0+cu12torch2.9"
    assert assumptions_of(plan).libc == "glibc 2.32"
    (told,) = (w.message for w in plan.warnings if w.code == "off-index-wheel")
    assert told.endswith("; the file is known only from the project's build workflow; its sha256 is not known")
    with pytest.raises(UsageError, match="no public list has the sha256"):
        render(plan, "pylock")
    assert "flash-attn @ http" in render(plan, "pip")


def test_a_page_of_links_gives_the_address(extensions: World) -> None:
    link = f"torch-2.9.0%2Bcu128/torch_scatter-2.1.2%2Bpt29cu128-cp312-cp312-linux_x86_64.whl#sha256={SHA}"
    body = f'<!DOCTYPE html><html><body><a href="{link}">x</a></body></html>'.encode()
    extensions.server.fault("/links/torch-2.9.0", status=200, body=body, headers={"Content-Type": "text/html"})
    found = package(ask(extensions, "torch==2.9.1", "torch-scatter"), "torch-scatter")
    assert found.url == f"{extensions.server.url}/links/{link.partition('#')[0]}"
    assert (found.index, found.hashes) == (None, {"sha256": SHA})


@pytest.mark.parametrize("status", [404, 503])
def test_a_page_of_links_that_gives_no_address_leaves_compiling(extensions: World, status: int) -> None:
    extensions.server.fault("/links/", status=status)
    plan = ask(extensions, "torch==2.9.1", "torch-scatter")
    assert package(plan, "torch-scatter").kind == "sdist"
    assert "ready-wheel-unread" in codes(plan)


def test_the_scheme_of_its_files_stands_in_for_a_page_that_cannot_be_read(extensions: World) -> None:
    scheme = f"{extensions.server.url}/links/torch-{{torch}}.0%2B{{variant}}/{{filename}}"
    extensions.places[-1] = replace(extensions.places[-1], scheme=scheme)
    extensions.server.fault("/links/", status=503)
    found = package(ask(extensions, "torch==2.9.1", "torch-scatter"), "torch-scatter")
    name = "torch_scatter-2.1.2%2Bpt29cu128-cp312-cp312-linux_x86_64.whl"
    assert found.url == f"{extensions.server.url}/links/torch-2.9.0%2Bcu128/{name}"


def test_what_is_asked_for_by_hash_or_by_address_is_that_file(extensions: World) -> None:
    plan = ask(extensions, "torch==2.9.1", "flash-attn @ git+https://example.org/flash-attention")
    assert package(plan, "flash-attn").url == "git+https://example.org/flash-attention"


@pytest.mark.parametrize("torch", ["torch", "torch==2.9.1", "torch==2.11.0"])
def test_a_page_of_links_is_proposed_for_what_is_on_no_index(extensions: World, torch: str) -> None:
    """pyg-lib: the refusal proposed to check its name."""
    wheel(extensions, "pyg-lib", "0.6.0", "links", variant="cu128", cuda="12.8", local="+pt29cu128", cxx11_abi=None)
    refused = ask(extensions, torch, "pyg-lib")
    assert refused.status == "impossible"
    page = f"--find-links {extensions.server.url}/links/torch-2.9.0+cu128.html"
    found = [fix.unlocks for fix in refused.remedies if fix.text == f"add {page}"]
    assert found == ([] if torch == "torch==2.11.0" else ["pyg-lib 0.6.0 for torch 2.9.1 [cu128]"])
