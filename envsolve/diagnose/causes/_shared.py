"""Shared by the causes: the texts of a cause, and small helpers."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from envsolve.diagnose.cause_files import CauseFile, causes, code_of
from envsolve.diagnose.fixes import replacements
from envsolve.diagnose.model import Finding, Fix, Grounds, RuledOut, Seen, public
from envsolve.diagnose.scene import Scene
from envsolve.diagnose.signatures import Match
from envsolve.environment.model import Distribution, Environment
from envsolve.facts.hardware import Ptxas, TritonRelease
from envsolve.machine.model import Gpu
from envsolve.rules.nvidia.code import chosen_ptxas, triton_pin, triton_runs
from envsolve.rules.verdict import Reason
from envsolve.solve.preferences import DEFAULT
from envsolve.values import ComputeCapability


@dataclass(frozen=True)
class Cause:
    """A cause with the texts of its ``cause.toml``.

    Attributes:
        code: A code of ``docs/causes.md``.
    """

    code: str

    @classmethod
    def of(cls, module: str) -> Cause:
        """The cause of a module, by its ``__name__``."""
        return cls(code_of(module.rpartition(".")[2]))

    @cached_property
    def file(self) -> CauseFile:
        """Return the data of the cause from its file."""
        return causes().files[self.code]

    def first(self, scene: Scene, *roles: str) -> Match | None:
        """The first match of its signatures of some roles, in the order of the roles, then of the file."""
        ids = [s.id for role in roles or ("error",) for s in self.file.signatures if s.role == role]
        return scene.first(*ids)

    def finding(
        self,
        explanation: str,
        grounds: Grounds,
        evidence: Iterable[str],
        fixes: Iterable[Fix] = (),
        explains: Collection[str] | None = None,
        **values: object,
    ) -> Finding:
        """A finding of this cause.

        Args:
            explanation: Name of the text in the file.
            grounds: What it is based on.
            evidence: Where it was seen.
            fixes: Ways to remove it, the smallest change first.
            explains: Causes that are consequences of this one, if not those of the file.
            values: For the placeholders of the text.
        """
        text = self.file.explanations[explanation].format(**values)
        explained = self.file.explains if explains is None else frozenset(explains)
        return Finding(self.code, grounds, text, tuple(evidence), tuple(fixes), explained)

    def fix(self, name: str, **values: object) -> Fix:
        """A fix of the file, its placeholders filled in."""
        fix = self.file.fixes[name]
        return Fix(fix.text.format(**values), fix.command.format(**values) if fix.command else None)

    def words(self, name: str, **values: object) -> str:
        """A part of a sentence from the file, its placeholders filled in."""
        return self.file.words[name].format(**values)

    def ruled_out(self, name: str, **values: object) -> RuledOut:
        """The text from the file for something that was ruled out."""
        return RuledOut(self.words(name, **values))


def stated(scene: Scene) -> Iterator[Finding]:
    """The findings of all causes whose words alone prove them, in the order of the codes."""
    for code, file in causes().files.items():
        cause = Cause(code)
        for role, data in file.stated.items():
            if match := cause.first(scene, role):
                named = [name for name in data.fixes if _fits(file.fixes[name].where, scene)]
                fixes = [cause.fix(name, usual=scene.usual_cuda, **match.groups) for name in named]
                explains = data.explains | file.explains
                yield cause.finding(role, Grounds.STATED, lines(match), fixes, explains, **match.groups)


def fixes_here(code: str, role: str, scene: Scene) -> list[Fix]:
    """The fixes of a role whose words alone prove the cause, for the report's system."""
    cause = Cause(code)
    return [cause.fix(name) for name in cause.file.stated[role].fixes if _fits(cause.file.fixes[name].where, scene)]


def _fits(where: str | None, scene: Scene) -> bool:
    """Whether a fix that is limited to some systems applies to the report's system."""
    return where is None or (scene.mentions_conda if where == "conda" else where == (scene.os or "linux"))


