"""One question, one answer: every command names the same torch for a machine, as wheels and as conda packages.

By default for machines on which the commands once differed; `pytest -m grid` asks about every class of machine.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import pytest
from msgspec.structs import replace

from envsolve.diagnose.model import Diagnoses, ReportFacts, Seen
from envsolve.diagnose.reason import concluded, diagnose, weighed
from envsolve.diagnose.report.read import read_report
from envsolve.diagnose.scene import scene_of
from envsolve.dockerfile import check_dockerfile
from envsolve.facts.builds import CondaBuild
from envsolve.machine.model import Driver, Machine
from envsolve.packages.commands import Change
from envsolve.packages.conda_inputs import CondaAsked
from envsolve.planning.builds import BuildLine, list_builds
from envsolve.planning.conda import make_conda_plan
from envsolve.planning.plan import Plan
from envsolve.planning.request import Request
from envsolve.protect.preview import report_after
from envsolve.rules.conda import Candidate, Spec, VirtualPackage
from envsolve.solve.conda_channels import UnsolvableError
from tests.planning.questions import Questions, questions
from tests.planning.test_promises import CATALOGUE, classes

Torch = tuple[str, str]
"""Version and variant."""

TARGETS = (
    "A100, driver 470.57.02, linux-x86_64, glibc 2.39",
    "K80, driver 470.57.02, linux-x86_64, glibc 2.39",
    "RTX 5090, driver 570.86.10, linux-x86_64, glibc 2.39",
    "RTX 4090, driver 572.83, win-amd64",
    "GH200, driver 550.54, linux-aarch64, glibc 2.39",
    "V100, driver 580.65.06, linux-x86_64, glibc 2.39",
)
COMPAT = "H100, driver 535.104.05, linux-x86_64, glibc 2.39"
"""With a libcuda of CUDA 13.0 from cuda-compat, too."""
CONDA_TARGETS = (
    *TARGETS,
    "Jetson AGX Orin, driver 540.4.0, linux-aarch64, glibc 2.35",
    "Jetson AGX Thor, driver 580.65.06, linux-aarch64, glibc 2.39",
    COMPAT,
)
ERRORS = {
    "driver-floor": "RuntimeError: The NVIDIA driver on your system is too old",
    "sass": "RuntimeError: CUDA error: no kernel image is available for execution on the device",
}


@pytest.fixture(scope="module")
def ask(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Questions]:
    with questions(tmp_path_factory.mktemp("questions")) as made:
        yield made


def machines(targets: Sequence[str]) -> list[object]:
    grid = pytest.param(lambda ask: [first for first, *_ in classes()], id="classes", marks=pytest.mark.grid)
    return [grid, *(pytest.param(lambda ask, t=t: [machine_of(ask, t)], id=t.partition(",")[0]) for t in targets)]


def machine_of(ask: Questions, target: str) -> Machine:
    machine = ask.machine(target)
    driver = replace(machine.driver or Driver(), compat_libcuda="13.0")
    return replace(machine, driver=driver) if target == COMPAT else machine


# Wheels.


@pytest.mark.parametrize("machines_of", machines(TARGETS))
def test_every_command_names_the_same_wheel(ask: Questions, machines_of: Callable[[Questions], list[Machine]]) -> None:
    differing = []
    for machine in machines_of(ask):
        plan = ask.plan_for([machine], "torch")
        here = replace(machine, python=plan.python)
        broken = refused(here)
        if plan.status == "impossible" or not machine.gpus or broken is None:
            continue
        listed = list_builds("torch", [machine], None, CATALOGUE).recommended
        answers = {
            "plan": planned(plan),
            "builds": (listed.version, listed.variant) if listed else None,
            "diagnose": named(diagnosed(broken, here)),
            "guard": named(previewed(broken, here)),
            "check-dockerfile": written(broken, here),
        }
        if len(set(answers.values())) > 1:
            differing.append((machine.gpus, machine.driver, broken.version, broken.variant, answers))
    assert differing == []


def planned(plan: Plan) -> Torch | None:
    torch = next((package for package in plan.packages if package.name in ("torch", "pytorch")), None)
    return (torch.version.partition("+")[0], torch.variant or "") if torch else None


def refused(machine: Machine) -> BuildLine | None:
    """The newest build that an installer finds for the machine, and that does not run there."""
    for line in list_builds("torch", [machine], machine.python, CATALOGUE).builds:
        rules = {reason.rule for reason in line.reasons if reason.ok is False}
        if line.verdict == "none" and line.local and rules and rules <= ERRORS.keys() and line.variant != "cpu":
            return line
    return None


def diagnosed(broken: BuildLine, machine: Machine) -> Diagnoses:
    error = next(ERRORS[reason.rule] for reason in broken.reasons if reason.ok is False)
    [gpu] = machine.gpus or ()
    said = f"\ntorch: {broken.version}+{broken.variant}\nGPU: {gpu.name}\n{error}\n"
    report = read_report(f"Python version: {machine.python}{said}", CATALOGUE, machine=machine)
    return diagnose(report, (), CATALOGUE)


def previewed(broken: BuildLine, machine: Machine) -> Diagnoses:
    before = ReportFacts("", machine, python=Seen(machine.python or "", "the environment", ""))
    change = Change("torch", None, broken.version + broken.local)
    scene = scene_of(report_after(before, [change], CATALOGUE), (), CATALOGUE)
    return concluded(scene, weighed(scene))


def named(found: Diagnoses, pattern: str = r"nstall torch ([\d.]+) \[(\w+)\]") -> Torch | None:
    """The last torch that the first diagnosis proposes: the best one, after the version at hand."""
    texts = [remedy.text for remedy in found.diagnoses[0].remedies] if found.diagnoses else []
    return last(re.findall(pattern, "\n".join(texts)))


def last(found: Iterable[Torch]) -> Torch | None:
    distinct = [*dict.fromkeys(found)]
    return distinct[-1] if distinct else None


def written(broken: BuildLine, machine: Machine) -> Torch | None:
    """The torch that a Dockerfile should install in place of one that does not run."""
    index = f"https://download.pytorch.org/whl/{broken.variant}"
    text = f"FROM python:{machine.python}\nRUN pip install torch=={broken.version} --index-url {index}\n"
    found = check_dockerfile(text, [machine], CATALOGUE).findings
    remedies = "\n".join(remedy for finding in found for remedy in finding.remedies)
    commands = re.findall(r"torch==([\d.]+)(?:\+(\w+))?", remedies)
    return last((version, variant or of_default_index(version)) for version, variant in commands)


def of_default_index(version: str) -> str:
    return next(b.variant for b in CATALOGUE.builds("torch") if b.version == version and b.index == "default")


def test_what_is_installed_is_replaced_by_the_same_version_first(ask: Questions) -> None:
    """A plan that prefers what is installed, and the first fix of a diagnosis."""
    machine = replace(ask.machine("RTX 4090, driver 535.54.03, linux-x86_64, glibc 2.39"), python="3.12")
    report = read_report("torch==2.11.0+cu130\n" + ERRORS["driver-floor"], CATALOGUE, machine=machine)
    first = diagnose(report, (), CATALOGUE).diagnoses[0].remedies[0]
    assert "torch 2.11.0 [cu126]" in first.text or "torch 2.11.0 [cu128]" in first.text


# Packages of conda-forge.


class Channel:
    """conda-forge as the catalogue describes it; solved as a solver does, which takes the newest that it may."""

    def candidates(self, specs: Iterable[str], subdir: str) -> dict[str, tuple[Candidate, ...]]:
        names = {spec.split()[0] for spec in specs}
        found = tuple(candidate(r) for r in CATALOGUE.conda if r.subdir == subdir and r.package == "pytorch")
        return {"pytorch": found} if "pytorch" in names else {}

    def solve(
        self,
        specs: Sequence[Spec],
        constraints: Sequence[Spec],
        virtual: Sequence[VirtualPackage],
        subdir: str,
        only: Mapping[str, Sequence[Candidate]],
    ) -> tuple[Candidate, ...]:
        if not only["pytorch"]:
            raise UnsolvableError(["no build"])
        order = {c.url: [int(n) for n in c.version.split(".")] + [c.number] for c in only["pytorch"]}
        best = max(only["pytorch"], key=lambda c: (order[c.url], c.build))
        return (best,)


def candidate(record: CondaBuild) -> Candidate:
    python = "".join(record.pythons[-1].split(".")) if record.pythons else "312"
    build = record.build.replace("*", f"_py{python}_h0_{record.number + 200 * bool(record.cuda)}")
    filename = f"pytorch-{record.version}-{build}-{record.arm}.conda"
    depends = [*([f"cuda-version >={record.cuda}"] if record.cuda else []), *record.depends]
    return Candidate(
        name="pytorch",
        version=record.version,
        build=build,
        number=record.number + 200 * bool(record.cuda),
        subdir=record.subdir,
        channel="https://conda.example/conda-forge",
        url=f"https://conda.example/conda-forge/{record.subdir}/{filename}",
        filename=filename,
        depends=(*depends, *([f"arm-variant * {record.arm}"] if record.arm else [])),
    )


@pytest.mark.parametrize("machines_of", machines(CONDA_TARGETS))
def test_every_command_names_the_same_conda_package(
    ask: Questions, machines_of: Callable[[Questions], list[Machine]]
) -> None:
    differing = []
    for machine in machines_of(ask):
        channel: object = Channel()
        asked = CondaAsked((Spec("pytorch"),))
        plan = make_conda_plan(asked, [machine], Request(), CATALOGUE, channel, ["conda-forge"])  # type: ignore[arg-type]
        if not machine.gpus or plan.cuda == "cpu" or "cannot exist" in "".join(fact.fact for fact in plan.conflict):
            continue
        answers = {
            "plan": planned(plan),
            "diagnose": conda_named(conda_diagnosed(machine)),
            "guard": conda_named(conda_previewed(machine)),
        }
        if len(set(answers.values())) > 1:
            differing.append((machine.gpus, machine.driver, answers))
    assert differing == []


def conda_diagnosed(machine: Machine) -> Diagnoses:
    listed = "# Name  Version  Build  Channel\npytorch  2.5.1  cpu_mkl_h0_100  conda-forge\n"
    error = "AssertionError: Torch not compiled with CUDA enabled\n"
    return diagnose(read_report(listed + error, CATALOGUE, machine=machine), (), CATALOGUE)


def conda_previewed(machine: Machine) -> Diagnoses:
    before = ReportFacts("", machine)
    change = Change("pytorch", None, "2.5.1", build="cpu_mkl_h0_100")
    scene = scene_of(report_after(before, [change], CATALOGUE), (), CATALOGUE)
    return concluded(scene, weighed(scene))


def conda_named(found: Diagnoses) -> Torch | None:
    pair = named(found, r"conda-forge's pytorch ([\d.]+) for CUDA ([\d.]+)")
    return (pair[0], "cu" + pair[1].replace(".", "")) if pair else None


def test_a_plan_that_wheels_refuse_names_the_same_conda_package(ask: Questions) -> None:
    # Wheels for aarch64 have no code for a Jetson before Thor.
    machine = ask.machine("Jetson AGX Orin, driver 540.4.0, linux-aarch64, glibc 2.39")
    plan = ask.plan_for([machine], "torch")
    assert plan.status == "impossible"
    [offered] = [remedy.unlocks for remedy in plan.remedies if "conda-forge" in remedy.text]
    assert offered == "pytorch {} [{}]".format(*conda_named(conda_diagnosed(machine)) or ())
