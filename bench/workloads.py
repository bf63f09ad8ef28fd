"""The questions that are timed, each asked of every tool that answers it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from bench.peers import PYTHON, Bench, conda_channel
from bench.processes import State, Tool

REQUIREMENTS = Path(__file__).with_name("requirements")
PACKAGES = {
    "torch": ["torch"],
    "torch torchvision torchaudio": ["torch", "torchvision", "torchaudio"],
    "vllm transformers accelerate": ["vllm", "transformers", "accelerate"],
}
_BY_PIP = ("torch", "vllm transformers accelerate")
_MACHINES, _BUILDS = 200, 300
_CARDS = ("H100", "A100", "RTX 4090", "L4", "T4", "RTX 5090", "B200", "A10")


@dataclass(frozen=True)
class Workload:
    """One comparison.

    Attributes:
        peer: The tool whose choice of versions is held against envsolve's.
        weight: How many times as often as others it runs.
    """

    name: str
    state: State
    tools: Mapping[str, Tool]
    peer: str = "uv"
    weight: int = 1


def workloads(bench: Bench) -> Iterator[Workload]:
    """All of them, the caches filled before they are read."""
    yield Workload("nothing", "start", _starts(bench), weight=2)
    asked = {name: _asked(bench, name, lines) for name, lines in PACKAGES.items()}
    for name, file in asked.items():
        yield from _packages(bench, name, file)
    for file in sorted(REQUIREMENTS.glob("*.txt")):
        yield from _packages(bench, file.stem, file)
    old = _asked(bench, "impossible", ["torch==2.4.*"])
    blackwell = bench.planned(old, target=f"RTX 5090, driver 570.86, python {PYTHON}, linux-x86_64, glibc 2.36")
    yield Workload("torch==2.4.* on an RTX 5090", "impossible", {"envsolve": replace(blackwell, good=3)})
    yield Workload(f"torch on {_MACHINES} machines", "warm", _fleets(bench, asked["torch"]))
    judged = {"the catalogue": bench.verdicts(0, _BUILDS), "envsolve": bench.verdicts(_MACHINES, _BUILDS)}
    yield Workload(f"{_MACHINES} machines, {_BUILDS} builds", "verdicts", judged)
    yield from _conda(bench)


def _packages(bench: Bench, name: str, file: Path) -> Iterator[Workload]:
    """One set of packages in each state of the caches."""
    pair = {"envsolve": bench.planned(file), "uv": bench.uv(file)}
    yield Workload(name, "cold", pair | ({"pip": bench.pip(file)} if name in _BY_PIP else {}))
    yield Workload(name, "warm", pair | ({"rigsolve": bench.rigsolve("torch")} if name == "torch" else {}))
    alone = {"envsolve": bench.planned(file, "--offline"), "uv": bench.uv(file, "--offline")}
    yield Workload(name, "offline", alone)


def _starts(bench: Bench) -> dict[str, Tool]:
    completion = {"_ENVSOLVE_COMPLETE": "bash_complete", "COMP_WORDS": "envsolve plan --t", "COMP_CWORD": "2"}
    version, complete = bench.envsolve("--version"), bench.envsolve()
    return {
        "python -c pass": Tool((str(bench.own / "bin" / "python"), "-c", "pass")),
        "envsolve --version": version,
        "completion": Tool(complete.command, {**complete.environment, **completion}),
    }


def _fleets(bench: Bench, asked: Path) -> dict[str, Tool]:
    """One machine, and many that differ in card, driver and name, from files."""
    one, many = bench.scratch / "one", bench.scratch / "many"
    for folder, count in ((one, 1), (many, _MACHINES)):
        folder.mkdir(exist_ok=True)
        for number in range(count):
            card = {"name": _CARDS[number % len(_CARDS)]}
            driver = {"version": f"58{number % 2}.{65 + number % 30}.06" if number % 2 == 0 else "590.44.01"}
            machine = {
                "schema": "envsolve.machine/1",
                "platform": {"os": "linux", "arch": "x86_64", "libc": "glibc 2.36"},
                "driver": driver,
                "gpus": [card],
                "python": PYTHON,
            }
            (folder / f"node{number:03}.json").write_text(json.dumps(machine))
    command = ("plan", "-r", str(asked), "--format", "json", "--machine")
    return {"envsolve": bench.envsolve(*command, str(many)), "one machine": bench.envsolve(*command, str(one))}


def _conda(bench: Bench) -> Iterator[Workload]:
    specs = ("pytorch", "torchvision")
    with conda_channel(bench.scratch / "channels") as channel:
        tools = {"envsolve": bench.conda(channel, *specs), "py-rattler": bench.rattler(channel, *specs)}
        for state in ("cold", "warm"):
            yield Workload("conda: pytorch torchvision", state, tools, peer="py-rattler")


def _asked(bench: Bench, name: str, lines: list[str]) -> Path:
    path = bench.scratch / f"{name}.in"
    path.write_text("\n".join(lines) + "\n")
    return path