def vendors_own(scene: Scene) -> Fix | None:
    """The builds of the vendor whose GPU the report names in place of NVIDIA's."""
    route = scene.other_vendor
    if route is None:
        return None
    values = {"vendor": route.name, "build": route.build, "device": route.device}
    if route.command is None:
        return Cause("cpu-build").fix("vendor-page", page=route.page, **values)
    fix = Cause("cpu-build").fix("vendor", **values)
    return Fix(fix.text, route.command)


def hip_version(scene: Scene) -> str:
    """The official gfx number, in ROCm's form, of the generation of the AMD GPU that a report names."""
    pairs = (pair.rsplit(" ", 1) for pair in Cause("no-kernel-for-gpu").words("hip-overrides").split("; "))
    text = scene.report.text.lower()
    return next((version for pattern, version in pairs if re.search(pattern, text)), "10.3.0")


def gpu_names(gpus: Sequence[Gpu]) -> str:
    """``Tesla V100 (cc 7.0) and GTX 1050 (cc 6.1)``, or ``the GPU``."""
    return " and ".join(gpu.label for gpu in gpus) or "the GPU"


def listed(names: Sequence[str], most: int = 3) -> str:
    """``a, b, c and 2 more``."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def lines(*matches: Match | None) -> tuple[str, ...]:
    """The lines of matches as evidence."""
    return tuple(match.evidence for match in matches if match is not None)


def shown_variable(scene: Scene, name: str) -> tuple[str, ...]:
    """An environment variable of the report as evidence; empty if the report does not show it."""
    seen: Seen[str] | None = scene.report.variables.get(name)
    return (f"{seen.where}: {seen.quote}",) if seen else ()


def torch_evidence(scene: Scene) -> tuple[str, ...]:
    """Where the report shows torch."""
    return scene.torch.evidence if scene.torch else ()


def driver_text(scene: Scene) -> str:
    """``the driver (550.54 for CUDA 12.4)``, as far as it is known."""
    driver = scene.driver
    parts = [driver.version, f"for CUDA {driver.cuda}" if driver.cuda else None] if driver else []
    return "the driver" + (f" ({' '.join(p for p in parts if p)})" if any(parts) else "")


def installed_triton(environment: Environment, scene: Scene) -> tuple[Distribution, TritonRelease] | None:
    """The Triton that an environment with torch imports, and what is known about it; None without a GPU to use it."""
    triton = environment.distribution("triton") or environment.distribution("pytorch-triton")
    release = scene.facts.tritons.get((triton.version or "").partition("+")[0]) if triton else None
    if triton is None or release is None or environment.torch is None or not scene.gpus:
        return None
    return triton, release


def pytorch_index(scene: Scene, variant: str, version: str | None = None) -> str:
    """The URL of PyTorch's own index for one variant; of the one that has a version of torch, if only one has it."""
    builds = scene.catalogue.builds("torch") if version else ()
    places = {build.index for build in builds if build.version == version and build.variant == variant} - {DEFAULT}
    place = next(iter(places)) if len(places) == 1 else "pytorch"
    return scene.catalogue.indexes[place].url.format(variant=variant)


def capitalized(text: str) -> str:
    """The text as the beginning of a sentence; the rest keeps its case."""
    return text[0].upper() + text[1:]


def by_triton(scene: Scene) -> bool:
    """Whether it is Triton, or torch's compiler with it, that compiles in the report."""
    # Nightly builds of torch require Triton under the name pytorch-triton.
    packages = {"triton", "pytorch-triton"}
    return scene.mentions("triton", "inductor", "torch.compile") or bool(packages & scene.report.installed.keys())


BUILDING = (
    *("getting requirements to build", "build dependencies", "build wheel", "egg_info", "metadata-generation-failed"),
    *("get_requires_for_build", "setup.py", "pep 517", "build backend", "failed to build", "build-system"),
)
# Their setup.py imports torch, which their build requirements do not name.
EXTENSIONS = ("flash-attn", "deepspeed", "apex", "mamba-ssm", "causal-conv1d", "xformers")
_SOURCES = (*EXTENSIONS, "flash_attn", "detectron2", "torch-scatter", "git+")


def may_be_built(scene: Scene) -> bool:
    """Whether the report shows a build, or names a package that is often compiled during its installation."""
    return scene.mentions(*BUILDING, *_SOURCES)


