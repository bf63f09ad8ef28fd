"""A plan in a file that somebody else wrote: nothing in it becomes a line, a path or a command."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import envsolve
from envsolve.errors import UsageError
from envsolve.planning.plan import Plan

SHA = "a" * 64
PACKAGE = {
    "name": "demo",
    "version": "1.0",
    "variant": None,
    "index": "https://example.org/simple",
    "filename": "demo-1.0-py3-none-any.whl",
    "url": "https://example.org/demo-1.0-py3-none-any.whl",
    "hashes": {"sha256": SHA},
    "kind": "wheel",
}
TOOLCHAIN = {"nvcc": "12.4", "compiles": ["demo"]}
HOME = " && export CUDA_HOME=~/cuda-12.4"


def saved(package: dict[str, Any] | None = None, **fields: Any) -> str:
    return json.dumps({"schema": "envsolve.plan/1", "packages": [PACKAGE | (package or {})], **fields})


@pytest.mark.parametrize(
    "package",
    [
        {"filename": "../../evil.whl"},
        {"filename": "/etc/evil.whl"},
        {"filename": ".."},
        {"name": "demo\n-r /etc/passwd"},
        {"name": "--index-url"},
        {"version": "1.0 --index-url https://evil.example"},
        {"url": "https://example.org/x.whl\nRUN true"},
        {"index": "https://example.org/ --extra-index-url https://evil.example"},
        {"index": "--extra-index-url"},
        {"index": "https://[]/simple"},
        {"url": "https://[x]/demo-1.0-py3-none-any.whl"},
        {"hashes": {"sha256": f"{SHA}\nRUN true"}},
        {"kind": "sdist"},
        {"kind": "conda", "filename": "demo-1.0-h0.conda"},
        {"filename": "demo-1.0.tar.gz"},
        {"filename": "demo.whl"},
        {"filename": "demo-2.0-py3-none-any.whl"},
        {"version": "1.0.x-"},
    ],
)
def test_a_package_that_would_be_an_option_a_line_or_another_path_is_refused(package: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match=r"not the JSON of a plan: (the|a hash|demo)"):
        Plan.from_json(saved(package))


@pytest.mark.parametrize(
    "fields",
    [
        {"environment": {"LD_PRELOAD": "/tmp/x.so"}},
        {"environment": {"CUDA_HOME": "/tmp/elsewhere"}},
        {"toolchain": TOOLCHAIN | {"get_nvcc": "touch /tmp/x"}},
        {"toolchain": TOOLCHAIN | {"get_nvcc": "conda create -y x; touch /tmp/x" + HOME}},
        {"toolchain": TOOLCHAIN | {"get_nvcc": "conda create -y x > ~/.bashrc" + HOME}},
        {"toolchain": TOOLCHAIN | {"get_nvcc": 'conda create -y "$(touch /tmp/x)"' + HOME}},
        {"toolchain": TOOLCHAIN | {"get_nvcc": "sudo apt-get install -o DPkg::Pre-Invoke::=x gcc" + HOME}},
        {"toolchain": TOOLCHAIN | {"get_nvcc": "conda create -y x && export CUDA_HOME=$(touch /tmp/x)"}},
        {"toolchain": TOOLCHAIN | {"nvcc_from": "pip", "CUDA_HOME": '{site_packages}/x"; touch /tmp/x; "'}},
        {"toolchain": TOOLCHAIN | {"build_requires": ["ninja !="]}},
        {"toolchain": TOOLCHAIN | {"environment": {"LD_PRELOAD": "/tmp/x.so"}}},
        {"python": "3.12\nRUN true"},
        {"cuda": "cu126 x"},
        {"machines": [{"platform": {"os": "linux", "arch": "x86_'4"}}]},
        {"machines": [{"platform": {"os": "linux", "arch": "x86_64", "libc": "glibc 2." + "9" * 50}}]},
    ],
)
def test_commands_variables_and_words_that_no_plan_has_are_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="not the JSON of a plan: "):
        Plan.from_json(saved(**fields))


def test_texts_are_single_lines() -> None:
    line = "x\nRUN true\x1b]0;pwned\x07"
    fields: dict[str, Any] = {
        "requirements": [line],
        "warnings": [{"code": line, "message": line, "hint": line}],
        "machines": [{"platform": {"distro": line}, "gpus": [{"name": line, "compute_capability": "9.0"}]}],
    }
    plan = Plan.from_json(saved(**fields))
    for form in ("requirements", "pip", "uv", "pylock", "uv-project", "json"):
        text = envsolve.render(plan, form)
        assert not [one for one in text.splitlines() if one.lstrip().startswith("RUN") or not one.isprintable()]


@pytest.mark.parametrize("text", [b"\xff", b"[" * 100_000, b'{"schema": "envsolve.plan/1", "packages": 1}'])
def test_damaged_json_is_refused(text: bytes) -> None:
    with pytest.raises(UsageError, match="not the JSON of a plan"):
        Plan.from_json(text)


def test_what_plans_say_is_read(tmp_path: Path) -> None:
    ways = [
        "micromamba create -y -p ~/cuda-12.4 -c conda-forge 'conda-forge::cuda-nvcc>=12.4,<12.5'" + HOME,
        "sudo apt-get install cuda-nvcc-12-4 libcurand-dev-12-4 && export CUDA_HOME=/usr/local/cuda-12.4",
    ]
    for way in ways:
        text = saved(
            {"kind": "sdist", "filename": "demo-1.0.tar.gz"}, python="3.12", toolchain=TOOLCHAIN | {"get_nvcc": way}
        )
        assert Plan.from_json(text).toolchain.get_nvcc == way  # type: ignore[union-attr]
