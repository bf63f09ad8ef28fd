"""Facts about toolkits, compilers, Triton, drivers and GPUs, held to what NVIDIA and the wheels say."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from packaging.requirements import Requirement
from packaging.version import Version

from envsolve.errors import UsageError
from envsolve.facts.catalogue import Catalogue
from envsolve.facts.evidence import Evidence
from envsolve.facts.gpu_names import find_gpu
from envsolve.facts.hardware import CompilerPackages, Toolkit
from envsolve.machine.model import Driver, Gpu
from envsolve.rules.nvidia.driver import can_exist
from envsolve.values import CudaVersion, DriverVersion

SHIPPED = Catalogue()


@pytest.fixture(scope="module")
def catalogue() -> Catalogue:
    return SHIPPED


def toolkit(catalogue: Catalogue, version: str) -> Toolkit:
    return next(t for t in catalogue.toolkits if t.version == version)


@pytest.mark.parametrize(
    ("old", "new", "added", "dropped"),
    [
        ("9.2", "10.0", "75", ""),
        ("10.2", "11.0", "80", "30 32"),
        ("11.0", "11.1", "86", ""),
        ("11.3", "11.4", "87", ""),
        ("11.7", "11.8", "89 90", ""),
        ("11.8", "12.0", "90a", "35 37"),
        ("12.6", "12.8", "100 100a 101 101a 120 120a", ""),
        ("12.8", "12.9", "100f 101f 103 103a 103f 120f 121 121a 121f", ""),
        ("12.9", "13.0", "88 110 110a 110f", "50 52 53 60 61 62 70 72 101 101a 101f"),
        ("13.3", "13.4", "107 107a 107f", ""),
    ],
)
def test_a_toolkit_adds_drops_and_renames_architectures(
    catalogue: Catalogue, old: str, new: str, added: str, dropped: str
) -> None:
    before, after = set(toolkit(catalogue, old).archs), set(toolkit(catalogue, new).archs)
    assert after - before == {f"sm_{arch}" for arch in added.split()}
    assert before - after == {f"sm_{arch}" for arch in dropped.split()}


def test_what_is_measured_of_a_toolkit_and_what_documented_is_told_apart(catalogue: Catalogue) -> None:
    for record in catalogue.toolkits:
        drivers = {name for name in ("driver_linux", "driver_windows") if getattr(record, name)}
        assert (record.evidence is Evidence.MEASURED) == (CudaVersion.parse(record.version) >= (11, 7))
        if record.evidence is Evidence.MEASURED:
            assert set(record.cited) == drivers
            assert {citation.evidence for citation in record.cited.values()} <= {Evidence.DOCUMENTED}


def test_toolkits_name_the_drivers_that_they_ship(catalogue: Catalogue) -> None:
    """From 13.0 on the Windows toolkit ships none, from 13.4 on neither does that for Linux."""
    for record in catalogue.toolkits:
        assert (record.driver_linux is not None) == (CudaVersion.parse(record.version) < (13, 4)), record.version
        assert (record.driver_windows is not None) == (CudaVersion.parse(record.version) < (13, 0)), record.version
    for name in ("driver_linux", "driver_windows"):
        drivers = [getattr(record, name) for record in catalogue.toolkits if getattr(record, name)]
        assert drivers == sorted(drivers, key=lambda text: [int(part) for part in text.split(".")])


def test_newer_toolkits_take_newer_host_compilers(catalogue: Catalogue) -> None:
    for name in ("gcc_max", "clang_below", "msvc_below"):
        limits = [getattr(record, name) for record in catalogue.toolkits if getattr(record, name) is not None]
        assert limits == sorted(limits), name
    assert all(record.gcc_max and record.clang_below for record in catalogue.toolkits)


def compilers(catalogue: Catalogue, manager: str, cuda: str) -> list[CompilerPackages]:
    return [
        record
        for record in catalogue.compilers
        if record.manager == manager
        and CudaVersion.parse(record.first) <= CudaVersion.parse(cuda)
        and (record.last is None or CudaVersion.parse(cuda) <= CudaVersion.parse(record.last))
    ]


@pytest.mark.parametrize(
    ("manager", "cuda", "nvcc"),
    [
        ("pip", "11.6", None),
        ("pip", "11.8", False),
        ("pip", "12.8", False),
        ("pip", "13.0", True),
        ("pip", "13.5", True),
        ("conda", "10.1", True),
        ("conda", "10.2", None),
        ("conda", "11.8", True),
        ("conda", "12.4", True),
        ("apt", "12.8", True),
        ("apt", "9.2", None),
    ],
)
def test_which_packages_make_up_a_compiler(catalogue: Catalogue, manager: str, cuda: str, nvcc: bool | None) -> None:
    """The wheels of CUDA 11 and 12 hold ptxas and headers, but no nvcc program."""
    found = compilers(catalogue, manager, cuda)
    assert [("nvcc" in record.provides) for record in found] == ([] if nvcc is None else [nvcc])
    assert all(("nvcc" in record.provides) == (record.home is not None) for record in found)


def test_the_requirements_of_compilers_are_filled_in_with_a_version(catalogue: Catalogue) -> None:
    places = {"cuda": "13.0", "major": "13", "minor": "0", "site_packages": "lib/python3.12/site-packages"}
    for record in catalogue.compilers:
        filled = [text.format_map(places) for text in (*record.packages, record.home or "")]
        assert any("13.0" in text or "13-0" in text for text in filled)
        if record.manager == "pip":
            assert all(Requirement(text.format_map(places)).specifier.contains("13.0.3") for text in record.packages)


@pytest.mark.parametrize(
    ("branch", "kind", "end_of_life"),
    [
        ("450", "lts", "2023-07"),
        ("455", None, None),
        ("470", "lts", "2024-07"),
        ("535", "lts", "2026-06"),
        ("570", "production", "2026-02"),
        ("575", "new-feature", None),
        ("580", "lts", "2028-06"),
        ("595", "production", "2027-03"),
        ("620", "lts", "2029-09"),
    ],
)
def test_driver_branches_have_a_kind_and_an_end(
    catalogue: Catalogue, branch: str, kind: str | None, end_of_life: str | None
) -> None:
    record = next(b for b in catalogue.drivers if b.branch == branch)
    assert (record.kind, record.end_of_life) == (kind, end_of_life)


def test_a_branch_is_long_lived_where_its_kind_says_so(catalogue: Catalogue) -> None:
    assert all(branch.lts == (branch.kind == "lts") for branch in catalogue.drivers)


def test_drivers_read_the_ptx_of_their_toolkit(catalogue: Catalogue) -> None:
    isas = {t.version: t.ptx_isa for t in catalogue.toolkits}
    shared = [branch for branch in catalogue.drivers if branch.cuda in isas]
    assert len(shared) >= 30
    assert all(branch.ptx_isa == isas[branch.cuda] for branch in shared)


@pytest.mark.parametrize(
    ("cc", "driver", "exists"),
    [
        ("3.5", "470.256.02", True),
        ("3.5", "510.39.01", False),
        ("6.1", "580.95.05", True),
        ("7.0", "590.44.01", False),
        ("7.5", "620.70.06", True),
        ("8.9", "515.105.01", False),
        ("8.9", "520.56.06", True),
        ("12.0", "565.77", False),
        ("12.1", "575.64.05", False),
        ("12.1", "580.95.05", True),
        ("10.3", "580.65.06", True),
        ("10.7", "610.43.02", False),
    ],
)
def test_cards_live_between_their_first_driver_and_their_last_branch(
    catalogue: Catalogue, cc: str, driver: str, exists: bool
) -> None:
    gpu = Gpu(compute_capability=cc)
    assert can_exist(gpu, Driver(driver), catalogue.architectures, catalogue.drivers).ok is exists


@pytest.mark.parametrize(
    ("name", "first", "listed"),
    [
        ("RTX 3080 Ti", "460.84", None),
        ("GTX 980", "343.22", None),  # the later changelog gives 343.36, the notes of the time an older one
        ("V100", "384.98", None),  # the oldest of its boards
        ("RTX 4090", "520.56.06", None),
        ("RTX 4060", None, "525.147.05"),  # 525.47.35, a beta for Vulkan, came out later than 525.60.13
        ("T1000", None, "460.106.00"),  # a list is older than the notes on the later board
        ("RTX 4050", None, None),
    ],
)
def test_the_driver_that_a_card_came_with(
    catalogue: Catalogue, name: str, first: str | None, listed: str | None
) -> None:
    model = find_gpu(name, catalogue)
    assert (model.first_driver, model.listed_in) == (first, listed)


def test_no_card_is_older_than_its_architecture_and_one_word_on_its_driver_is_enough(catalogue: Catalogue) -> None:
    for model in catalogue.gpus:
        known = model.first_driver or model.listed_in
        since = catalogue.architectures[model.compute_capability].first_driver
        assert model.first_driver is None or model.listed_in is None
        assert known is None or since is None or DriverVersion.parse(known) >= DriverVersion.parse(since), model.name


def test_tegra_parts_are_islands(catalogue: Catalogue) -> None:
    islands = {cc for cc, architecture in catalogue.architectures.items() if architecture.island}
    assert islands == {"3.2", "5.3", "6.2", "7.2", "8.7", "8.8", "10.1", "11.0"}


@pytest.mark.parametrize(
    ("version", "min_cc", "links_libcuda"),
    [
        ("2.0.0", "7.0", True),
        ("3.2.0", "7.0", True),
        ("3.3.1", "8.0", True),
        ("3.4.0", "7.0", True),
        ("3.5.1", "7.0", True),
        ("3.6.0", "7.0", False),
        ("3.9.0", "7.0", False),
    ],
)
def test_what_a_triton_serves_and_needs_of_the_host(
    catalogue: Catalogue, version: str, min_cc: str, links_libcuda: bool
) -> None:
    """3.3 compiles no fp16 matrix product below cc 8.0; from 3.6 on the launcher links ``libcuda.so.1`` itself."""
    release = next(t for t in catalogue.tritons if t.version == version)
    assert release.min_cc == min_cc
    assert {"c-compiler", "python-headers"} <= set(release.host_needs)
    assert ("libcuda-link" in release.host_needs) is links_libcuda


def test_every_triton_says_how_its_lowest_card_is_known(catalogue: Catalogue) -> None:
    for release in catalogue.tritons:
        measured = Version(release.version) >= Version("3.0")
        assert release.cited["min_cc"].evidence is (Evidence.MEASURED if measured else Evidence.DOCUMENTED)


@pytest.mark.parametrize(
    ("text", "name"),
    [
        # nvidia-smi and torch.cuda.get_device_name
        ("NVIDIA A100-SXM4-40GB", "NVIDIA A100"),
        ("NVIDIA A100-PG509-200", "NVIDIA A100"),
        ("NVIDIA H100 80GB HBM3", "NVIDIA H100"),
        ("NVIDIA H100 PCIe MIG 1g.10gb", "NVIDIA H100"),
        ("GPU 0: NVIDIA H100 PCIe (UUID: GPU-5e5a1d2c-8a5b-1fd8-9d4f-3c2f6a3e1b11)", "NVIDIA H100"),
        ("NVIDIA H20", "NVIDIA H20"),
        ("NVIDIA H20-3e", "NVIDIA H20"),
        ("NVIDIA GH200 480GB", "NVIDIA GH200 480GB"),
        ("NVIDIA GB200", "NVIDIA GB200"),
        ("NVIDIA B300 SXM6 AC", "NVIDIA B300"),
        ("NVIDIA GB300", "NVIDIA GB300"),
        ("NVIDIA GB10", "NVIDIA GB10"),
        ("Tesla V100-SXM2-32GB-LS", "Tesla V100"),
        ("Tesla V100-DGXS-32GB", "Tesla V100"),
        ("Tesla P100-PCIE-16GB", "Tesla P100"),
        ("NVIDIA RTX 6000D", "NVIDIA RTX 6000D"),
        ("NVIDIA RTX PRO 6000 Blackwell Server Edition", "NVIDIA RTX PRO 6000 Blackwell Server Edition"),
        ("NVIDIA GeForce RTX 3050 A Laptop GPU", "NVIDIA GeForce RTX 3050 A Laptop GPU"),
        ("NVIDIA GeForce RTX 3050 6GB Laptop GPU", "NVIDIA GeForce RTX 3050 Laptop GPU"),
        ("NVIDIA RTX A2000 Embedded GPU", "NVIDIA RTX A2000 Embedded GPU"),
        ("Quadro RTX 5000 with Max-Q Design", "Quadro RTX 5000"),
        ("NVIDIA T1000 8GB", "NVIDIA T1000"),
        ("NVIDIA GeForce MX450", "NVIDIA GeForce MX450"),
        ("NVIDIA CMP 170HX", "NVIDIA CMP 170HX"),
        ("P106-100", "P106-100"),
        # Jetson boards, as their driver names them
        ("Orin (nvgpu)", "Jetson AGX Orin"),
        ("NVIDIA Thor", "Jetson T5000"),
        ("NVIDIA Tegra X2", "Jetson TX2"),
        # virtual GPUs
        ("GRID T4-16Q", "Tesla T4"),
        ("GRID V100DX-32Q", "Tesla V100"),
        ("NVIDIA A100D-4-40C", "NVIDIA A100"),
        ("NVIDIA H100XM-80C", "NVIDIA H100"),
        ("NVIDIA L40S-48Q", "NVIDIA L40S"),
        ("GRID RTX8000P-48Q", "Quadro RTX 8000"),
        ("NVIDIA RTX5000-Ada-32Q", "NVIDIA RTX 5000 Ada Generation"),
        ("GRID P40-24Q", "Tesla P40"),
        # lspci
        ("GA102 [GeForce RTX 3090]", "NVIDIA GeForce RTX 3090"),
        ("GA102 [GeForce RTX 3080 Lite Hash Rate]", "NVIDIA GeForce RTX 3080"),
        ("TU102 [GeForce RTX 2080 Ti Rev. A]", "NVIDIA GeForce RTX 2080 Ti"),
        ("AD106M [GeForce RTX 4070 Max-Q / Mobile]", "NVIDIA GeForce RTX 4070 Laptop GPU"),
        ("GA107GL [A2 / A16]", "NVIDIA A2"),
        ("GP104M [GeForce GTX 1080 Mobile]", "NVIDIA GeForce GTX 1080"),
        ("GV100GL [Tesla V100 SXM2 32GB]", "Tesla V100"),
        (
            "01:00.0 VGA compatible controller: NVIDIA Corporation AD102 [GeForce RTX 4090] (rev a1)",
            "NVIDIA GeForce RTX 4090",
        ),
        (
            "07:00.0 3D controller [0302]: NVIDIA Corporation GA100 [A100 SXM4 40GB] [10de:20b0] (rev a1)",
            "NVIDIA A100",
        ),
        ("NVIDIA Corporation Device 2b85 (rev a1)", "NVIDIA GeForce RTX 5090"),
        ("[10DE:2E12]", "NVIDIA GB10"),
        ("0x233010DE", "NVIDIA H100"),
        # people
        ("RTX 2080 Mobile", "NVIDIA GeForce RTX 2080"),
        ("rtx spark", "NVIDIA RTX Spark N1X"),
        ("V100S", "Tesla V100"),
        ("a30x", "NVIDIA A30X"),
    ],
)
def test_names_as_programs_and_people_write_them(catalogue: Catalogue, text: str, name: str) -> None:
    assert find_gpu(text, catalogue).name == name


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("3050", "different compute capabilities"),  # a laptop's RTX 3050 A is an Ada card
        ("GRID RTX6000-24Q", "different compute capabilities"),
        ("GTX 860M", "unknown GPU"),  # sold with a Kepler and with a Maxwell chip
        ("GT 640", "unknown GPU"),
        ("NVIDIA Graphics Device", "unknown GPU"),
        ("NVIDIA Corporation Device ffff", "unknown GPU"),
        ("TU106M", "unknown GPU"),
        ("GeForce RTX 9090-16Q", "unknown GPU"),
        ("960 laptop", "unknown GPU"),
    ],
)
def test_what_names_no_one_model_is_not_guessed(catalogue: Catalogue, text: str, why: str) -> None:
    with pytest.raises(UsageError, match=why):
        find_gpu(text, catalogue)


def test_a_pci_id_is_one_chip(catalogue: Catalogue) -> None:
    chips: dict[str, str] = {}
    for gpu in catalogue.gpus:
        for device in gpu.pci_ids:
            assert chips.setdefault(device, gpu.compute_capability) == gpu.compute_capability, device
    assert len(chips) >= 550


def test_nearly_every_card_has_its_pci_ids(catalogue: Catalogue) -> None:
    """Jetson's GPUs are no PCI devices, and three names belong to no board."""
    without = {gpu.name for gpu in catalogue.gpus if not gpu.pci_ids}
    assert {name for name in without if not name.startswith("Jetson ")} == {
        "NVIDIA GeForce RTX 4050",
        "NVIDIA GeForce RTX 3050 Ti",
        "NVIDIA RTX A3000",
    }


@pytest.mark.parametrize(
    ("name", "supported"),
    [
        ("Tesla T4", True),
        ("NVIDIA A10G", True),
        ("NVIDIA RTX PRO 6000 Blackwell Server Edition", True),
        ("GRID A100D-80C", True),
        ("Jetson AGX Orin", True),
        ("Jetson TX2", False),
        ("NVIDIA GB10", False),
        ("NVIDIA RTX A6000", False),
        ("NVIDIA RTX PRO 6000 Blackwell Workstation Edition", False),
        ("GeForce RTX 4090", False),
        ("NVIDIA CMP 170HX", False),
    ],
)
def test_where_forward_compatibility_is_supported(catalogue: Catalogue, name: str, supported: bool) -> None:
    assert find_gpu(name, catalogue).data_centre is supported


@given(
    st.text(max_size=80) | st.from_regex(r"(GRID |NVIDIA )?[A-Z]{0,3}\d{1,4}[A-Z]{0,3}( \[[^]]{0,20}\])?(-\d+[A-Z])?")
)
def test_any_text_is_a_model_or_an_answer(text: str) -> None:
    try:
        assert find_gpu(text, SHIPPED).compute_capability in SHIPPED.architectures
    except UsageError as error:
        assert error.hint
