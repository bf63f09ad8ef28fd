"""``triton-torch-mismatch``: the installed Triton is not the one that torch pins."""

from __future__ import annotations

from collections.abc import Iterator

from packaging.version import Version

from envsolve.diagnose.causes._shared import Cause, lines, pin_of, torch_evidence
from envsolve.diagnose.fixes import for_torch_at_hand, led_by, replacements
from envsolve.diagnose.model import Finding, Fix, Grounds, public
from envsolve.diagnose.scene import Scene
from envsolve.diagnose.signatures import Match
from envsolve.environment.model import Environment, needs, pinned, satisfies, torch_distribution
from envsolve.rules.nvidia.code import triton_pin

CAUSE = Cause.of(__name__)
_NAMES = ("triton", "pytorch-triton")
#: The project that builds Triton for Windows; it adds a number of its own to the names of Triton's releases.
_WINDOWS = "triton-windows"


def from_report(scene: Scene) -> Iterator[Finding]:
    """Compare the installed Triton with the version that torch pins."""
    match = CAUSE.first(scene)
    if match is None:
        return
    on_windows = scene.os == "windows"
    if match.signature.id == "triton-missing" and on_windows:
        yield CAUSE.finding("windows", Grounds.STATED, lines(match), _for_windows(scene))
        return
    installed = scene.report.installed
    pin = match.group("want") or pin_of(scene)
    have = match.group("have") or public(installed, "triton") or public(installed, _WINDOWS)
    # Windows builds add a number of their own, 3.2.0.post9, to the version of Triton.
    have = have.partition(".post")[0] if have and on_windows else have
    grounds = Grounds.CONFIRMED if pin and have and pin != have else Grounds.STATED
    if pin and have == pin and match.signature.id == "triton-import":
        # The pair is right, so the import comes from a third package.
        grounds = Grounds.SUGGESTED
    pairs = CAUSE.words("pins" if pin else "pins-one", torch=scene.torch.label if scene.torch else "torch", pin=pin)
    pairs += CAUSE.words("installed", have=have) if have else ""
    evidence = (*lines(match), *torch_evidence(scene))
    yield CAUSE.finding("mismatch", grounds, evidence, _fixes(scene, match, pin, have), pairs=pairs)


def _for_windows(scene: Scene) -> Iterator[Fix]:
    """Whether Triton is optional: a program that only warns works without it."""
    if scene.mentions("optimizations will not be enabled"):
        yield CAUSE.fix("ignore")
    pin = pin_of(scene)
    yield CAUSE.fix("windows", requirement=f"{_WINDOWS}=={pin}.*" if pin else _WINDOWS)
    yield CAUSE.fix("eager-windows")


def _pins(scene: Scene) -> dict[str, str]:
    """The Triton that each minor release of torch pins on Linux."""
    pins = ((build.version, triton_pin(build)) for build in scene.catalogue.builds("torch"))
    found = {".".join(version.split(".")[:2]): pin for version, pin in sorted(pins, key=lambda p: Version(p[0])) if pin}
    return dict(sorted(found.items(), key=lambda item: Version(item[0])))


def _fixes(scene: Scene, match: Match, pin: str | None, have: str | None) -> list[Fix]:
    fixes = []
    if pin and have == pin:
        fixes.append(CAUSE.fix("third"))
    elif pin:
        requirement = f"{_WINDOWS}=={pin}.*" if scene.os == "windows" else f"triton=={pin}"
        fixes.append(CAUSE.fix("pinned", requirement=f'"{requirement}"'))
    elif match.signature.id == "triton-missing":
        fixes += filter(None, [for_torch_at_hand(scene, "triton", _pins(scene))])
    fixes += [led_by(CAUSE.words("together"), fix) for fix in replacements(scene)[-1:]]
    return fixes or [CAUSE.fix("reinstall")]


def from_environment(environment: Environment, scene: Scene) -> Iterator[Finding]:
    """Compare the Triton that is imported with torch's requirement."""
    own = torch_distribution(environment)
    for name, requirement in needs(environment, own).items():
        have, pin = environment.distribution(name), pinned(requirement)
        if own is None or name not in _NAMES or have is None or satisfies(have.version, requirement.specifier):
            continue
        evidence = (f"{own.info}: requires {pin}", f"{have.info}: {have.label}")
        fix, values = CAUSE.fix("pinned", requirement=pin), {"torch": own.label, "pin": pin, "have": have.label}
        yield CAUSE.finding("installed", Grounds.READ, evidence, (fix,), explains=(), **values)
