"""What ``envsolve index check`` sees, in a catalogue measured from a small index and then corrupted."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from envsolve.cli.main import run
from envsolve.errors import UsageError
from envsolve.facts.builds import Build, FileFact
from envsolve.facts.catalogue import Catalogue
from envsolve.facts.evidence import Evidence, Source
from envsolve.facts.files import data_folder
from envsolve.facts.maintain.check import Checked, check
from envsolve.facts.maintain.update import dump_catalogue_file, group_requires, update
from tests.binaries.artefacts import CUBIN, container, elf, entry, torch_wheel, wheel
from tests.facts.test_refresh import NVCC, TRITON, Memory, Published
from tests.indexserver import IndexServer

KERNELS = wheel("kernels", "1.0", {})
FILES = [
    Published("torch-2.11.0-cp311-cp311-manylinux_2_28_x86_64.whl", torch_wheel()),
    Published("torch-2.11.0-cp312-cp312-manylinux_2_28_x86_64.whl", torch_wheel()),
    Published("torch-2.10.0-cp312-cp312-manylinux_2_28_x86_64.whl", torch_wheel(release="2.10.0", cuda="12.8")),
    Published("triton-3.1.0-cp312-cp312-manylinux_2_17_x86_64.whl", TRITON),
    Published("nvidia_cuda_nvcc_cu12-12.8.93-py3-none-manylinux2014_x86_64.whl", NVCC),
    Published("torchvision-0.26.0-cp312-cp312-manylinux_2_28_x86_64.whl", wheel("torchvision", "0.26.0", {})),
]


@pytest.fixture
def index() -> Memory:
    return Memory(list(FILES))


@pytest.fixture
def folder(tmp_path: Path, index: Memory) -> Path:
    """A catalogue that was measured from the index."""
    (tmp_path / "builds" / "default").mkdir(parents=True)
    wheels = {"measured-default-index": Source("Wheels that were read", "2026-01-01")}
    for name in ("builds/default/torch", "builds/default/triton", "tritons", "torch_extensions"):
        (tmp_path / f"{name}.json").write_text(dump_catalogue_file(wheels, []))
    nvcc = {"measured-nvcc-wheels": Source("Wheels that were read", "2026-01-01")}
    (tmp_path / "toolkits.json").write_text(dump_catalogue_file(nvcc, []))
    update(index, tmp_path, "2026-02-02")
    return tmp_path


def checked(index: Memory, folder: Path, *packages: str, sample: int = 99) -> Checked:
    return check(index, Catalogue(folder), packages, sample, seed=1)


def corrupt(path: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Change the first record of a file, in place."""
    data = json.loads(path.read_text())
    change(data["records"][0])
    path.write_text(json.dumps(data))


def test_what_was_measured_agrees(index: Memory, folder: Path) -> None:
    found = checked(index, folder)
    assert found.disagreements == ()
    assert sorted(found.checked) == [
        "toolkit 12.8",
        "torch 2.10.0 cu128 manylinux_2_28_x86_64",
        "torch 2.11.0 cu130 manylinux_2_28_x86_64",
        "torch-extension 2.10.0",
        "torch-extension 2.11.0",
        "triton 3.1.0",
        "triton 3.1.0 any manylinux_2_17_x86_64",
    ]


def set_(name: str, value: object) -> Callable[[dict[str, Any]], object]:
    return lambda record: record.update({name: value})


def in_file(name: str, value: object) -> Callable[[dict[str, Any]], object]:
    return lambda record: record["files"]["cp312"].update({name: value})


TORCH = "builds/default/torch.json"


@pytest.mark.parametrize(
    ("file", "change", "field"),
    [
        (TORCH, in_file("sha256", "0" * 64), "files.cp312.sha256"),
        (TORCH, in_file("size", 7), "files.cp312.size"),
        (TORCH, set_("code", ["sm_70"]), "code"),
        (TORCH, lambda record: record.pop("code"), "code"),
        (TORCH, set_("cuda", "12.6"), "cuda"),
        (TORCH, set_("variant", "cu126"), "variant"),
        (TORCH, set_("own_ptxas", "11.8"), "own_ptxas"),
        (TORCH, set_("requires_python", ">=3.12"), "requires_python"),
        (TORCH, lambda record: record.pop("requires"), "requires"),
        (TORCH, set_("released", "2020-01-01"), "released"),
        (TORCH, set_("local", "+cu128"), "local"),
        (TORCH, set_("pythons", ["cp312", "cp399"]), "pythons"),
        (TORCH, set_("version", "2.10.9"), "version"),
        (TORCH, set_("platform", "manylinux_2_17_x86_64"), "version"),
        ("builds/default/triton.json", set_("requires_python", ">=3.14"), "requires_python"),
        ("tritons.json", lambda record: record["ptxas"][0].update(cuda="13.9"), "ptxas"),
        ("tritons.json", set_("arch_specific_from", "12.0"), "arch_specific_from"),
        ("toolkits.json", set_("gcc_max", 99), "gcc_max"),
        ("toolkits.json", set_("archs", ["sm_20"]), "archs"),
        ("torch_extensions.json", set_("cxx_standard", 14), "cxx_standard"),
        ("torch_extensions.json", set_("archs", ["9.0"]), "archs"),
        ("torch_extensions.json", set_("gcc", 4), "gcc"),
        ("torch_extensions.json", lambda record: record.pop("gcc_below"), "gcc_below"),
    ],
)
def test_one_wrong_field_is_found(
    index: Memory, folder: Path, file: str, change: Callable[[dict[str, Any]], object], field: str
) -> None:
    corrupt(folder / file, change)
    found = checked(index, folder)
    assert [(wrong.file, wrong.field) for wrong in found.disagreements] == [(file, field)]


