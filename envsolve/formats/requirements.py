"""A hashed requirements file for ``pip install --require-hashes -r`` and ``uv pip sync``.

Only one index line is safe: of several, pip takes the newest file of any, and uv stops at the first that has the name.
So what comes from another index than the default one is named by the URL of its file.
"""

from __future__ import annotations

from collections.abc import Iterator

from envsolve.formats._packages import default_index, hashed, strong_hashes
from envsolve.machine.model import one_line
from envsolve.planning.plan import Plan
from envsolve.solve.outcome import PlannedPackage

NAME = "requirements"
FILENAMES = ("requirements.txt", "*.txt")
FAMILY = "wheels"
HOLDS_SEVERAL = False
NEEDS_HASHES = True


def render(plan: Plan) -> str:
    """The file's text.

    Raises:
        ImpossibleError: Nothing fits.
        IndexUnavailableError: Some package has no URL or hash.
        UsageError: A source tree or a URL without a hash is in the plan.
    """
    packages = hashed(plan)
    default = default_index(packages)
    by_index: dict[str, list[PlannedPackage]] = {}
    for package in packages:
        by_index.setdefault(package.index or "", []).append(package)
    lines = [*_heading(plan), f"--index-url {default}"]
    for index in sorted(by_index, key=lambda index: (index == default, index)):
        lines += ["", f"# from {index}" if index else "# requested by URL"]
        for package in by_index[index]:
            pin = f"{package.name}=={package.version}" if index == default else f"{package.name} @ {package.url}"
            lines += [f"{pin} \\", *_hash_lines(package)]
    return "\n".join(lines) + "\n"


def _heading(plan: Plan) -> Iterator[str]:
    yield f"# envsolve plan for {', '.join(plan.requirements) or 'no requirements'}"
    for machine in plan.machines:
        yield f"# machine: {one_line(machine)}"
    yield f"# Python {plan.python or 'unknown'}, variant {plan.cuda or 'none'}"
    for name, value in sorted(plan.environment.items()):
        yield f"# set at run time: {name}={value}"


def _hash_lines(package: PlannedPackage) -> Iterator[str]:
    hashes = [f"    --hash={algorithm}:{digest}" for algorithm, digest in strong_hashes(package).items()]
    for line in hashes[:-1]:
        yield f"{line} \\"
    yield hashes[-1]
