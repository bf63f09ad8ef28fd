"""What a plan takes, counted: requests, metadata read, versions looked at, builds judged, modules imported.

Seconds depend on the machine that runs the tests; these numbers do not. Where one grows, a plan has become slower.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import cycle
from pathlib import Path
from typing import Any

import pytest

from envsolve.cli import options
from envsolve.facts.builds import KnownMetadata
from envsolve.facts.catalogue import Catalogue
from envsolve.facts.evidence import Evidence
from envsolve.machine.model import Driver, Gpu, Machine, Platform
from envsolve.packages.cache import KnownFiles
from envsolve.packages.client import IndexClient
from envsolve.packages.settings import IndexSettings
from envsolve.planning import make
from envsolve.planning.plan import Plan
from envsolve.planning.plans import plan
from envsolve.planning.request import Request
from envsolve.rules import nvidia
from envsolve.rules.judge import Judge
from envsolve.rules.nvidia import Facts, Nvidia
from envsolve.rules.nvidia.code import triton_pin
from envsolve.rules.verdict import Verdict
from envsolve.solve.candidate_selector import CandidateSelector
from envsolve.solve.family import Family
from tests.indexcontent import Entry
from tests.planning.worlds import chosen
from tests.rounds import counted
from tests.smallworld import World

LAYERS, WIDTH, RELEASES = 3, 4, 6


def layered(world: World) -> list[str]:
    """Packages in layers, each needing all of the layer below, in several releases; the names of the top ones."""
    for layer in range(LAYERS):
        below = [f"p{layer - 1}-{n}>=2" for n in range(WIDTH)] if layer else ["filelock"]
        for n in range(WIDTH):
            for release in range(1, RELEASES + 1):
                world.default.wheel(f"p{layer}-{n}", f"{release}.0", requires=[*below, 'nobody; extra == "test"'])
    return [f"p{LAYERS - 1}-{n}" for n in range(WIDTH)]


@pytest.fixture
def pools(monkeypatch: pytest.MonkeyPatch) -> list[CandidateSelector]:
    """The pools that plans make."""
    made: list[CandidateSelector] = []

    def noted(*arguments: Any) -> CandidateSelector:
        made.append(CandidateSelector(*arguments))
        return made[-1]

    monkeypatch.setattr(make, "CandidateSelector", noted)
    return made


@dataclass(frozen=True)
class Work:
    """What a plan took: pages and metadata asked of indexes, versions looked at for a file, rounds of the solver."""

    pages: int
    metadata: int
    visited: int
    rounds: int


@pytest.fixture
def work(torch_world: World, pools: list[CandidateSelector], monkeypatch: pytest.MonkeyPatch) -> Callable[..., Work]:
    """Plans, and counts."""
    rounds = counted(monkeypatch)

    def planned(*asked: str) -> Work:
        pools.clear()
        rounds.clear()
        torch_world.server.requests.clear()
        assert torch_world.plan(*asked).packages
        paths = [request.path for request in torch_world.server.requests]
        assert len(paths) == len(set(paths))
        pages = sum(path.endswith("/") for path in paths)
        return Work(pages, len(paths) - pages, sum(pool.visited for pool in pools), sum(rounds))

    return planned


@pytest.mark.parametrize(
    ("asked", "family", "ordinary"),
    [
        (["torch"], 2, 1),
        (["torch", "torchvision", "torchaudio"], 4, 2),
        (["vllm", "transformers", "accelerate"], 3, 3 + LAYERS * WIDTH),
    ],
)
def test_the_work_of_a_plan(
    asked: list[str], family: int, ordinary: int, torch_world: World, work: Callable[..., Work]
) -> None:
    """Of a family package, and Triton is one, the page for its hashes alone; of any other, page and metadata, once."""
    torch_world.build("torchaudio", "2.14.1", "cu130", requires=["torch==2.14.1"], torch="==2.14.1")
    torch_world.build("vllm", "0.33.0", "cu130", requires=["torch==2.14.1", *layered(torch_world)], torch="==2.14.1")
    for n in range(RELEASES):
        torch_world.default.wheel("transformers", f"{n}.0", requires=["filelock", "p0-1<7"])
        torch_world.default.wheel("accelerate", f"{n}.0", requires=["torch>=2", "transformers"])
    cold = work(*asked)
    assert cold == Work(family + ordinary, ordinary, ordinary, cold.rounds)
    # One for each package and one for the variant: nothing is settled twice.
    assert cold.rounds == family + ordinary + 1
    assert work(*asked) == Work(0, 0, ordinary, cold.rounds)


def test_of_files_that_are_known_nothing_is_asked_and_all_pages_are_asked_for_at_once(
    torch_world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    top = layered(torch_world)
    ordinary = [name for name in torch_world.default.projects if name[0] == "p" or name == "filelock"]
    newest = {name: torch_world.default.projects[name][-1] for name in ordinary}
    known = tuple(
        KnownMetadata(name, entry.filename.split("-")[1], (entry.sha256,), Evidence.MEASURED, "", _requires(entry))
        for name, entry in newest.items()
    )
    settings = IndexSettings(torch_world.default.url, retries=0)
    monkeypatch.setattr(
        torch_world,
        "client",
        lambda: IndexClient(settings, cache_dir=torch_world.cache, known=KnownFiles(lambda: known)),
    )
    middle, lowest = torch_world.server.hold("/simple/p1-"), torch_world.server.hold("/simple/p0-")
    with ThreadPoolExecutor(1) as pool:
        plan = pool.submit(torch_world.plan, "torch", *top)
        assert lowest.reached.wait(60), "asked for before the layer above has answered"
        middle.release()
        lowest.release()
        assert len(chosen(plan.result())) == len(ordinary) + 2
    paths = [request.path for request in torch_world.server.requests]
    assert len(paths) == len(set(paths)) == len(ordinary) + 2
    assert [path for path in paths if not path.endswith("/")] == []


def _requires(entry: Entry) -> tuple[str, ...]:
    return tuple(re.findall(r"Requires-Dist: (.*)", (entry.metadata or b"").decode()))


def test_each_build_is_judged_once_for_each_kind_of_machine(
    torch_world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    judged = 0
    original = Judge._verdicts

    def counted(self: Judge, *arguments: Any) -> tuple[Verdict, ...]:
        nonlocal judged
        judged += 1
        return original(self, *arguments)

    monkeypatch.setattr(Judge, "_verdicts", counted)
    torch_world.plan_for([torch_world.machine("H100, driver 580.95.05")], "torch")
    alone = judged
    judged = 0
    kinds = [torch_world.machine(f"{card}, driver 580.95.05") for card in ("H100", "A100", "L4")]
    torch_world.plan_for(kinds * 50, "torch")
    assert judged <= len(kinds) * alone


def test_the_same_code_on_the_same_card_is_judged_once() -> None:
    """The whole catalogue's torch on a dozen cards."""
    catalogue = Catalogue()
    facts = Facts.of(catalogue)
    cards = list(dict.fromkeys(str(cc) for cc in catalogue.architectures))[:12]
    machines = tuple(
        Machine(
            platform=Platform("linux", "x86_64", "glibc 2.35"),
            driver=Driver("580.95.05", "13.0"),
            gpus=(Gpu(f"card {cc}", cc),),
        )
        for cc in cards
    )
    family = Family(catalogue, facts, machines, "3.12")
    family.judged("torch")
    codes = {(b.code, b.cuda, b.known("code").source) for b in catalogue.builds("torch") if b.cuda}
    for judge in family._judges:
        assert isinstance(judge._rules, Nvidia)
        assert len(judge._rules._codes) <= len(codes)


