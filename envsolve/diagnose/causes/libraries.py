"""``library-shadowed`` and ``library-mismatch``: another copy of a library is loaded, or one of another major."""

from __future__ import annotations

import re
from collections.abc import Iterator

from envsolve.diagnose.causes._shared import lines
from envsolve.diagnose.model import Finding, Grounds, Remedy, RuledOut
from envsolve.diagnose.scene import Scene, shown
from envsolve.diagnose.signatures import Match
from envsolve.values import CudaVersion

_SHADOWED = (
    "nvjitlink",
    "cudnn-incompatible",
    "jax-older-library",
    "tf-cudnn",
    "versioned-library",
    "cuda-library-symbol",
    "cudart-symbol",
)

_SHADOW = (
    "Wheels of torch and jax bring their own CUDA libraries and find them by path, but what LD_LIBRARY_PATH, the "
    "system or conda puts first is loaded before them. The copy that was loaded here is of another release: "
    "{missing}. Nothing has to be installed: the other copy must leave the loader's path."
)
_CXX = (
    "A library asks for a newer libstdc++ than the one that the process loaded first: {missing}. A conda environment "
    "brings a new one, and the system's older copy, or another environment's, came before it. The environment's own "
    "libstdc++ must be found first."
)
_INFER = (
    "The program was built for cuDNN 8, whose library is split into ..._infer and ..._train parts; cuDNN 9, which "
    "newer torch builds bring, no longer has them. Two majors of cuDNN are two different libraries. The program must "
    "come in a release for cuDNN 9, or beside a cuDNN 8."
)
_MKL = (
    "Torch's conda builds link MKL, and MKL 2024.1 dropped the symbol {symbol} that older torch builds look for. "
    "Conda put the newer MKL beside the older torch, since the recipe set no upper limit. "
    "An MKL below 2024.1 mends it."
)
_OTHER = (
    "{program} was built for one CUDA major and brings no CUDA libraries of its own: it looks for {library}, and the "
    "loader finds none of that major. The number after .so is the major version; another major is another library. "
    "The build and the CUDA libraries must be of the same one."
)
_NUMPY = (
    "A compiled module was built against NumPy 1, whose binary interface NumPy 2 changed. Torch before 2.3, and "
    "extensions of that time, know only NumPy 1. Either NumPy stays below 2, or the module must be a newer release."
)
_CUDNN = (
    "cuDNN is several libraries, which must all be of one release; the loader mixed parts of two. Another cuDNN, of "
    "the system, of conda or of a second nvidia-cudnn wheel, lies on the path beside torch's own. Only one may be "
    "found."
)


_TWINS = (
    "{wrong} and {right} are wheels of one library for two CUDA majors, and their files have the same names in the "
    "same folder: whichever was installed last is what is on disk. Torch, which is of CUDA {cuda}, looks for {missing} "
    "in it and meets the other. Only the one that torch pins may be there, and it must be installed again, since "
    "uninstalling a wheel also takes files of its twin away."
)


def weigh(scene: Scene) -> Iterator[Finding | RuledOut]:
    """The symbol or file that is missing tells which library is the wrong one."""
    if match := scene.first("mkl-symbol"):
        text = _MKL.format(symbol=match.groups["symbol"])
        remedy = Remedy("Keep MKL below 2024.1.", 'conda install "mkl<2024.1" "intel-openmp<2024.1"')
        yield Finding("library-mismatch", Grounds.STATED, text, lines(match), (remedy,), frozenset({"mixed-flavours"}))
    if match := scene.first("numpy-abi"):
        # A warning that many programs print and survive: it decides only where nothing else is told.
        alone = not any(m.signature.causes for m in scene.matches if m.signature.id != "numpy-abi")
        grounds = Grounds.STATED if alone else Grounds.SUGGESTED
        yield Finding("library-mismatch", grounds, _NUMPY, lines(match), tuple(_numpy()))
    if match := scene.first("cudnn-infer"):
        found = frozenset({"lock-incomplete", "library-shadowed"})
        yield Finding("library-mismatch", Grounds.STATED, _INFER, lines(match), tuple(_cudnn8(scene)), found)
    if match := scene.first("cudnn-sublibrary"):
        yield Finding("library-mismatch", Grounds.STATED, _CUDNN, lines(match), tuple(_one_cudnn(scene)))
    if (match := scene.first("cuda-library-missing")) and (program := _other_program(scene)):
        library = f"{match.groups['library']}.so.{match.groups['soname']}"
        text = _OTHER.format(program=program, library=library)
        yield Finding("library-mismatch", Grounds.STATED, text, lines(match), tuple(_for_other(program)))
    match = scene.first(*_SHADOWED)
    if match and (twins := _twins(scene, match)):
        yield twins
    elif match:
        yield _shadowed(scene, match)
    if match := scene.first("glibcxx"):
        text = _CXX.format(missing=match.groups["need"])
        yield Finding("library-shadowed", Grounds.STATED, text, lines(match), tuple(_libstdcxx(scene)))


def _twins(scene: Scene, match: Match) -> Finding | None:
    """Two wheels of the library for two CUDA majors, where torch's own major is known."""
    symbol = match.group("symbol", "library") or ""
    cuda = scene.torch.cuda if scene.torch else None
    found = {name: wheel for name in scene.report.installed if (wheel := _WHEEL.fullmatch(name))}
    same = [name for name, wheel in found.items() if symbol.lower().lstrip("_").startswith(wheel["library"])]
    right = next((name for name in same if cuda and name.endswith(f"-cu{CudaVersion.parse(cuda).major}")), None)
    wrong = [name for name in same if name != right]
    if right is None or not wrong:
        return None
    text = _TWINS.format(wrong=" and ".join(wrong), right=right, cuda=cuda, missing=symbol)
    installed = scene.report.installed
    remedy = Remedy(
        f"Remove {' and '.join(wrong)}, and install {right} again.",
        f"pip uninstall -y {' '.join(wrong)} && pip install --force-reinstall --no-deps "
        f"{right}=={installed[right].value}",
    )
    seen = tuple(shown(installed[name]) for name in same)
    evidence = (*lines(match), *seen, *(scene.torch.evidence if scene.torch else ()))
    consequences = frozenset({"library-shadowed", "mixed-flavours"})
    return Finding("library-mismatch", Grounds.CONFIRMED, text, evidence, (remedy,), consequences)


