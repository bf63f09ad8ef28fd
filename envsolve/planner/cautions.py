"""What a user should know about a plan that is otherwise good."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from envsolve.catalogue.model import Evidence
from envsolve.compat.platform import ASSUMED_GLIBC, libc_of
from envsolve.errors import IndexUnavailableError
from envsolve.machine.model import Machine
from envsolve.plan import Caution, PlannedPackage
from envsolve.resolve.family import Family, Option
from envsolve.resolve.solve import Solution

_TRITON_REMEDY = "for hand-written Triton kernels point TRITON_PTXAS_PATH to a ptxas of the driver's CUDA family"


def about_machines(machines: Sequence[Machine]) -> Iterator[Caution]:
    """Facts of the machines that decide and are not known."""
    for machine in machines:
        system = machine.platform
        if libc_of(system) is None and not (system and system.os == "windows"):
            needed = ".".join(map(str, ASSUMED_GLIBC))
            text = f"the machine's libc is not known; glibc {needed} or newer is assumed"
            yield Caution("libc-unknown", text, "check it there with: ldd --version")
        if machine.gpus is None:
            text = "the machine's GPUs are not known, so no build could be judged for them"
            yield Caution(
                "gpu-unknown", text, "name them: --gpu, --target, or `envsolve detect -o FILE` on the machine"
            )
        elif machine.gpus and not (machine.driver and (machine.driver.version or machine.driver.cuda)):
            text = "the machine's driver is not known, so whether it runs this CUDA is not known"
            yield Caution("driver-unknown", text, "name it: --driver VERSION (nvidia-smi shows it)")
        if machine.driver and machine.driver.compat_libcuda:
            text = (
                f"a cuda-compat libcuda (CUDA {machine.driver.compat_libcuda}) stands first on the loader path; "
                "the plan is made for the kernel driver alone"
            )
            yield Caution("compat-libcuda", text, "remove it from LD_LIBRARY_PATH unless this is a data-centre GPU")


def about_torch(solution: Solution, family: Family) -> Iterator[Caution]:
    """What the chosen torch cannot do, and what a newer one would need."""
    torch = solution.chosen.get("torch")
    option = torch.candidate.option if torch else None
    if option is None:
        return
    for reason in option.verdict.reasons:
        if reason.rule == "triton" and reason.ok is False:
            own = option.build.own_ptxas
            rest = f"; torch.compile uses the ptxas {own} inside torch and works" if own else "; torch itself runs"
            yield Caution("triton-limited", reason.text + rest, _TRITON_REMEDY if own else None)
    yield from _held_back(option, family)


def _held_back(option: Option, family: Family) -> Iterator[Caution]:
    """A newer torch would run here but for its Triton."""
    if not option.verdict.triton:
        return
    for other in family.judged("torch"):
        if other.version <= option.version:
            return
        if other.verdict.level.usable and other.verdict.triton is False:
            why = next(r.text for r in other.verdict.reasons if r.rule == "triton")
            text = f"torch {other.build.version} [{other.build.variant}] also runs here, but {why}"
            yield Caution(
                "newer-torch-held-back", text, f"ask for torch=={other.build.version} to take it without Triton"
            )
            return


def about_packages(
    packages: Sequence[PlannedPackage], solution: Solution, guessed: Sequence[str], yanked: Sequence[str]
) -> Iterator[Caution]:
    """Source builds, guesses and withdrawn files."""
    for package in packages:
        if package.evidence == Evidence.INFERRED.value:
            text = f"{package.name} {package.version}: no public file names this build; that it exists is inferred"
            yield Caution("build-inferred", text, "run again where its index can be reached")
        if package.kind == "sdist":
            text = f"{package.name} {package.version} is built from source"
            yield Caution("source-build", text, "a compiler, and for CUDA code an nvcc of torch's CUDA, must be there")
    for name in guessed:
        text = f"{name} computes its dependencies when it is built; those that it lists were taken"
        yield Caution("dependencies-guessed", text, None)
    for name in yanked:
        yield Caution("yanked", f"{name} was withdrawn by its authors, and nothing else fits", "choose another version")
    flavour = solution.flavour
    for chosen in solution.chosen.values():
        option = chosen.candidate.option
        if option and flavour and flavour != "cpu" and option.build.cuda is None and option.build.package != "triton":
            text = f"{chosen.candidate.name} {option.version} has no CUDA build here; its CPU build goes with torch"
            yield Caution("cpu-companion", text, None)


def about_indexes(failures: Sequence[IndexUnavailableError], date: str | None) -> Iterator[Caution]:
    """Indexes that the catalogue stood in for."""
    for failure in failures:
        text = f"{failure.message}; its files are taken from the catalogue of {date}, unconfirmed"
        yield Caution("index-unreachable", text, failure.hint)
