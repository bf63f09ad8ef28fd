"""Extensions whose binaries show another CUDA, another C++ ABI, or another torch than the one that is imported."""

from __future__ import annotations

import re
from collections.abc import Iterator

from envsolve.diagnose.causes._shared import Cause
from envsolve.diagnose.environment_advice import companion_for_torch, rebuild
from envsolve.diagnose.model import Finding, Fix, Grounds
from envsolve.diagnose.remedies.torch import replacements
from envsolve.diagnose.scene import Scene
from envsolve.environment.model import Distribution, Environment, ExtensionFiles, TorchFiles, needs, satisfies
from envsolve.values import CudaVersion

_RUNTIME = re.compile(r"libcudart\.so\.(\d+)(?:\.\d+)*")
_CUDA_PARTS = ("libtorch_cuda.so", "libc10_cuda.so")

_CAUSE = Cause("mixed-flavours")


def disagreeing_extensions(environment: Environment, scene: Scene) -> Iterator[Finding]:
    """Packages whose libraries need torch's and were made for another one than the torch that is imported."""
    torch = environment.torch
    for extension in (environment.extensions or ()) if torch else ():
        distribution = environment.distribution(extension.package)
        if torch is None or distribution is None:
            continue
        if reasons := list(_reasons(environment, torch, distribution, extension)):
            evidence = (*(shown for _, shown in reasons), f"{torch.site}/torch/version.py: {torch.label}")
            fixes = _fixes(environment, scene, extension.package)
            values = {"package": distribution.label, "reason": reasons[0][0]}
            yield _CAUSE.finding("installed", Grounds.READ, evidence, fixes, (), **values)


def _reasons(
    environment: Environment, torch: TorchFiles, distribution: Distribution, extension: ExtensionFiles
) -> Iterator[tuple[str, str]]:
    """What does not agree, in words, each with the file that shows it."""
    public = (torch.version or "").partition("+")[0]
    requirement = needs(environment, distribution).get("torch")
    if requirement and public and not satisfies(public, requirement.specifier):
        text = _CAUSE.words("requires", specifier=requirement.specifier, torch=torch.label)
        yield text, f"{distribution.info}/METADATA: Requires-Dist: {requirement}"
    yield from _cuda_reasons(environment, torch, distribution)
    if torch.cuda and extension.stated and extension.stated.endswith("+cpu"):
        yield _CAUSE.words("without-kernels"), f"{distribution.info}: {extension.stated}"
    if None not in (torch.cxx11_abi, extension.cxx11_abi) and torch.cxx11_abi != extension.cxx11_abi:
        old, new = "the C++ ABI from before C++11", "the C++11 ABI"
        has, wants = (new, old) if torch.cxx11_abi else (old, new)
        shown = f"{distribution.site}/{extension.libraries[0]}: calls torch by {wants}, which torch does not have"
        yield _CAUSE.words("abi", wants=wants, has=has), shown


def _cuda_reasons(environment: Environment, torch: TorchFiles, distribution: Distribution) -> Iterator[tuple[str, str]]:
    """The CUDA runtimes that its libraries need; a package that has one library for each CUDA loads the right one."""
    own = [library for library in environment.libraries if library.owner == distribution.name]
    majors = {int(m[1]): lib.path for lib in own for name in lib.needed if (m := _RUNTIME.fullmatch(name))}
    if torch.cuda and majors and CudaVersion.parse(torch.cuda).major not in majors:
        major, path = max(majors.items())
        yield (
            _CAUSE.words("runtime", major=major, cuda=torch.cuda),
            f"{path}: needs libcudart.so.{major}",
        )
    part = next(((lib.path, name) for lib in own for name in lib.needed if name in _CUDA_PARTS), None)
    if torch.cuda is None and torch.version and part:
        yield _CAUSE.words("no-part", torch=torch.label), f"{part[0]}: needs {part[1]}"


def _fixes(environment: Environment, scene: Scene, package: str) -> Iterator[Fix]:
    if found := companion_for_torch(scene, package):
        yield found
        return
    if package not in scene.catalogue.family or not scene.catalogue.builds(package):
        yield from rebuild(environment, scene, package)
    yield from replacements(scene)[:1]
