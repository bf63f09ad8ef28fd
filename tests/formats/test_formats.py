from __future__ import annotations

import shlex
from pathlib import Path
from types import MappingProxyType

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from packaging.pylock import Pylock

import envsolve.formats
from envsolve._default_index import DEFAULT_INDEX
from envsolve.errors import ImpossibleError, IndexUnavailableError, UsageError
from envsolve.formats import formats, pip, pylock, render, requirements, uv
from envsolve.machine.model import Gpu, Machine, Platform
from envsolve.planning.lock import Assumptions, assumptions_of
from envsolve.planning.plan import Plan
from envsolve.solve.outcome import PlannedPackage, PlanWarning
from tests.formats.plans import CU126, FILELOCK, GOOD, IMPOSSIBLE, MIRROR, TORCH, TRITON, package

TREE = PlannedPackage("foo", "0+unread", None, None, None, "git+https://example.org/foo.git@v1", {}, "sdist")
DIRECT = package("bar", "1.0", index=None)


def test_formats_are_found_by_their_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    known = formats()
    assert {"apptainer", "dockerfile", "json", "pip", "pylock", "requirements", "summary", "uv"} <= set(known)
    (tmp_path / "two_words.py").write_text("def render(plan):\n    return plan.status\n")
    (tmp_path / "_helper.py").touch()
    monkeypatch.setattr(envsolve.formats, "__path__", [*envsolve.formats.__path__, str(tmp_path)])
    assert formats() == tuple(sorted([*known, "two-words"]))
    assert render(GOOD, "two-words") == "ok"


def test_an_unknown_format_names_the_known_ones() -> None:
    with pytest.raises(UsageError) as caught:
        render(GOOD, "_words")
    assert ", ".join(formats()) in (caught.value.hint or "")


@pytest.mark.parametrize("format", ["pip", "uv", "pylock", "requirements"])
def test_an_impossible_plan_is_refused_with_its_conflict(format: str) -> None:
    with pytest.raises(ImpossibleError) as caught:
        render(IMPOSSIBLE, format)
    assert caught.value.message == (
        "nothing fits, because flash-attn 1.0 needs torch<2.1; because torch==2.9.* is asked for"
    )
    assert caught.value.hint == "request flash-attn>=2.8: torch 2.9.0 with cu126"


def test_pip_and_uv_commands() -> None:
    assert render(GOOD, "pip") == (
        f"python -m pip install --no-deps --index-url {CU126} torch==2.9.0+cu126 triton==3.5.0\n"
        f"python -m pip install --no-deps --index-url {MIRROR} filelock==3.20.0\n"
    )
    assert render(GOOD, "uv") == (
        f"uv pip install --no-deps --default-index {CU126} torch==2.9.0+cu126 triton==3.5.0\n"
        f"uv pip install --no-deps --default-index {MIRROR} filelock==3.20.0\n"
    )


def test_the_built_in_index_needs_no_option() -> None:
    plan = replace(GOOD, packages=(replace(FILELOCK, index=DEFAULT_INDEX), TORCH))
    assert pip.commands(plan)[-1] == "python -m pip install --no-deps filelock==3.20.0"
    assert uv.commands(plan)[-1] == "uv pip install --no-deps filelock==3.20.0"


def test_commands_need_neither_address_nor_hash() -> None:
    plan = replace(GOOD, packages=(replace(TORCH, url=None, hashes={}),))
    assert pip.commands(plan) == (f"python -m pip install --no-deps --index-url {CU126} torch==2.9.0+cu126",)


def test_commands_for_addresses_come_last_and_are_quoted() -> None:
    plan = replace(GOOD, packages=(DIRECT, TREE, FILELOCK))
    assert [shlex.split(command)[4:] for command in pip.commands(plan)] == [
        ["--no-deps", "--index-url", MIRROR, "filelock==3.20.0"],
        ["--no-deps", f"bar @ {DIRECT.url}"],
        [f"foo @ {TREE.url}"],
    ]


def test_no_packages_no_commands() -> None:
    assert pip.commands(Plan()) == uv.commands(Plan()) == ()


