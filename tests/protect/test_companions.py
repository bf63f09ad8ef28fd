"""Companions of a CPU torch: the default index has builds of them for a GPU, which break at import beside it.

The advice is followed with the real uv and pip: guard accepts it, and it installs builds for that torch.
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

import envsolve
from envsolve.diagnose.model import Diagnosis, Fix
from envsolve.facts.catalogue import Catalogue
from envsolve.packages.commands import Change
from envsolve.protect.preview import Preview, describe, preview
from tests.indexserver import IndexServer
from tests.network.tools import program
from tests.protect.conftest import Shop

FILES = {"torch/__init__.py": b"", "torch/version.py": b"__version__ = '2.13.0+cpu'\ncuda = None\n"}
UV = ("uv", "pip", "install", "--python")
PIP = (sys.executable, "-m", "pip", "--python")
BOTH = pytest.mark.parametrize(
    "installer", [pytest.param(UV, id="uv"), pytest.param(PIP, id="pip", marks=pytest.mark.slow)]
)


@pytest.fixture(scope="module")
def indexes() -> Iterator[IndexServer]:
    with IndexServer() as server:
        default, cpu = server.index(), server.index("/whl/cpu/", style="pytorch")
        default.wheel("torch", "2.15.0")
        default.wheel("torch", "2.13.0", files=FILES)
        default.wheel("torchvision", "0.29.2", requires=["torch==2.15.0"])
        default.wheel("torchvision", "0.28.0", requires=["torch==2.13.0"])
        cpu.wheel("torch", "2.13.0+cpu", files=FILES)
        cpu.wheel("torchvision", "0.28.0+cpu", requires=["torch==2.13.0"])
        for version in ("0.16.0", "0.17.0"):
            default.wheel("torchcodec", version)
            cpu.wheel("torchcodec", f"{version}+cpu")
        default.wheel("torchaudio", "2.11.0")
        cpu.wheel("torchaudio", "2.11.0+cpu")
        yield server


@pytest.fixture
def shop(indexes: IndexServer, tmp_path: Path) -> Shop:
    made = Shop(f"{indexes.url}/simple/", f"{indexes.url}/whl/cpu/", tmp_path / "env")
    for command in (
        (program("uv"), "venv", "-q", "--python", sys.executable, str(made.prefix)),
        (program("uv"), *UV[1:], str(made.prefix), "-q", "--default-index", made.torch_url, "torch"),
    ):
        done = made.run(*command)
        assert done.returncode == 0, done.stderr
    return made


def previewed(shop: Shop, words: tuple[str, ...], torch_url: str | None = None) -> Preview:
    """Judged as on a machine without a GPU, PyTorch's own index being the one of the test."""
    catalogue = Catalogue()
    place = replace(catalogue.indexes["pytorch"], url=torch_url or shop.torch_url)
    vars(catalogue)["indexes"] = {**catalogue.indexes, "pytorch": place}
    machine = replace(envsolve.describe_target("linux-x86_64, glibc 2.35"), gpus=())
    found = preview(words, machine, catalogue, shop.environ)
    assert found is not None
    return found


def asked(shop: Shop, installer: tuple[str, ...], *packages: str) -> tuple[str, ...]:
    rest = ("install",) if installer is PIP else ()
    return (*installer, str(shop.prefix), *rest, *packages)


@BOTH
@pytest.mark.parametrize(
    "packages",
    [("torchvision",), ("torchvision==0.28.0",), ("torchaudio",), ("torchcodec", "torchvision", "torchaudio")],
    ids="+".join,
)
def test_builds_for_a_gpu_are_refused_and_the_advice_works(
    shop: Shop, installer: tuple[str, ...], packages: tuple[str, ...]
) -> None:
    found = previewed(shop, asked(shop, installer, *packages))
    assert found.refused
    assert found.keeps is not None
    again = previewed(shop, tuple(shlex.split(found.keeps)))
    assert (again.refused, again.causes) == (False, ())
    done = shop.run(*shlex.split(found.keeps))
    assert done.returncode == 0, done.stderr
    installed = shop.installed()
    names = ["torch", *(word.partition("=")[0] for word in packages)]
    assert [name for name in names if not installed[name].endswith("+cpu")] == []


def test_a_build_without_gpu_code_is_none_to_refuse(shop: Shop) -> None:
    words = asked(shop, UV, "--index", shop.torch_url, "torchvision==0.28.0+cpu", "torchaudio==2.11.0+cpu")
    assert not previewed(shop, words).refused


def test_what_the_default_index_has_for_the_cuda_of_torch_is_none_to_refuse(shop: Shop) -> None:
    assert shop.run(*asked(shop, UV, "torch==2.13.0", "--reinstall")).returncode == 0
    version = next(shop.prefix.glob("lib/*/site-packages/torch/version.py"))
    version.write_text("__version__ = '2.13.0+cu130'\ncuda = '13.0'\n")
    found = previewed(shop, asked(shop, UV, "torchvision==0.28.0", "torchaudio"))
    assert (found.refused, found.causes) == (False, ())


def test_advice_that_cannot_be_tried_here_is_said_to_be_so(shop: Shop) -> None:
    shop.variables["UV_HTTP_RETRIES"] = "0"  # they take a quarter of a minute
    found = previewed(shop, asked(shop, UV, "torchvision"), torch_url="http://127.0.0.1:9/whl/cpu/")
    assert (found.refused, found.keeps) == (True, None)
    assert found.untried is not None
    assert found.untried.endswith("torchvision torch==2.13.0+cpu torchvision==0.28.0+cpu")
    assert "was not tried" in describe(found)


@pytest.mark.parametrize(
    ("remedies", "says"),
    [
        ((Fix("Install the build for it.", "pip install xformers==1"), Fix("Look.", "nvidia-smi")), "pip install"),
        ((Fix("Add the output of nvidia-smi.", "nvidia-smi"),), "No known build of xformers works"),
        ((), "No known build of xformers works"),
    ],
)
def test_what_only_asks_for_facts_is_not_offered_instead(remedies: tuple[Fix, ...], says: str) -> None:
    cause = Diagnosis("mixed-flavours", 0.9, "They do not go together.", (), remedies)
    changes = (Change("xformers", None, "0.0.35"),)
    text = describe(Preview("envsolve.forecast/1", "pip install xformers", "/env", changes, causes=(cause,)))
    assert says in text and "nvidia-smi" not in text
