"""GPU names and completion, on a small catalogue made here; then the shipped one's own names."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from envsolve.errors import UsageError
from envsolve.facts.catalogue import Catalogue
from envsolve.facts.gpu_names import find_gpu
from envsolve.machine.completed import complete, driver_branch, machine_from_target
from envsolve.machine.known import describe_target
from envsolve.machine.model import Driver, Gpu, Machine, Platform
from envsolve.machine.target import GRAMMAR, parse_target

EVIDENCE = {"evidence": "documented", "source": "s"}
GPUS = {
    "NVIDIA GeForce RTX 4090": ("8.9", ["RTX 4090", "4090"]),
    "NVIDIA GeForce RTX 4090 Laptop GPU": ("8.9", []),
    "NVIDIA GeForce GTX 1080": ("6.1", []),
    "NVIDIA GeForce GTX 1080 Ti": ("6.1", []),
    "NVIDIA GeForce GTX 960": ("5.2", ["GTX 960"]),
    "NVIDIA GeForce GTX 960M": ("5.0", []),
    "NVIDIA GeForce GTX TITAN X": ("5.2", ["GTX TITAN X"]),
    "NVIDIA TITAN X (Pascal)": ("6.1", []),
    "NVIDIA TITAN RTX": ("7.5", []),
    "Quadro RTX 6000": ("7.5", ["RTX 6000"]),
    "NVIDIA RTX 6000 Ada Generation": ("8.9", ["RTX 6000 Ada"]),
    "NVIDIA RTX PRO 6000 Blackwell Workstation Edition": ("12.0", []),
    "NVIDIA RTX PRO 6000 Blackwell Server Edition": ("12.0", []),
    "NVIDIA RTX A6000": ("8.6", []),
    "Tesla T4": ("7.5", []),
    "NVIDIA A10": ("8.6", []),
    "NVIDIA A100": ("8.0", []),
    "NVIDIA H100": ("9.0", []),
    "NVIDIA H200": ("9.0", []),
    "NVIDIA H200 NVL": ("9.0", []),
    "NVIDIA GB10": ("12.1", ["DGX Spark"]),
    "Jetson Nano": ("5.3", ["Jetson Nano 4GB"]),
    "Jetson Orin Nano": ("8.7", ["Jetson Orin Nano 4GB"]),
}
BRANCHES = [("450", "11.0"), ("535", "12.2"), ("550", "12.4"), ("580", "13.0")]


@pytest.fixture
def catalogue(tmp_path: Path) -> Catalogue:
    def write(name: str, records: list[dict[str, Any]]) -> None:
        sources = {"s": {"title": "t", "date": "2026-01-01"}}
        text = json.dumps({"schema": "envsolve.catalogue/1", "sources": sources, "records": records})
        (tmp_path / f"{name}.json").write_text(text)

    write("gpus", [{"name": n, "compute_capability": cc, "aliases": a, **EVIDENCE} for n, (cc, a) in GPUS.items()])
    write("drivers", [{"branch": b, "cuda": c, "ptx_isa": "1.0", "first": f"{b}.1", **EVIDENCE} for b, c in BRANCHES])
    life = {"name": "x", "first_driver": None, "last_branch": None}
    ccs = sorted({cc for cc, _ in GPUS.values()})
    write("architectures", [{"compute_capability": cc, **life, **EVIDENCE} for cc in ccs])
    return Catalogue(tmp_path)


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("4090", "NVIDIA GeForce RTX 4090"),
        ("rtx4090", "NVIDIA GeForce RTX 4090"),
        ("GeForce RTX 4090 24GB", "NVIDIA GeForce RTX 4090"),
        ("NVIDIA(R) GeForce(R) RTX(TM) 4090", "NVIDIA GeForce RTX 4090"),
        ("rtx4090 laptop", "NVIDIA GeForce RTX 4090 Laptop GPU"),
        ("GTX 1080", "NVIDIA GeForce GTX 1080"),
        ("GTX 1080 Ti", "NVIDIA GeForce GTX 1080 Ti"),
        ("gtx1080ti", "NVIDIA GeForce GTX 1080 Ti"),
        ("1080-ti", "NVIDIA GeForce GTX 1080 Ti"),
        ("960", "NVIDIA GeForce GTX 960"),
        ("960m", "NVIDIA GeForce GTX 960M"),
        ("titan rtx", "NVIDIA TITAN RTX"),
        ("titan x pascal", "NVIDIA TITAN X (Pascal)"),
        ("gtx titan x", "NVIDIA GeForce GTX TITAN X"),
        ("RTX 6000 Ada", "NVIDIA RTX 6000 Ada Generation"),
        ("Quadro RTX 6000", "Quadro RTX 6000"),
        ("RTX PRO 6000 Blackwell", "NVIDIA RTX PRO 6000 Blackwell Workstation Edition"),
        ("RTX PRO 6000 Blackwell Server Edition", "NVIDIA RTX PRO 6000 Blackwell Server Edition"),
        ("A6000", "NVIDIA RTX A6000"),
        ("Tesla T4", "Tesla T4"),
        ("NVIDIA T4", "Tesla T4"),
        ("A10", "NVIDIA A10"),
        ("A100-SXM4-40GB", "NVIDIA A100"),
        ("a100 80 GB pcie", "NVIDIA A100"),
        ("NVIDIA H100 80GB HBM3", "NVIDIA H100"),
        ("NVIDIA H100 80GB HBM3 MIG 1g.10gb", "NVIDIA H100"),
        ("H200 NVL", "NVIDIA H200 NVL"),
        ("GB10", "NVIDIA GB10"),
        ("dgx spark", "NVIDIA GB10"),
        ("Jetson Nano 4GB", "Jetson Nano"),
    ],
)
def test_names_as_people_write_them(catalogue: Catalogue, text: str, name: str) -> None:
    assert find_gpu(text, catalogue).name == name


@pytest.mark.parametrize(
    ("text", "cc"),
    [("sm_90", "9.0"), ("8.6", "8.6"), ("cc 8.6", "8.6"), ("SM86", "8.6"), ("sm_90a", "9.0"), ("compute_120", "12.0")],
)
def test_compute_capabilities(catalogue: Catalogue, text: str, cc: str) -> None:
    assert find_gpu(text, catalogue).compute_capability == cc


@pytest.mark.parametrize(
    ("text", "near"),
    [
        ("RTX 4095", "RTX 4090"),
        ("GTX 4090", "RTX 4090"),
        ("RTX 4090 Titanium", "RTX 4090"),
        ("A1000", "A100"),
        ("H1000", "H100"),
        ("960 laptop", ""),
        ("Quadro 6000", "Quadro RTX 6000"),  # a Fermi card, not the Turing one
        ("T44", "Tesla T4"),
        ("40GB", ""),
        ("laptop", ""),
        ("9.9", "known: 12.0, 12.1"),
        ("sm_999", "known: "),
        ("", ""),
        ("---", ""),
    ],
)
def test_unknown_names_give_the_nearest(catalogue: Catalogue, text: str, near: str) -> None:
    with pytest.raises(UsageError) as caught:
        find_gpu(text, catalogue)
    assert caught.value.hint is not None and near in caught.value.hint


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("RTX 6000", ["Quadro RTX 6000", "RTX 6000 Ada"]),
        ("titan x", ["GTX TITAN X", "TITAN X (Pascal)"]),
        ("6000", ["Quadro RTX 6000", "RTX 6000 Ada", "RTX PRO 6000"]),
        ("nano", ["Jetson Nano", "Jetson Orin Nano"]),
    ],
)
def test_ambiguous_names_give_the_choice(catalogue: Catalogue, text: str, names: list[str]) -> None:
    with pytest.raises(UsageError, match="different compute capabilities") as caught:
        find_gpu(text, catalogue)
    assert all(name in (caught.value.hint or "") for name in names)


@pytest.mark.parametrize(
    ("text", "cc"), [("Turing", "7.5"), ("hopper", "9.0"), ("Ada Lovelace", "8.9"), ("NVIDIA Volta GPU", "7.0")]
)
def test_a_generation_of_one_compute_capability(text: str, cc: str) -> None:
    assert find_gpu(text, Catalogue()).compute_capability == cc


@pytest.mark.parametrize(
    ("text", "choice"),
    [("Ampere", "8.0 (such as NVIDIA A"), ("Blackwell", "12.0 (such as NVIDIA "), ("Pascal GPUs", "6.0 (such as ")],
)
def test_a_generation_of_several_gives_the_choice(text: str, choice: str) -> None:
    with pytest.raises(UsageError, match="is a generation with GPUs of different compute capabilities") as caught:
        find_gpu(text, Catalogue())
    assert choice in (caught.value.hint or "")


def test_a_machine_from_a_target(catalogue: Catalogue) -> None:
    machine = machine_from_target(
        parse_target("2x 4090 + sm_80, driver 550.54, py312, linux-x86_64, glibc 2.35"), catalogue
    )
    card = Gpu("NVIDIA GeForce RTX 4090", "8.9")
    assert machine.gpus == (card, card, Gpu(None, "8.0"))
    assert machine.driver == Driver("550.54", "12.4")
    assert machine.platform == Platform("linux", "x86_64", "glibc 2.35")
    assert machine.python == "3.12"
    assert machine.sources["driver.version"] == "target"
    assert machine.sources["driver.cuda"] == "catalogue (driver branch 550)"
    assert machine.sources["gpus[1].compute_capability"] == "catalogue"


def test_what_a_target_does_not_say_is_unknown(catalogue: Catalogue) -> None:
    machine = machine_from_target(parse_target("python 3.12"), catalogue)
    assert machine == Machine(python="3.12", sources={"python": "target"})
    assert machine_from_target(parse_target("no gpu"), catalogue).gpus == ()


def test_an_unknown_gpu_in_a_target_shows_names_and_no_grammar(catalogue: Catalogue) -> None:
    with pytest.raises(UsageError) as caught:
        machine_from_target(parse_target("RTX 4095, driver 550"), catalogue)
    assert "RTX 4095" in caught.value.message
    assert "RTX 4090" in (caught.value.hint or "") and GRAMMAR not in (caught.value.hint or "")


def test_a_distribution_implies_no_libc(catalogue: Catalogue) -> None:
    machine = machine_from_target(parse_target("T4, ubuntu 22.04"), catalogue)
    assert machine.platform == Platform(distro="ubuntu 22.04")
    assert machine.sources["platform.distro"] == "target"


@pytest.mark.parametrize(
    "text", ["MI300X", "AMD MI250", "RX 7900", "Radeon RX 7900 XTX", "gfx1100", "Arc A770", "Intel Gaudi 3", "Apple M2"]
)
def test_cards_of_other_makers_are_told_apart_from_misspelt_ones(text: str) -> None:
    with pytest.raises(UsageError, match="is not an NVIDIA GPU") as caught:
        find_gpu(text, Catalogue())
    assert "no gpu" in (caught.value.hint or "")


@pytest.mark.parametrize(
    ("text", "hint"), [("550", "for a driver, write: driver 550"), ("12.4", "for a CUDA version, write: cuda 12.4")]
)
def test_a_number_that_is_no_gpu_may_be_something_else(text: str, hint: str) -> None:
    with pytest.raises(UsageError) as caught:
        find_gpu(text, Catalogue())
    assert hint in (caught.value.hint or "")


@pytest.mark.parametrize(
    ("version", "branch"),
    [
        ("550", "550"),
        ("550.54", "550"),
        ("550.54.15", "550"),
        ("551.61", "550"),  # Windows
        ("545.23.06", "535"),
        ("999.1", "580"),
        ("450.36.06", "450"),
        ("390.12", None),
    ],
)
def test_driver_branches(catalogue: Catalogue, version: str, branch: str | None) -> None:
    found = driver_branch(version, catalogue)
    assert (found.branch if found else None) == branch


def test_completing_changes_nothing_that_is_known(catalogue: Catalogue) -> None:
    machine = Machine(
        driver=Driver("550.54.15", "12.8", "13.0"),
        gpus=(Gpu("NVIDIA H100 80GB HBM3", "9.9"), Gpu("NVIDIA Z1000"), Gpu(), Gpu("RTX 6000")),
        sources={"driver.cuda": "nvml"},
    )
    assert complete(machine, catalogue) == machine
    assert complete(Machine(), catalogue) == Machine()
    assert complete(Machine(driver=Driver("390.12")), catalogue) == Machine(driver=Driver("390.12"))


def test_completing_twice_is_completing_once(catalogue: Catalogue) -> None:
    machine = Machine(driver=Driver("580.95.05"), gpus=(Gpu("Tesla T4"),))
    once = complete(machine, catalogue)
    assert once.driver == Driver("580.95.05", "13.0") and once.gpus == (Gpu("Tesla T4", "7.5"),)
    assert complete(once, catalogue) == once
    assert replace(once, sources={}) != machine


def test_every_name_of_the_shipped_catalogue_means_its_own_compute_capability() -> None:
    shipped = Catalogue()
    for model in shipped.gpus:
        for name in (model.name, *model.aliases):
            assert find_gpu(name, shipped).compute_capability == model.compute_capability, name


@pytest.mark.parametrize(
    ("text", "cc"),
    [
        ("4090", "8.9"),
        ("NVIDIA H100 80GB HBM3", "9.0"),
        ("A100-SXM4-40GB", "8.0"),
        ("GTX 1080 Ti", "6.1"),
        ("GB10", "12.1"),
        ("rtx4090 laptop", "8.9"),
        ("Tesla T4", "7.5"),
        ("RTX 6000 Ada", "8.9"),
        ("RTX PRO 6000 Blackwell", "12.0"),
        ("H200 NVL", "9.0"),
        ("RTX 5090", "12.0"),
        ("V100", "7.0"),
        ("B200", "10.0"),
    ],
)
def test_common_names_in_the_shipped_catalogue(text: str, cc: str) -> None:
    assert find_gpu(text, Catalogue()).compute_capability == cc


@pytest.mark.parametrize("text", ["RTX 4095", "RTX 6000", "RTX 5000", "RTX 4000", "titan x", "GTX 4090", "Quadro 6000"])
def test_the_shipped_catalogue_makes_no_guess(text: str) -> None:
    with pytest.raises(UsageError):
        find_gpu(text, Catalogue())


@pytest.mark.parametrize(("text", "cc"), [("9.0a", "9.0"), ("sm_90a", "9.0"), ("12.1f", "12.1"), ("cc 9.0A", "9.0")])
def test_architecture_specific_forms(text: str, cc: str) -> None:
    assert find_gpu(text, Catalogue()).compute_capability == cc


@pytest.mark.parametrize(
    ("text", "hint"),
    [("90", "written 9.0 or sm_90"), ("1", "(8.9)"), ("-1", "(8.9)"), ("2", "(8.9)")],
)
def test_a_short_number_is_no_card(text: str, hint: str) -> None:
    with pytest.raises(UsageError, match="is not a GPU") as caught:
        find_gpu(text, Catalogue())
    assert hint in (caught.value.hint or "")


@pytest.mark.parametrize("text", ["gfx90a", "MI300X", "Radeon RX 7900 XTX", "Arc A770", "Instinct MI250"])
def test_other_makers_are_named_as_such(text: str) -> None:
    with pytest.raises(UsageError, match="not an NVIDIA GPU"):
        find_gpu(text, Catalogue())


@pytest.mark.parametrize(
    ("text", "same"),
    [
        ("RTX 4090, WSL2, driver 580", "RTX 4090, linux-x86_64, driver 580"),
        ("RTX 4090, Windows 11", "RTX 4090, windows"),
        ("g5.xlarge", "A10G, linux-x86_64"),
        ("2x p5.48xlarge", "H100, linux-x86_64"),
        ("Standard_NC24ads_A100_v4, driver 550", "A100, linux-x86_64, driver 550"),
        ("T4, colab", "T4, linux-x86_64"),
        ("Jetson Orin Nano, JetPack 6.2", "Jetson Orin Nano, linux-aarch64, ubuntu 22.04, glibc 2.35, cuda 12.6"),
        ("RTX 4070 laptop", "RTX 4070 Laptop GPU"),
        ("L4T r36, AGX Orin", "JetPack 6.2, AGX Orin"),
        ("L4T 36.4.3", "JetPack 6.2"),
        ("l4t 36.3", "JetPack 6.0"),
        ("r38.2, Thor", "JetPack 7.0, Thor"),
        ("L4T R35.4.1", "JetPack 5.1"),
    ],
)
def test_names_of_systems_boards_and_cloud_machines(text: str, same: str) -> None:
    one, other = (machine_from_target(parse_target(target), Catalogue()) for target in (text, same))
    assert replace(one, sources={}) == replace(other, sources={})


@pytest.mark.parametrize(
    ("text", "route"),
    [("MI300X", "whl/rocm"), ("Arc B580", "whl/xpu"), ("M3 Max", "mps"), ("macOS 15", "mps"), ("Apple M2", "mps")],
)
def test_gpus_of_other_vendors_get_the_way_to_their_builds(text: str, route: str) -> None:
    with pytest.raises(UsageError, match="not judged") as caught:
        machine_from_target(parse_target(text), Catalogue())
    assert route in (caught.value.hint or "")


def test_a_word_that_names_nothing_is_not_called_a_gpu() -> None:
    with pytest.raises(UsageError, match='nothing in the catalogue is called "banana"') as caught:
        machine_from_target(parse_target("RTX 4090, banana"), Catalogue())
    assert (caught.value.hint or "").startswith("a target is a list such as")


def test_a_distribution_implies_its_c_library() -> None:
    found = describe_target("RTX 4090, ubuntu 22.04", Catalogue())
    assert found.platform == Platform("linux", None, "glibc 2.35", "ubuntu 22.04")
    assert found.sources["platform.libc"] == "catalogue (ubuntu22.04)"
    assert describe_target("RTX 4090, ubuntu 22.04, glibc 2.39", Catalogue()).platform == replace(
        found.platform, libc="glibc 2.39"
    )
    assert describe_target("RTX 4090, ubuntu 99.04", Catalogue()).platform == Platform(distro="ubuntu 99.04")


@pytest.mark.parametrize(
    ("text", "platform"),
    [
        ("DGX Spark", Platform("linux", "aarch64", "glibc 2.39")),
        ("Jetson Thor, driver 580", Platform("linux", "aarch64", "glibc 2.39")),
        ("AGX Orin", Platform("linux", "aarch64", "glibc 2.31")),
        ("GH200", Platform("linux", "aarch64")),
        ("GB10, ubuntu 26.04", Platform("linux", "aarch64", None, "ubuntu 26.04")),
        ("GB10, glibc 2.41", Platform("linux", "aarch64", "glibc 2.41")),
        ("GB10 + RTX 4090", None),
        ("RTX 4090", None),
    ],
)
def test_a_gpu_of_one_system_implies_its_platform(text: str, platform: Platform | None) -> None:
    machine = machine_from_target(parse_target(text), Catalogue())
    assert machine.platform == platform
    if platform and platform.arch:
        assert machine.sources["platform.arch"].startswith("catalogue")


def test_no_machine_is_called_like_a_gpu() -> None:
    """So that the name of a GPU is not compared with the words of all machines."""
    catalogue = Catalogue()
    names = {name.lower() for model in catalogue.gpus for name in (model.name, *model.aliases)}
    assert len(names) > 1_000
    both = {(name, one.name) for one in catalogue.machine_names for name in names if re.fullmatch(one.words, name)}
    assert not both