def gcc_command(scene: Scene, major: int) -> str:
    """The command that installs a gcc of one major beside the system's, and names it to a build."""
    install = system_install(scene)
    if "dnf" in install:
        # gcc-toolset begins with 9.
        return f"{install} gcc-toolset-{max(major, 9)} && source scl_source enable gcc-toolset-{max(major, 9)}"
    named = f"export CC=gcc-{major} CXX=g++-{major} CUDAHOSTCXX=g++-{major}"
    return f"{install} gcc-{major} g++-{major} && {named}"


def system_install(scene: Scene, *, inside: bool = True) -> str:
    """How the report's system installs a package: ``sudo apt-get install -y``, without sudo inside an image.

    Args:
        inside: Whether it is installed in the container, if there is one, and not on its host.
    """
    name = (scene.platform.distro or "").split(" ")[0].lower()
    if name in ("rhel", "centos", "rocky", "almalinux", "fedora", "amzn", "ol", "tencentos"):
        return "sudo dnf install -y"
    if name == "arch":
        return "sudo pacman -S"
    # Images run commands as root, and most have no sudo.
    return "apt-get install -y" if scene.in_container and inside else "sudo apt-get install -y"


# Which Triton it is, and what rule 6 says of the installed one.

Fixes = Callable[[Scene, TritonRelease, ComputeCapability, Ptxas | None], Iterable[Fix]]


def reported_triton(scene: Scene) -> TritonRelease | None:
    """The Triton of a report: the installed one, otherwise the one that its torch pins."""
    version = public(scene.report.installed, "triton") or public(scene.report.installed, "pytorch-triton")
    if version is None and scene.torch and scene.torch.build:
        version = triton_pin(scene.torch.build)
    return scene.facts.tritons.get(version) if version else None


def pin_of(scene: Scene) -> str | None:
    """The Triton of this torch: its own pin, otherwise that of its version for Linux, whose internals it shares."""
    torch = scene.torch
    if torch is None or torch.version is None:
        return None
    builds = (*((torch.build,) if torch.build else ()), *scene.catalogue.builds("torch"))
    # A torch from source, 2.4.0a0+git..., pins what its release pins.
    release = re.match(r"[\d.]+\d", torch.version.partition("a0")[0])
    pins = (triton_pin(build) for build in builds if release and build.version == release[0])
    return next((pin for pin in pins if pin), None)


def judged(release: TritonRelease, cc: ComputeCapability, scene: Scene) -> Reason:
    """Rule 6 for a Triton and a GPU on the report's driver."""
    return triton_runs(release, cc, scene.driver, scene.os, scene.facts.toolkits, scene.facts.floors)


def installed_fault(
    cause: Cause, rules: tuple[str, ...], environment: Environment, scene: Scene, fixes: Fixes
) -> Iterator[Finding]:
    """The finding of a cause for the installed Triton, if one of its rules is the first that fails on a GPU."""
    found = installed_triton(environment, scene)
    for gpu in scene.gpus if found else ():
        assert found is not None and gpu.cc is not None
        triton, release = found
        ptxas = chosen_ptxas(release, gpu.cc)
        # Triton runs another ptxas then, of which the environment shows nothing.
        if ptxas is not None and ptxas.override in (scene.machine.environment or {}):
            continue
        reason = judged(release, gpu.cc, scene)
        if reason.ok is False:
            if reason.rule in rules:
                evidence = (f"{triton.info}: {triton.label}", *scene.gpu_evidence, *scene.driver_evidence)
                ways = (*fixes(scene, release, gpu.cc, ptxas), cause.fix("eager"))
                values = {"reason": reason.text, "gpu": gpu.label}
                yield cause.finding("installed", Grounds.READ, evidence, ways, explains=(), **values)
            return


def torch_that_compiles(scene: Scene) -> list[Fix]:
    """The torch whose Triton runs on this machine."""
    # Torch options of the first tier are those whose Triton runs here.
    best = next(iter(scene.family.options("torch")), None)
    return list(replacements(scene)[-1:]) if best is not None and best.verdict.triton else []