def test_requirements() -> None:
    assert (
        render(GOOD, "requirements")
        == f"""\
# envsolve plan for torch>=2.4
# machine: 2x NVIDIA GeForce RTX 4090 (cc 8.9), driver 550.54.15, linux x86_64, glibc 2.35
# Python 3.12, variant cu126
# set at run time: TRITON_PTXAS_PATH={{site_packages}}/nvidia/cu13/bin/ptxas
--index-url {MIRROR}

# from {CU126}
torch @ {TORCH.url} \\
    --hash=sha256:{TORCH.hashes["sha256"]}
triton @ {TRITON.url} \\
    --hash=sha256:{TRITON.hashes["sha256"]}

# from {MIRROR}
filelock==3.20.0 \\
    --hash=sha256:{FILELOCK.hashes["sha256"]}
"""
    )


def test_requirements_with_several_hashes_and_an_address() -> None:
    several = replace(FILELOCK, hashes={"sha512": "bb", "md5": "cc", "sha256": "aa"})
    text = requirements.render(Plan(packages=(DIRECT, several)))
    assert f"# requested by URL\nbar @ {DIRECT.url} \\\n" in text
    assert "filelock==3.20.0 \\\n    --hash=sha256:aa \\\n    --hash=sha512:bb\n" in text
    assert "md5" not in text


@pytest.mark.parametrize("format", ["pylock", "requirements"])
@pytest.mark.parametrize(
    ("bad", "error", "message"),
    [
        (
            replace(TORCH, url=None, hashes={}),
            IndexUnavailableError,
            f"{CU126} cannot be reached, and the catalogue has no sha256 of torch 2.9.0+cu126",
        ),
        (
            replace(TORCH, hashes={"md5": "a"}),
            IndexUnavailableError,
            f"{CU126} publishes no sha256 of torch 2.9.0+cu126",
        ),
        (replace(DIRECT, hashes={}), UsageError, f"by URL ({DIRECT.url}) without a hash"),
        (TREE, IndexUnavailableError, "the commit of foo is not known, because git+https://example.org/foo.git@v1 was"),
    ],
)
def test_hashed_formats_refuse_what_has_no_hash(
    format: str, bad: PlannedPackage, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=r".*") as caught:
        render(replace(GOOD, packages=(FILELOCK, bad)), format)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("evidence", "message"),
    [
        ("measured", f"{CU126} cannot be reached, and the catalogue has no sha256 of torch 2.9.0+cu126"),
        (None, f"{CU126} publishes no sha256 of torch 2.9.0+cu126"),  # not of the catalogue: its index was read
    ],
)
def test_a_hash_that_was_not_seen_is_no_hash_that_the_index_lacks(evidence: str | None, message: str) -> None:
    bare = replace(TORCH, hashes={}, evidence=evidence)
    plan = replace(GOOD, packages=(FILELOCK, bare), warnings=(PlanWarning("index-unreachable", "no answer"),))
    with pytest.raises(IndexUnavailableError) as caught:
        render(plan, "pylock")
    assert caught.value.message == message


def test_pylock_is_what_the_plan_says() -> None:
    lock = Pylock.from_dict(msgspec.toml.decode(render(GOOD, "pylock")))
    assert [(p.name, str(p.version), p.index) for p in lock.packages] == [
        ("filelock", "3.20.0", MIRROR),
        ("torch", "2.9.0+cu126", CU126),
        ("triton", "3.5.0", CU126),
    ]
    torch = lock.packages[1]
    assert torch.wheels is not None
    wheel = torch.wheels[0]
    assert (wheel.filename, wheel.url, wheel.size, wheel.hashes) == (
        TORCH.filename,
        TORCH.url,
        TORCH.size,
        TORCH.hashes,
    )
    assert torch.dependencies == [{"name": "filelock"}, {"name": "triton"}]
    assert str(torch.requires_python) == ">=3.10"
    assert str(lock.requires_python) == "==3.12.*"
    assert [str(marker) for marker in lock.environments or ()] == [
        'platform_system == "Linux" and platform_machine == "x86_64"'
    ]
    assert lock.tool is not None
    assert Assumptions.from_table(lock.tool["envsolve"]) == assumptions_of(GOOD)


