"""``driver-too-old``: the driver is below the floor of the build's CUDA family."""

from __future__ import annotations

from collections.abc import Iterator

from envsolve.diagnose.causes._shared import driver_text, lines
from envsolve.diagnose.model import Finding, Grounds, Remedy, RuledOut
from envsolve.diagnose.remedies.tools import driver_running
from envsolve.diagnose.remedies.torch import replacements, with_another_python
from envsolve.diagnose.scene import Scene
from envsolve.rules.driver import DriverFit, driver_runs

_ERRORS = (
    "driver-old-found",
    "driver-insufficient",
    "driver-lacks-call",
    "driver-lacks-symbol",
    "requires-driver-version",
)

_EXPLANATION = (
    "A CUDA runtime needs a driver of its own family or newer: {floor}. {driver} is older than that, so no CUDA call "
    "succeeds, and torch reports that CUDA is not available. The CUDA runtime comes inside the build, whatever "
    "toolkits are installed: either a build of an older CUDA, or a newer driver, closes the gap."
)
_CONTRADICTED = (
    "The error says that the driver is older than the CUDA runtime in use. By what the report tells, {floor}, which "
    "{driver} meets. So another CUDA runtime, or another driver library (a compat or container copy), is in play "
    "than the report shows."
)
_UNKNOWN = "which one, the report does not tell"


def weigh(scene: Scene) -> Iterator[Finding | RuledOut]:
    """Hold the build's CUDA against the driver (rule 1)."""
    error = scene.first(*_ERRORS)
    fit = _fit(scene)
    below = fit is not None and fit.reason.ok is False
    if error is None and not (below and _says_unavailable(scene)):
        if fit is not None and fit.reason.ok:
            yield RuledOut(fit.reason.text)
        return
    evidence = (*lines(error), *(scene.torch.evidence if scene.torch else ()), *scene.driver_evidence)
    if fit is not None and fit.reason.ok and error is not None:
        text = _CONTRADICTED.format(floor=fit.reason.text, driver=driver_text(scene))
        look = Remedy(
            "See which driver library is loaded, and which CUDA it supports.", "ldconfig -p | grep libcuda.so.1"
        )
        yield Finding("driver-too-old", Grounds.SUGGESTED, text, evidence, (look, *_remedies(scene)))
        return
    floor = fit.reason.text.split(";")[0] if fit is not None and fit.required else _UNKNOWN
    text = _EXPLANATION.format(floor=floor, driver=_capital(driver_text(scene)))
    grounds = Grounds.STATED if error and not below else Grounds.CONFIRMED if error else Grounds.DERIVED
    yield Finding("driver-too-old", grounds, text, evidence, _remedies(scene), explains=frozenset({"no-driver"}))


def _capital(words: str) -> str:
    return words[0].upper() + words[1:]


def _fit(scene: Scene) -> DriverFit | None:
    cuda = scene.torch.cuda if scene.torch else None
    if cuda is None or scene.driver is None:
        return None
    return driver_runs(cuda, scene.driver, scene.os, scene.facts.toolkits, scene.facts.floors)


def _says_unavailable(scene: Scene) -> bool:
    """A report without an error's words may still say that CUDA is not available; an environment alone says nothing."""
    return not scene.report.text.strip() or scene.mentions("is_available", "cuda available", "cuda is not available")


def _remedies(scene: Scene) -> tuple[Remedy, ...]:
    cuda = scene.torch.cuda if scene.torch else None
    driver = driver_running(scene, cuda) if cuda else None
    another = with_another_python(scene)
    found = [*replacements(scene), *([another[1]] if another else []), *_conda_toolkit(scene), *filter(None, [driver])]
    return tuple(found) or (
        Remedy(
            "Use a build of the program for the CUDA that the driver supports (the one that nvidia-smi shows) or an "
            "older one, or install a newer driver on the host."
        ),
    )


def _conda_toolkit(scene: Scene) -> tuple[Remedy, ...]:
    """Builds older than the catalogue's: conda's cudatoolkit package names the flavour."""
    torch, have = scene.torch, scene.driver.cuda if scene.driver else None
    if (
        torch is None
        or torch.version is None
        or torch.build is not None
        or have is None
        or not have.startswith(("9", "10"))
    ):
        return ()
    text = f"Take the same torch in a flavour that the driver runs: CUDA {have} or older, if it was published so."
    return (Remedy(text, f'conda install -c pytorch pytorch={torch.version} "cudatoolkit={have}"'),)