def test_what_the_catalogue_lacks_is_no_disagreement(index: Memory, folder: Path) -> None:
    index.files.append(Published("torch-2.12.0-cp312-cp312-manylinux_2_28_x86_64.whl", torch_wheel(release="2.12.0")))
    index.files.append(Published("torch-2.11.0-cp313-cp313-manylinux_2_28_x86_64.whl", torch_wheel()))
    assert checked(index, folder).disagreements == ()


def test_a_file_kept_by_hand_is_compared_with_the_listing(index: Memory, folder: Path) -> None:
    record = {
        "package": "torchvision",
        "version": "0.26.0",
        "variant": "cu130",
        "platform": "manylinux_2_28_x86_64",
        "pythons": ["cp312"],
        "index": "default",
        "evidence": "published",
        "source": "a",
        "requires": [],
        "requires_python": ">=3.9",
        "released": "2026-01-21",
        "files": {"cp312": {"sha256": "0" * 64}},
    }
    sources = {"a": {"title": "A listing", "date": "2026-01-01"}}
    data = {"schema": "envsolve.catalogue/1", "sources": sources, "records": [record]}
    (folder / "builds/default/torchvision.json").write_text(json.dumps(data))
    found = checked(index, folder, "torchvision")
    assert [wrong.field for wrong in found.disagreements] == ["files.cp312.sha256"]


@pytest.mark.parametrize("sha256", [hashlib.sha256(KERNELS).hexdigest(), "0" * 64], ids=["right", "wrong"])
def test_a_record_made_by_hand_in_a_measured_file_is_compared_with_the_listing(
    index: Memory, folder: Path, sha256: str
) -> None:
    """The wheel names no torch, so that measuring makes no record of it."""
    index.files.append(Published("kernels-1.0-cp312-cp312-manylinux_2_28_x86_64.whl", KERNELS))
    build = Build(
        *("kernels", "1.0", "cu130", "manylinux_2_28_x86_64", ("cp312",), "default"),
        *(Evidence.MEASURED, "measured-cuda-runtime"),
        files={"cp312": FileFact(sha256)},
        torch="==2.11.*",
        requires=(),
        requires_python=">=3.9",
        released="2026-01-21",
    )
    sources = {"measured-cuda-runtime": Source("Wheels that were read", "2026-01-01")}
    (folder / "builds/default/kernels.json").write_text(dump_catalogue_file(sources, [build]))
    wrong = [wrong.field for wrong in checked(index, folder, "kernels").disagreements]
    assert wrong == (["files.cp312.sha256"] if sha256 == "0" * 64 else [])


@pytest.mark.parametrize(
    ("package", "libraries", "code", "fields"),
    [
        ("sgl-kernel", {"sgl_kernel/common_ops.abi3.so": (90,)}, ("sm_90",), []),
        ("sgl-kernel", {"sgl_kernel/common_ops.abi3.so": (90,)}, ("sm_80",), ["code"]),
        # torchao loads all of its libraries, each for other cards.
        ("torchao", {"torchao/_C.abi3.so": (80, 86), "torchao/_C_90.abi3.so": (90,)}, ("sm_80", "sm_86", "sm_90"), []),
        ("torchao", {"torchao/_C.abi3.so": (80, 86), "torchao/_C_90.abi3.so": (90,)}, ("sm_80", "sm_86"), ["code"]),
    ],
)
def test_code_that_was_measured_is_compared_where_the_rest_of_a_record_is_kept_by_hand(
    index: Memory,
    folder: Path,
    package: str,
    libraries: Mapping[str, tuple[int, ...]],
    code: tuple[str, ...],
    fields: list[str],
) -> None:
    members = {
        path: elf(["libcudart.so.13"], tail=container(*(entry(CUBIN, arch) for arch in archs)))
        for path, archs in libraries.items()
    }
    about = {f"{package}/__init__.py": ""} if package == "torchao" else {}
    data = wheel(package, "1.0", {**about, **members})
    index.files.append(Published(f"{package.replace('-', '_')}-1.0-cp310-abi3-manylinux2014_x86_64.whl", data))
    build = Build(
        *(package, "1.0", "cu130", "manylinux2014_x86_64", ("cp310-abi3",), "default"),
        *(Evidence.MEASURED, "pins"),
        code=code,
        torch="==2.11.*",
        requires=(),
        requires_python=">=3.9",
        released="2026-01-21",
    )
    sources = {"pins": Source("Pins of another project", "2026-01-01")}
    (folder / f"builds/default/{package}.json").write_text(dump_catalogue_file(sources, [build]))
    assert [wrong.field for wrong in checked(index, folder, package).disagreements] == fields