def test_no_verdict_works_out_anew_what_the_machine_alone_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten machines that differ in driver, of three kinds of card, and all builds of torch that are known."""
    catalogue = Catalogue()
    facts = Facts.of(catalogue)
    calls: Counter[str] = Counter()
    for name in ("lifted", "can_exist", "driver_runs", "triton_runs", "best_code", "libraries_serve"):
        monkeypatch.setattr(nvidia, name, partial(_counted, calls, getattr(nvidia, name)))
    machines = [
        Machine(
            platform=Platform("linux", "x86_64", "glibc 2.35"),
            driver=Driver(f"580.{65 + number}.06", "13.0"),
            gpus=(Gpu(card, cc),),
        )
        for number, (card, cc) in zip(range(10), cycle((("H100", "9.0"), ("L4", "8.9"), ("V100", "7.0"))), strict=False)
    ]
    builds = catalogue.builds("torch")
    for judge in (Judge(machine, facts) for machine in machines):
        for build in builds:
            judge.verdicts(build, "3.12")
    cudas = {build.cuda for build in builds if build.cuda}
    codes = {build.code for build in builds if build.code}
    pins = {triton_pin(build) for build in builds} & set(facts.tritons)
    assert calls["lifted"] == calls["can_exist"] == len(machines)
    assert calls["driver_runs"] == len(machines) * len(cudas)
    assert calls["triton_runs"] <= len(machines) * len(pins)
    # What the card alone decides is the same on all machines that have one.
    assert calls["best_code"] <= 3 * len(codes)
    assert calls["libraries_serve"] <= 3 * len(cudas)


def test_many_targets_are_read_with_one_catalogue(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []
    original = Catalogue._loaded

    def noted(self: Catalogue, file: str, kind: Any) -> Any:
        read.append(file)
        return original(self, file, kind)

    monkeypatch.setattr(Catalogue, "_loaded", noted)
    targets = [f"{card}, driver 580.{65 + n}.06" for n, card in zip(range(12), cycle(("H100", "L4")), strict=False)]
    assert len(options.Machines(target=targets).named() or ()) == 12
    assert len(read) == len(set(read))


def test_a_python_is_looked_up_where_the_builds_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    def python_of(asked: Any, machines: Any, request: Request, catalogue: Any, client: Any) -> Plan:
        return Plan(python=request.python)

    with monkeypatch.context() as blind:
        blind.setattr(Catalogue, "_loaded", None)
        assert options.python_version("python3.12.4") == "3.12"
        assert options.cuda_variant("cu126") == "cu126"
    monkeypatch.setattr("envsolve.planning.make.make_plan", python_of)
    assert plan(Request(["torch"], python="3.12.4", cuda="cu126"), [Machine()]).python == "3.12"


def _counted(calls: Counter[str], function: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
    calls[function.__name__] += 1
    return function(*arguments, **named)


@pytest.mark.parametrize(
    ("line", "unwanted"),
    [
        (["plan", "--help"], ["envsolve.facts", "envsolve.solve", "envsolve.packages"]),
        (
            ["plan", "torch", "--python", "2.0"],
            ["resolvelib"],
        ),
        (
            ["plan", "torch", "--target", "H100, driver 580.95.05, python 3.12, linux-x86_64", "--offline"],
            [
                "requests",
                "urllib3",
                "ssl",
                "email",
                "platformdirs",
                "pydantic",
                "rich",
                "html",
                "envsolve.environment.layout",
                "envsolve.packages.source_trees",
                "envsolve.rules.conda",
            ],
        ),
    ],
)
def test_nothing_is_imported_that_is_not_needed(tmp_path: Path, line: list[str], unwanted: list[str]) -> None:
    loaded = _loaded_by(line, tmp_path)
    assert "typer" in loaded
    assert set(unwanted) & loaded == set()


def test_what_only_asks_for_the_version_loads_nothing_else(tmp_path: Path) -> None:
    # Python 3.14 begins without io, which its standard streams have loaded on older ones.
    own = {"__future__", "envsolve", "envsolve.cli", "envsolve.cli.main"}
    assert _loaded_by(["--version"], tmp_path) - {"io"} == own


def _loaded_by(line: list[str], home: Path) -> set[str]:
    """The modules that a command line loads, beyond those that Python begins with."""
    program = (
        "import sys\nbefore = set(sys.modules)\nfrom envsolve.cli.main import run\n"
        "try:\n    run(sys.argv[1:])\nexcept SystemExit:\n    pass\nprint('LOADED', *set(sys.modules) - before)"
    )
    environment = {"ENVSOLVE_CACHE_DIR": str(home), "PATH": "", "HOME": str(home)}
    done = subprocess.run([sys.executable, "-c", program, *line], capture_output=True, text=True, env=environment)
    assert "LOADED " in done.stdout, done.stderr
    return set(done.stdout.rpartition("LOADED ")[2].split())
