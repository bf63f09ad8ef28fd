"""Packages that do not go together, or go together although the catalogue does not say so."""

from __future__ import annotations

from msgspec import structs

from tests.planning.worlds import chosen, codes
from tests.smallworld import NEW, OLD, World


def test_optional_kernels_for_another_torch_are_no_conflict(torch_world: World) -> None:
    requires, tags = ["filelock"], ("py3-none",)
    torch_world.build("torchao", "0.9.0", "any", requires=requires, torch=">=2.4,<2.8", pythons=tags, platform="any")
    plan = torch_world.plan("torch==2.14.1", "torchao==0.9.0")
    assert chosen(plan)["torchao"] == "0.9.0"


def test_an_old_cpu_extension_is_not_taken_beside_a_newer_torch(torch_world: World) -> None:
    torch_world.build("torchcodec", "0.9.0", "cpu", requires=[], torch="==2.9.*")
    assert torch_world.plan("torch==2.14.1", "torchcodec").status == "impossible"


def test_a_companion_that_does_not_require_torch_brings_none(torch_world: World) -> None:
    torch_world.build("transformer-engine-cu12", "2.20.2", "cu126", requires=["filelock"])
    assert set(chosen(torch_world.plan("transformer-engine-cu12"))) == {"filelock", "transformer-engine-cu12"}
    assert chosen(torch_world.plan("transformer-engine-cu12", "torch"))["torch"] == "2.14.1+cu126 cu126"


def test_a_release_that_the_catalogue_lacks_is_not_judged(torch_world: World) -> None:
    torch_world.default.wheel("torchvision", "0.7.0", requires=["torch"])
    plan = torch_world.plan("torchvision==0.7.0")
    assert (chosen(plan)["torchvision"], "not-judged" in codes(plan)) == ("0.7.0", True)
    assert chosen(torch_world.plan("torchvision"))["torchvision"] == "0.29.0 cu130"
    assert torch_world.plan("torchvision==0.8.0").status == "impossible"


def test_a_newer_release_that_the_catalogue_lacks_goes_with_a_torch_that_has_no_other(torch_world: World) -> None:
    torch_world.build("torch", "2.15.0", "cu130", requires=["filelock", "triton==3.8.0"], code=NEW)
    torch_world.default.wheel("torchvision", "0.30.0", requires=["torch==2.15.0"])
    held = torch_world.plan("torch", "torchvision")
    assert (chosen(held)["torch"], "torch-held-back" in codes(held)) == ("2.14.1 cu130", True)
    assert chosen(torch_world.plan("torch==2.15.0", "torchvision"))["torchvision"] == "0.30.0"


def test_a_second_cuda_runtime_is_told(torch_world: World) -> None:
    for build in list(torch_world.builds):
        if build.package == "torch" and build.variant == "cu128":
            requires = (*(build.requires or ()), "nvidia-cublas-cu12")
            torch_world.builds.remove(build)
            torch_world.builds.append(structs.replace(build, requires=requires))
    torch_world.default.wheel("nvidia-cublas-cu12", "12.8")
    torch_world.default.wheel("app", "1.0", requires=["torch", "nvidia-cublas-cu12"])
    plan = torch_world.plan("app")
    assert (plan.cuda, "mixed-cuda-majors" in codes(plan)) == ("cu126", False)
    assert "mixed-cuda-majors" in codes(torch_world.plan("app", cuda="cu130"))


def test_what_was_compiled_against_numpy_1_gets_numpy_1(torch_world: World) -> None:
    torch_world.build("torch", "2.2.2", "cu121", requires=["filelock"], code=OLD)
    for version in ("1.26.4", "2.0.0", "2.5.5"):
        torch_world.default.wheel("numpy", version, upload_time="2024-01-01T00:00:00Z")
    assert chosen(torch_world.plan("torch", "numpy"))["numpy"] == "2.5.5"
    assert chosen(torch_world.plan("torch==2.2.2", "numpy"))["numpy"] == "1.26.4"
    assert torch_world.plan("torch==2.2.2", "numpy>=2").status == "impossible"