def test_pylock_sdists_addresses_and_old_specifiers() -> None:
    sdist = replace(
        FILELOCK, kind="sdist", filename="filelock-3.20.0.tar.gz", requires_python=">=3.6.*", url=f"{MIRROR}f.tar.gz"
    )
    lock = Pylock.from_dict(msgspec.toml.decode(pylock.render(Plan(packages=(sdist, DIRECT)))))
    bar, filelock = lock.packages
    assert bar.archive is not None
    assert bar.archive.url == DIRECT.url
    assert bar.index is None
    assert filelock.sdist is not None
    assert filelock.sdist.filename == "filelock-3.20.0.tar.gz"
    assert filelock.requires_python is None
    assert lock.requires_python is None


@pytest.mark.parametrize(
    ("platforms", "markers"),
    [
        ([Platform("windows", "x86_64")], ['platform_system == "Windows" and platform_machine == "AMD64"']),
        (
            [Platform("linux", "x86_64"), Platform("linux", "aarch64"), Platform("linux", "x86_64")],
            [
                'platform_system == "Linux" and platform_machine == "aarch64"',
                'platform_system == "Linux" and platform_machine == "x86_64"',
            ],
        ),
        ([Platform("linux", "x86_64"), Platform("linux", None)], []),
        ([None], []),
        ([], []),
    ],
)
def test_pylock_environments(platforms: list[Platform | None], markers: list[str]) -> None:
    plan = Plan(machines=tuple(Machine(platform=platform) for platform in platforms))
    lock = Pylock.from_dict(msgspec.toml.decode(pylock.render(plan)))
    assert [str(marker) for marker in lock.environments or ()] == markers


@pytest.mark.parametrize("name", ["pylock.toml", "pylock.gpu.toml", "some/pylock.gpu.toml"])
def test_lock_names(name: str) -> None:
    pylock.check_path(Path(name))


@pytest.mark.parametrize("name", ["lock.toml", "pylock.a.b.toml", "pylock.json", "pylock..toml"])
def test_bad_lock_names(name: str) -> None:
    with pytest.raises(UsageError, match="a lock cannot have the name"):
        pylock.check_path(Path(name))


def test_json_has_the_contract_of_the_plan_and_the_commands() -> None:
    document = msgspec.json.decode(render(GOOD, "json"))
    assert document["schema"] == "envsolve.plan/1"
    assert document["commands"] == {"pip": list(pip.commands(GOOD)), "uv": list(uv.commands(GOOD))}
    assert set(document) >= {
        *("schema", "status", "machines", "python", "cuda", "packages", "support", "driver", "environment"),
        *("toolchain", "warnings", "conflict", "remedies", "commands"),
    }
    assert set(document["packages"][0]) >= {
        *("name", "version", "variant", "index", "filename", "url", "hashes", "kind", "requires", "why")
    }
    assert msgspec.json.decode(render(IMPOSSIBLE, "json"))["commands"] == {"pip": [], "uv": []}


sizes = st.none() | st.integers(0, 2**40)
mappings = st.dictionaries(st.text(), st.text(), max_size=2)
machines = st.builds(
    Machine,
    gpus=st.none() | st.lists(st.builds(Gpu, memory_mib=sizes), max_size=2).map(tuple),
    environment=st.none() | mappings.map(MappingProxyType),
    sources=mappings,
)
plans = st.builds(
    Plan,
    machines=st.lists(machines, max_size=1).map(tuple),
    packages=st.lists(st.builds(PlannedPackage, hashes=mappings, size=sizes), max_size=3).map(tuple),
    environment=mappings.map(MappingProxyType),
)


@given(plans)
def test_any_plan_survives_json(plan: Plan) -> None:
    text = render(plan, "json")
    again = msgspec.json.decode(text, type=Plan)
    assert again == plan
    assert render(again, "json") == text