@pytest.mark.parametrize(
    ("evidence", "cuda", "fields"),
    [
        (Evidence.PUBLISHED, "12.0", []),
        (Evidence.PUBLISHED, "13.0", ["variant"]),
        (Evidence.MEASURED, "12.0", ["variant"]),
    ],
)
def test_a_variant_that_no_library_told_is_compared_by_its_major(
    index: Memory, folder: Path, evidence: Evidence, cuda: str, fields: list[str]
) -> None:
    data = wheel("kernels-cu12", "1.0", {}, requires=["torch==2.10.*"])
    index.files.append(Published("kernels_cu12-1.0-cp312-cp312-manylinux_2_28_x86_64.whl", data))
    build = Build(
        *("kernels-cu12", "1.0", "cu" + cuda.replace(".", ""), "manylinux_2_28_x86_64", ("cp312",), "default"),
        *(evidence, "measured-cuda-runtime"),
        cuda=cuda,
        torch="==2.10.*",
        requires=("torch==2.10.*",),
        requires_python=">=3.9",
        released="2026-01-21",
    )
    sources = {"measured-cuda-runtime": Source("Wheels that were read", "2026-01-01")}
    records, requires = group_requires([build])
    (folder / "builds/default/kernels-cu12.json").write_text(dump_catalogue_file(sources, records, requires))
    assert [wrong.field for wrong in checked(index, folder, "kernels-cu12").disagreements] == fields


def test_one_specifier_may_be_written_in_two_ways(index: Memory, folder: Path) -> None:
    corrupt(folder / TORCH, set_("requires_python", ">=3.9.0"))
    assert checked(index, folder, "torch").disagreements == ()


def test_the_sample_is_as_large_as_asked_and_its_seed_draws_it_again(index: Memory, folder: Path) -> None:
    one = checked(index, folder, sample=2)
    assert len(one.checked) == 2
    assert one == checked(index, folder, sample=2)
    assert len({check(index, Catalogue(folder), (), 1, seed).checked for seed in range(20)}) > 1


def test_a_small_sample_looks_into_many_files(index: Memory, folder: Path) -> None:
    for seed in range(5):
        found = check(index, Catalogue(folder), (), 5, seed).checked
        assert {name.split()[0] for name in found} == {"toolkit", "torch", "torch-extension", "triton"}
        assert len(found) == 5


def test_packages_narrow_it(index: Memory, folder: Path) -> None:
    assert {name.split()[0] for name in checked(index, folder, "Torch").checked} == {"torch"}
    assert checked(index, folder, "toolkit").checked == ("toolkit 12.8",)
    assert checked(index, folder, "torch-extension").checked == ("torch-extension 2.10.0", "torch-extension 2.11.0")
    with pytest.raises(UsageError, match="nothing of numpy can be checked"):
        checked(index, folder, "numpy")


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch, index: Memory) -> Iterator[IndexServer]:
    """The same files over HTTP, as the configured default index."""
    with IndexServer() as server:
        place = server.index()
        for file in index.files:
            project = file.filename.split("-")[0].replace("_", "-")
            place.add(project, file.filename, file.data, upload_time=file.upload_time)
        monkeypatch.setenv("PIP_INDEX_URL", f"{server.url}/simple/")
        yield server


def ended(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[Any, str, str]:
    with pytest.raises(SystemExit) as left:
        run(["index", "check", *words])
    said = capsys.readouterr()
    return left.value.code, said.out, said.err


def test_the_command(served: IndexServer, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = ended(capsys, "--catalogue", str(folder), "--seed", "5")
    assert (code, out) == (0, "7 records checked, all agree (seed 5)\n")
    assert "builds/default/torch.json: 2 of 2 releases" in err
    corrupt(folder / TORCH, in_file("size", 7))
    code, out, err = ended(capsys, "--catalogue", str(folder), "torch", "--quiet")
    assert code == 4
    assert "builds/default/torch.json: torch 2.10.0 cu128 manylinux_2_28_x86_64: files.cp312.size" in out
    assert "  catalogue  7\n" in out
    assert "1 fact is not as published" in err
    code, out, _ = ended(capsys, "--catalogue", str(folder), "torch", "--format", "json")
    assert code == 4
    assert json.loads(out)["disagreements"][0]["catalogue"] == 7


def test_an_index_that_fails_is_exit_code_5(
    served: IndexServer, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    served.fault("/simple/torch/", status=500)
    assert ended(capsys, "--catalogue", str(folder), "torch")[0] == 5


@pytest.mark.network
def test_a_sample_of_the_bundled_facts_agrees_with_the_index(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = ended(capsys, "--catalogue", str(data_folder()), "--sample", "20")
    assert code == 0, out