def test_limits_that_follow_from_limits_move_the_rest_of_the_request(torch_world: World) -> None:
    """basicsr goes with torchvision before 0.17, so with torch 2.1, so with NumPy 1, so with an older OpenCV."""
    torch_world.build("torch", "2.1.2", "cu121", requires=["filelock"], code=OLD)
    torch_world.build("torchvision", "0.16.2", "cu121", requires=["numpy", "torch==2.1.2"], torch="==2.1.2", code=OLD)
    torch_world.default.wheel("basicsr", "1.4.2", requires=["torchvision", "numpy"])
    opencvs = {"4.11.0.86": "numpy>=1.26", "5.0.0.93": "numpy>=2"}
    for name, versions in (("numpy", dict.fromkeys(("1.26.4", "2.5.5"), "")), ("opencv-python", opencvs)):
        for version, needed in versions.items():
            requires = [needed] if needed else []
            torch_world.default.wheel(name, version, requires=requires, upload_time="2025-01-01T00:00:00Z")
    plan = torch_world.plan("basicsr>=1.4.2", "opencv-python", "torch", target="V100, driver 550.54")
    names = ("torch", "torchvision", "numpy", "opencv-python")
    assert [chosen(plan)[name] for name in names] == ["2.1.2 cu121", "0.16.2 cu121", "1.26.4", "4.11.0.86"]
    # What the solver adds to the request was not requested.
    reasons = [line for package in plan.packages for line in package.why if line.startswith("asked: ")]
    assert {line.partition(" (")[0] for line in reasons} == {
        "asked: basicsr>=1.4.2",
        "asked: opencv-python",
        "asked: torch",
    }
    refused = torch_world.plan("basicsr>=1.4.2", "opencv-python>=5", "torch", target="V100, driver 550.54")
    assert refused.status == "impossible"


def test_what_an_older_transformers_requires_may_be_older_too(torch_world: World) -> None:
    """Held at the hub of the newest transformers, an old torch got a transformers of years before."""
    torch_world.build("torch", "2.5.0", "cu121", requires=["filelock"], code=OLD)
    hubs = {"4.12.2": "huggingface-hub", "4.57.6": "huggingface-hub<1", "5.20.0": "huggingface-hub>=1"}
    for version, hub in hubs.items():
        torch_world.default.wheel("transformers", version, requires=[hub], upload_time="2025-01-01T00:00:00Z")
    for version in ("0.36.2", "2.4.0"):
        torch_world.default.wheel("huggingface-hub", version, upload_time="2025-01-01T00:00:00Z")
    found = chosen(torch_world.plan("torch==2.5.0", "huggingface-hub", "transformers"))
    assert (found["transformers"], found["huggingface-hub"]) == ("4.57.6", "0.36.2")
    newest = chosen(torch_world.plan("torch", "huggingface-hub", "transformers"))
    assert (newest["transformers"], newest["huggingface-hub"]) == ("5.20.0", "2.4.0")


def test_any_package_that_was_compiled_against_numpy_1_gets_numpy_1(torch_world: World) -> None:
    """The metadata of OpenCV 4.8 accepts every NumPy, and its library fails to import beside NumPy 2."""
    for name, versions in (("numpy", ("1.26.4", "2.5.5")), ("opencv-python", ("4.8.1.78", "4.10.0.84"))):
        for version in versions:
            requires = [] if name == "numpy" else ["numpy>=1.21"]
            torch_world.default.wheel(name, version, requires=requires, upload_time="2024-01-01T00:00:00Z")
    assert chosen(torch_world.plan("torch", "opencv-python"))["numpy"] == "2.5.5"
    assert chosen(torch_world.plan("torch", "opencv-python==4.8.1.78"))["numpy"] == "1.26.4"
    assert torch_world.plan("opencv-python==4.8.1.78", "numpy>=2").status == "impossible"


def test_other_binaries_from_before_numpy_2_are_a_warning(torch_world: World) -> None:
    """Whether a wheel uses NumPy's interface is only known of those that were measured."""
    index = torch_world.default
    index.wheel("numpy", "2.5.5", upload_time="2025-01-01T00:00:00Z")
    tags = "cp312-cp312-manylinux_2_17_x86_64"
    index.wheel("binary", "1.0", requires=["numpy"], tags=tags, upload_time="2023-01-01T00:00:00Z")
    index.wheel("newer", "1.0", requires=["numpy"], tags=tags, upload_time="2024-06-01T00:00:00Z")
    index.wheel("plain", "1.0", requires=["numpy"], upload_time="2023-01-01T00:00:00Z")
    index.wheel("without", "1.0", tags=tags, upload_time="2023-01-01T00:00:00Z")
    plan = torch_world.plan("binary", "newer", "plain", "without")
    found = [warning.message for warning in plan.warnings if warning.code == "older-than-abi"]
    assert found == ["binary 1.0 is older than the binary interface of numpy 2.5.5; importing it may fail"]


def test_binaries_from_before_the_torch_beside_them_are_a_warning(torch_world: World) -> None:
    """What is compiled against torch's C++ interface loads beside one minor release: auto-gptq 0.7.1 and torch 2.14."""
    index, tags = torch_world.default, "cp312-cp312-manylinux_2_17_x86_64"
    for name, day, its in (("old", "2001", tags), ("new", "2099", tags), ("plain", "2001", "py3-none-any")):
        index.wheel(name, "1.0", requires=["torch"], tags=its, upload_time=f"{day}-01-01T00:00:00Z")
    plan = torch_world.plan("old", "new", "plain")
    (warning,) = [one for one in plan.warnings if one.code == "older-than-abi"]
    assert warning.message.startswith("old 1.0 has compiled code and is older than torch 2.14.1")
    assert warning.remedy == 'if importing fails, add "torch<2.9"'


