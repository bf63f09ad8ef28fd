"""Companions that say in their own files what they were built for, measured from wheels made by hand."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

import pytest

from envsolve.binaries.library import Extension
from envsolve.errors import UsageError
from envsolve.facts.builds import Build
from envsolve.facts.evidence import Evidence
from envsolve.facts.hardware import Toolkit
from envsolve.facts.maintain.companions import bound_builds, compiled_with, served
from tests.binaries.artefacts import CUBIN, PTX, container, elf, entry, pe, wheel
from tests.facts.test_bound import TORCHES
from tests.facts.test_refresh import Memory, Published

Members = Mapping[str, bytes | str]

LINUX = "manylinux_2_28_x86_64"
KERNELS = container(entry(CUBIN, 80), entry(CUBIN, 90), entry(PTX, 90, isa=(8, 7)))
TOOLKITS = tuple(
    Toolkit(version, None, None, isa, archs, Evidence.MEASURED, "s")
    for version, isa, archs in (
        ("12.0", "8.0", ("sm_80", "sm_90")),
        ("12.5", "8.5", ("sm_80", "sm_90")),
        ("12.6", "8.5", ("sm_80", "sm_90")),
        ("12.8", "8.7", ("sm_80", "sm_90", "sm_120")),
        ("12.9", "8.8", ("sm_80", "sm_90", "sm_120")),
        ("13.0", "9.0", ("sm_80", "sm_90", "sm_120")),
    )
)


def measure(
    name: str,
    members: Members,
    requires: Sequence[str] = (),
    version: str = "1.0",
    tags: str = f"cp312-cp312-{LINUX}",
) -> list[Build]:
    data = wheel(name, version, members, requires=requires)
    index = Memory([Published(f"{name.replace('-', '_')}-{version}-{tags}.whl", data)])
    return bound_builds(index, name, "0.1", "s", TORCHES, toolkits=TOOLKITS)


def test_torchvision_names_its_variant_in_a_file() -> None:
    members: Members = {"torchvision/version.py": "__version__ = '1.0+cu128'\n", "torchvision/_C.so": elf(tail=KERNELS)}
    (build,) = measure("torchvision", members, ["torch==2.10.0"])
    assert (build.variant, build.cuda, build.torch) == ("cu128", "12.8", "==2.10.0")
    assert (build.code, build.evidence) == (("sm_80", "sm_90", "compute_90"), Evidence.MEASURED)


@pytest.mark.parametrize(
    ("own", "requires"), [("1.0", ["torch==2.10.0"]), ("1.0+cu128", ["numpy"]), ("1.0+rocm6.4", ["torch==2.10.0"])]
)
def test_a_torchvision_of_which_too_little_is_known_gets_no_record(own: str, requires: Sequence[str]) -> None:
    assert measure("torchvision", {"torchvision/version.py": f"__version__ = '{own}'\n"}, requires) == []


def test_a_cpu_build_has_no_code() -> None:
    members: Members = {"torchvision/version.py": "__version__ = '1.0+cpu'\n", "torchvision/_C.so": elf()}
    (build,) = measure("torchvision", members, ["torch==2.10.0"])
    assert (build.variant, build.cuda, build.code) == ("cpu", None, ())


def test_xformers_goes_with_any_torch_of_its_major() -> None:
    about = {"version": {"cuda": 1208, "torch": "2.10.0+cu126"}}
    members: Members = {"xformers/cpp_lib.json": json.dumps(about), "xformers/_C.so": elf(tail=KERNELS)}
    (build,) = measure("xformers", members, ["torch==2.10.0"])
    assert (build.variant, build.cuda, build.torch_cuda, build.torch) == ("cu128", "12.8", ">=12,<13", "==2.10.0")


AO_TABLE = """pairs = [
    (_parse_version("0.9.0"), _parse_version("2.8.0")),
    (_parse_version("1.0"), _parse_version("2.9.1")),
]"""
AO_OLDEST = 'min_torch_version = _parse_version("2.11.0")'


@pytest.mark.parametrize(("source", "torch"), [(AO_TABLE, "==2.9.1"), (AO_OLDEST, ">=2.11.0")])
def test_torchao_serves_any_variant_and_has_kernels_for_certain_torches(source: str, torch: str) -> None:
    members: Members = {"torchao/__init__.py": source, "torchao/_C.abi3.so": elf(["libcudart.so.13"], tail=KERNELS)}
    (build,) = measure("torchao", members)
    assert (build.variant, build.torch, build.cuda) == ("any", torch, "13.0")
    assert build.code == ("sm_80", "sm_90", "compute_90")


def test_torchao_without_kernels_and_one_that_says_nothing() -> None:
    (build,) = measure("torchao", {"torchao/__init__.py": AO_OLDEST}, tags="py3-none-any")
    assert (build.variant, build.cuda, build.code, build.platform) == ("any", None, None, "any")
    assert measure("torchao", {"torchao/__init__.py": "import torch"}) == []


EXACT = 'library_name = f"libbitsandbytes_{prefix}{cuda_specs.cuda_version_string}{SUFFIX}"'
FALLS_BACK = "lower = [v for v in available if v[0] == runtime_version[0] and v < runtime_version]"
LIBRARIES = {
    f"bitsandbytes/libbitsandbytes_{name}.so": elf(tail=KERNELS if name.startswith("cuda") else b"")
    for name in ("cuda118", "cuda124", "cuda128", "cuda130", "cpu", "rocm64")
}


@pytest.mark.parametrize(
    ("loader", "serves"),
    [
        (EXACT, ["==11.8", "==12.4", "==12.8", "==13.0", None]),
        (FALLS_BACK, [">=11,<12", ">=12,<12.8", ">=12.8,<13", ">=13,<14", None]),
    ],
)
def test_bitsandbytes_has_a_record_for_each_of_its_libraries(loader: str, serves: list[str | None]) -> None:
    found = measure("bitsandbytes", {"bitsandbytes/cextension.py": loader, **LIBRARIES}, ["torch>=2"])
    assert [build.variant for build in found] == ["cu118", "cu124", "cu128", "cu130", "cpu"]
    assert [build.torch_cuda for build in found] == serves
    assert [build.code for build in found[-2:]] == [("sm_80", "sm_90", "compute_90"), ()]


def test_a_bitsandbytes_that_chooses_in_a_new_way_is_refused() -> None:
    with pytest.raises(UsageError, match="unknown way"):
        measure("bitsandbytes", {"bitsandbytes/cextension.py": "lib = choose()", **LIBRARIES})


def test_what_one_of_several_libraries_serves() -> None:
    libraries = [(11, 8), (12, 1), (12, 4), (13, 0)]
    assert [served(cuda, libraries) for cuda in libraries] == [">=11,<12", ">=12,<12.4", ">=12.4,<13", ">=13,<14"]


@pytest.mark.parametrize(
    ("name", "members", "variant"),
    [
        ("cupy-cuda12x", {"cupy/cuda/cub.cpython-312-x86_64-linux-gnu.so": elf(tail=KERNELS)}, "cu128"),
        ("cupy-cuda102", {"cupy/cuda/thrust.so": elf()}, "cu102"),
        (
            "onnxruntime-gpu",
            {"onnxruntime/capi/libonnxruntime_providers_cuda.so": elf(["libcudart.so.12"], tail=KERNELS)},
            "cu128",
        ),
        (
            "onnxruntime-gpu",
            {"onnxruntime/capi/onnxruntime_providers_cuda.dll": pe(["cudart64_12.dll"], tail=KERNELS)},
            "cu128",
        ),
        ("jax-cuda13-plugin", {"jax_cuda13_plugin/_prng.so": elf(tail=container(entry(CUBIN, 90)))}, "cu130"),
    ],
)
def test_a_project_that_does_not_link_torch_needs_none(name: str, members: Members, variant: str) -> None:
    (build,) = measure(name, members)
    assert (build.variant, build.torch, build.evidence) == (variant, None, Evidence.MEASURED)


@pytest.mark.parametrize(
    ("cuda", "code", "isa", "toolkit"),
    [
        ("12.6", ("sm_90", "compute_90"), "8.5", "12.6"),  # 12.5 has that PTX version too: the one expected stands
        ("12.0", ("sm_90", "compute_90"), "8.5", "12.5"),
        ("12.8", ("sm_90", "compute_90"), "8.8", "12.9"),
        ("12.0", ("sm_120",), None, "12.8"),
        ("12.9", ("sm_120",), None, "12.9"),
        ("13.0", ("sm_70",), None, "13.0"),  # none could have made it: nothing is claimed anew
    ],
)
def test_the_toolkit_that_the_kernels_show(cuda: str, code: tuple[str, ...], isa: str | None, toolkit: str) -> None:
    assert compiled_with(cuda, Extension(code, code, isa, None, True, None), TOOLKITS) == toolkit


INFO = "tensorflow/python/platform/build_info.py"


@pytest.mark.parametrize(("cuda", "minor"), [("12.5.1", "12.5"), ("11.2", "11.2"), ("64_112", "11.2")])
def test_tensorflow_lists_its_code_in_a_file(cuda: str, minor: str) -> None:
    pairs = [("cuda_compute_capabilities", ["sm_60", "sm_80", "compute_90"]), ("cuda_version", cuda)]
    for info in (dict([*pairs, ("is_cuda_build", True)]), [*pairs, ("is_cuda_build", True)]):
        (build,) = measure("tensorflow", {INFO: f"build_info = {info}"})
        assert (build.cuda, build.code) == (minor, ("sm_60", "sm_80", "sm_90", "compute_90"))


@pytest.mark.parametrize("members", [{INFO: "build_info = {'is_cuda_build': False}"}, {"tensorflow/__init__.py": ""}])
def test_a_tensorflow_without_gpu_code_is_a_cpu_build(members: Members) -> None:
    (build,) = measure("tensorflow", members)
    assert (build.variant, build.code, build.cuda) == ("cpu", (), None)


def test_a_tensorflow_that_lists_no_code_is_refused() -> None:
    with pytest.raises(UsageError, match="does not say which GPUs"):
        measure("tensorflow", {INFO: "build_info = {'is_cuda_build': True}"})


def test_the_ptx_of_a_library_with_its_own_runtime_shows_the_cuda() -> None:
    (build,) = measure("xgboost", {"xgboost/lib/libxgboost.so": elf(tail=KERNELS)})
    assert (build.variant, build.cuda, build.code) == ("cu128", "12.8", ("sm_80", "sm_90", "compute_90"))
    (build,) = measure("xgboost", {"xgboost/lib/libxgboost.so": elf()})
    assert (build.variant, build.code) == ("cpu", ())
    assert measure("xgboost", {"xgboost/core.py": ""}) == []


def test_paddlepaddle_names_its_cuda_in_a_file() -> None:
    members: Members = {
        "paddle/version/__init__.py": "full_version = '2.6.2'\ncuda_version     = '11.8'\n",
        "paddle/libs/libphi.so": elf(tail=container(entry(CUBIN, 70))),
    }
    (build,) = measure("paddlepaddle-gpu", members)
    assert (build.variant, build.cuda, build.code) == ("cu118", "11.8", ("sm_70",))


def test_libraries_of_rapids_have_the_code() -> None:
    (build,) = measure("libcudf-cu12", {"libcudf/lib64/libcudf.so": elf(tail=KERNELS)})
    assert (build.cuda, build.code) == ("12.8", ("sm_80", "sm_90", "compute_90"))