#: Wheels whose name has the CUDA major, and whose libraries have another version behind ``.so``.
_WHEEL = re.compile(r"nvidia-(?P<library>nccl|cudnn|cusparselt|nvshmem)-cu\d\d")


def _other_program(scene: Scene) -> str | None:
    """A program beside torch that brings no CUDA libraries and was built for one CUDA major."""
    return next((p for p in ("onnxruntime", "cupy", "ctranslate2", "paddle", "tensorflow") if scene.mentions(p)), None)


def _for_other(program: str) -> Iterator[Remedy]:
    commands = {
        "onnxruntime": 'pip install -U "onnxruntime-gpu[cuda,cudnn]"',
        "cupy": "pip uninstall -y cupy-cuda11x cupy-cuda12x && pip install cupy-cuda12x[ctk]  # or -cuda11x, -cuda13x",
        "tensorflow": 'pip install "tensorflow[and-cuda]"',
    }
    yield Remedy(
        f"Install the build of {program} for the CUDA that is there, or let its wheel bring the CUDA that it was "
        f"built for.",
        commands.get(program),
    )
    yield Remedy("See which CUDA libraries the loader finds.", "ldconfig -p | grep -E 'libcublas|libcudnn|libcudart'")


def _shadowed(scene: Scene, match: Match) -> Finding:
    path = scene.report.variables.get("LD_LIBRARY_PATH")
    missing = match.group("symbol", "library") or (
        f"built against {match.groups['built']}, found {match.groups['found']}" if "built" in match.groups else ""
    )
    evidence = (*lines(match), *((f"{path.where}: {path.quote}",) if path else ()))
    grounds = Grounds.CONFIRMED if path else Grounds.STATED
    text = _SHADOW.format(missing=missing)
    remedies = tuple(_unshadow(scene, match))
    found = frozenset({"mixed-flavours", "library-mismatch"})
    return Finding("library-shadowed", grounds, text, evidence, remedies, found)


def _unshadow(scene: Scene, match: Match) -> Iterator[Remedy]:
    yield Remedy(
        "Start the program without LD_LIBRARY_PATH: the wheels need none. Then take it out of the shell's "
        "start-up file "
        "or the module that sets it.",
        "env -u LD_LIBRARY_PATH python ...",
    )
    folder = (
        "nvjitlink" if "nvjitlink" in match.quote.lower() else "cudnn" if "cudnn" in match.quote.lower() else "cublas"
    )
    yield Remedy(
        "Where something else needs the variable, put the wheel's own library first.",
        f"export LD_LIBRARY_PATH=\"$(python -c 'import site; "
        f"print(site.getsitepackages()[0])')/nvidia/{folder}/lib:$LD_LIBRARY_PATH\"",
    )
    module = "jax" if match.signature.id == "jax-older-library" else "torch"
    yield Remedy(
        "See which copy is loaded, and from where.",
        f"LD_DEBUG=libs python -c 'import {module}' 2>&1 | grep -i {folder}",
    )


def _libstdcxx(scene: Scene) -> Iterator[Remedy]:
    yield Remedy(
        "Let the environment's own libstdc++ be found first.",
        "export LD_LIBRARY_PATH=$CONDA_PREFIX/lib:$LD_LIBRARY_PATH",
    )
    yield Remedy("Or bring a newer one into the environment.", "conda install -c conda-forge libstdcxx-ng")


def _numpy() -> Iterator[Remedy]:
    yield Remedy("Keep NumPy below 2.", 'pip install "numpy<2"')
    yield Remedy("Or take releases of the compiled modules that know NumPy 2 (torch 2.3 and later do).")


def _cudnn8(scene: Scene) -> Iterator[Remedy]:
    if scene.mentions("ctranslate2", "faster-whisper", "faster_whisper", "whisperx"):
        yield Remedy("Take the release for cuDNN 9: ctranslate2 4.5 and later.", 'pip install -U "ctranslate2>=4.5"')
    if scene.mentions("onnxruntime"):
        yield Remedy("Take the release for cuDNN 9.", "pip install -U onnxruntime-gpu")
    yield Remedy("Install the program's release that was built for cuDNN 9, the major that torch 2.4 and later bring.")
    yield Remedy(
        "Or give the program a cuDNN 8 of its own, in an environment without a torch of cuDNN 9.",
        'pip install "nvidia-cudnn-cu12<9"',
    )


def _one_cudnn(scene: Scene) -> Iterator[Remedy]:
    yield Remedy("Start the program without other folders on the loader's path.", "env -u LD_LIBRARY_PATH python ...")
    pins = (
        [line for line in (scene.torch.build.requires or ()) if "cudnn" in line]
        if scene.torch and scene.torch.build
        else []
    )
    if pins:
        pin = pins[0].split(";")[0].strip()
        yield Remedy("Put back the cuDNN that this torch pins.", f"pip install --force-reinstall --no-deps {pin}")
    yield Remedy("See which cuDNN packages are installed: there may be one only.", "pip list | grep -i cudnn")