def test_dgl_keeps_the_torch_that_it_has_a_library_for(torch_world: World) -> None:
    torch_world.build("torch", "2.2.1", "cu126", code=OLD)
    torch_world.default.wheel("dgl", "2.1.0")
    assert chosen(torch_world.plan("torch", "dgl", target="RTX 3090, driver 550.54"))["torch"] == "2.2.1 cu126"


def test_a_package_with_the_same_modules_stands_in_for_the_one_that_is_required(world: World) -> None:
    """insightface needs onnxruntime, and its users install onnxruntime-gpu: both have the same files."""
    for version in ("1.26.0", "1.31.1"):
        world.default.wheel("onnxruntime-gpu", version)
        world.default.wheel("onnxruntime", version)
    world.default.wheel("insightface", "2.1", requires=["onnxruntime<1.30"])
    plan = world.plan("onnxruntime-gpu", "insightface")
    assert chosen(plan) == {"onnxruntime-gpu": "1.26.0", "insightface": "2.1"}
    (own,) = [one for one in plan.packages if one.stands_in_for]
    assert (own.name, own.stands_in_for) == ("onnxruntime-gpu", ("onnxruntime",))
    (warning,) = [one for one in plan.warnings if one.code == "stands-in"]
    assert "required by insightface 2.1" in warning.message


def test_of_two_packages_with_the_same_modules_the_one_with_gpu_code_is_planned(world: World) -> None:
    """Many files of ComfyUI's nodes name both: pip would keep the files of whichever it installs last."""
    for version in ("1.26.0", "1.31.1"):
        world.default.wheel("onnxruntime-gpu", version)
        world.default.wheel("onnxruntime", version)
    plan = world.plan("onnxruntime-gpu", "onnxruntime<1.30")
    assert (chosen(plan), "stands-in" in codes(plan)) == ({"onnxruntime-gpu": "1.26.0"}, True)
    assert world.plan("onnxruntime-gpu==1.26.0", "onnxruntime==1.31.1").status == "impossible"


def test_two_pins_that_exclude_each_other_are_the_whole_reason(world: World) -> None:
    """Beside dozens of other requirements a search names all that need NumPy, after half a minute."""
    world.default.wheel("numpy", "1.26.4")
    world.default.wheel("numpy", "2.2.6")
    world.default.wheel("opencv-python", "4.9.0.80", requires=["numpy>=1.21"])
    world.default.wheel("app", "1.0", requires=["numpy>=1", "opencv-python"])
    plan = world.plan("app", "numpy==2.2.6", "opencv-python==4.9.0.80")
    assert [fact.fact for fact in plan.conflict] == [
        "numpy 2.2.6 does not satisfy numpy<2",
        "numpy==2.2.6 was requested (command line)",
        "opencv-python 4.9.0.80 is built for numpy<2",
        "opencv-python==4.9.0.80 was requested (command line)",
    ]
    assert plan.remedies[0].text == "relax numpy==2.2.6"


def test_nothing_is_said_of_a_package_that_nobody_would_replace(world: World) -> None:
    world.default.wheel("onnxruntime-gpu", "1.26.0")
    plan = world.plan("onnxruntime-gpu")
    assert not any(one.stands_in_for for one in plan.packages)
    assert "stands-in" not in [one.code for one in plan.warnings]


def test_what_needs_libraries_of_a_cuda_major_gets_a_torch_that_brings_them(torch_world: World) -> None:
    """cupy-cuda12x requires no library: beside a torch for CUDA 13 its import fails."""
    extra = 'nvidia-cublas-cu12; extra == "ctk"'
    torch_world.build("cupy-cuda12x", "14.2.0", "cu129", requires=["numpy", extra], code=NEW)
    torch_world.default.wheel("nvidia-cublas-cu12", "12.9")
    plan = torch_world.plan("torch", "cupy-cuda12x")
    assert (chosen(plan)["torch"], "cuda-libraries-missing" in codes(plan)) == ("2.14.1+cu126 cu126", False)
    for asked, cuda in ((["cupy-cuda12x"], None), (["cupy-cuda12x", "torch"], "cu130")):
        [warning] = [w for w in torch_world.plan(*asked, cuda=cuda).warnings if w.code == "cuda-libraries-missing"]
        provided = "no package in the plan provides the CUDA 12 libraries that cupy-cuda12x 14.2.0 requires"
        assert warning.message == provided
        assert warning.remedy == "request cupy-cuda12x[ctk], or install CUDA 12 on the machine"


def test_a_release_that_does_not_require_torch_brings_none_though_newer_ones_do(torch_world: World) -> None:
    """As bitsandbytes, which requires torch since 0.43."""
    for version, requires in (("0.41.1", []), ("0.50.2", ["torch"])):
        torch_world.build("bitsandbytes", version, "cu126", requires=requires, torch_cuda="==12.6", code=NEW)
    plan = torch_world.plan("bitsandbytes==0.41.1")
    assert (set(chosen(plan)), "torch-not-required" in codes(plan)) == ({"bitsandbytes"}, True)
    assert chosen(torch_world.plan("bitsandbytes"))["torch"] == "2.14.1+cu126 cu126"


def test_a_wheel_for_any_platform_may_have_libraries_for_one_only(torch_world: World) -> None:
    tags = ("py3-none",)
    torch_world.build(
        "bitsandbytes",
        "0.42.0",
        "cu126",
        pythons=tags,
        platform="any",
        system="manylinux_2_5_x86_64",
        torch_cuda="==12.6",
        code=OLD,
        requires=[],
    )
    assert chosen(torch_world.plan("bitsandbytes"))["bitsandbytes"] == "0.42.0 cu126"
    plan = torch_world.plan("bitsandbytes", target="RTX 4070, driver 572.16, windows-x86_64")
    assert plan.status == "impossible"
    assert "bitsandbytes 0.42.0 was published only for linux-x86_64" in [fact.fact for fact in plan.conflict]


def test_a_release_that_would_turn_torch_off_is_not_planned_beside_it(torch_world: World) -> None:
    """The metadata of transformers names its torch only in an extra, and pip takes the newest beside any torch."""
    for version in ("4.47.1", "4.51.3", "5.20.2"):
        torch_world.default.wheel("transformers", version)
    torch_world.build("torch", "2.0.1", "cu121", requires=["filelock"], code=OLD)
    assert chosen(torch_world.plan("torch", "transformers"))["transformers"] == "5.20.2"
    assert chosen(torch_world.plan("torch==2.0.1", "transformers"))["transformers"] == "4.51.3"
    refused = torch_world.plan("torch==2.0.1", "transformers>=5")
    assert "transformers 5.20.2 is built for torch>=2.6" in [fact.fact for fact in refused.conflict]


def test_what_is_named_after_a_cuda_that_the_machine_does_not_run_is_not_planned(torch_world: World) -> None:
    """tensorrt 11 requires tensorrt-cu13: beside a torch for CUDA 12 it was planned ok for driver 535."""
    for version, cuda in (("11.4.0", "cu13"), ("10.13.0", "cu12")):
        torch_world.default.wheel(f"tensorrt-{cuda}", "11.4.0" if cuda == "cu13" else version)
        torch_world.default.wheel("tensorrt", version, requires=[f"tensorrt-{cuda}"])
    old, new = "A100, driver 535.54", "A100, driver 580.95.05"
    assert chosen(torch_world.plan("tensorrt", target=new))["tensorrt"] == "11.4.0"
    assert chosen(torch_world.plan("tensorrt", target=old))["tensorrt"] == "10.13.0"
    plan = torch_world.plan("tensorrt-cu13", target=old)
    assert (
        "tensorrt-cu13 is built for a CUDA version that does not run on the machine: CUDA 13.0 needs driver"
        in plan.conflict[1].fact
    )
    assert [remedy.text for remedy in plan.remedies] == [
        "request tensorrt-cu12 instead of tensorrt-cu13",
        "install driver 580.65.06 or newer",
    ]
    for cuda in ("cu12", "cu13"):
        torch_world.default.wheel(f"engine-{cuda}", "1.0")
    plan = torch_world.plan("engine-cu13", target="GTX 1060, driver 580.95.05")
    assert [remedy.text for remedy in plan.remedies] == ["request engine-cu12 instead of engine-cu13"]


def test_mmdet_gets_the_mmcv_that_its_import_accepts(world: World) -> None:
    """Its metadata does not name mmcv at all."""
    for version in ("2.1.0", "2.2.0"):
        world.default.wheel("mmcv", version)
        world.default.wheel("mmcv-lite", version)
    world.default.wheel("mmdet", "3.3.0")
    assert chosen(world.plan("mmcv"))["mmcv"] == "2.2.0"
    assert chosen(world.plan("mmcv", "mmdet")) == {"mmcv": "2.1.0", "mmdet": "3.3.0"}
    assert chosen(world.plan("mmcv", "mmcv-lite", "mmdet")) == {"mmcv": "2.1.0", "mmdet": "3.3.0"}
    assert "mmdet 3.3.0 is built for" in " ".join(f.fact for f in world.plan("mmcv>=2.2", "mmdet").conflict)
