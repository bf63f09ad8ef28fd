"""``driver-too-old``: the driver is older than the minimum of the build's CUDA family."""

from __future__ import annotations

from collections.abc import Iterator

from envsolve.diagnose.causes._shared import Cause, capitalized, driver_text, lines, torch_evidence
from envsolve.diagnose.fixes import replacements, with_another_python
from envsolve.diagnose.model import Finding, Fix, Grounds, RuledOut
from envsolve.diagnose.scene import Scene
from envsolve.diagnose.tool_fixes import driver_running
from envsolve.rules.nvidia.driver import DriverFit
from envsolve.values import CudaVersion

CAUSE = Cause.of(__name__)


def from_report(scene: Scene) -> Iterator[Finding | RuledOut]:
    """Compare the build's CUDA with the driver (rule 1)."""
    error, fit = CAUSE.first(scene), _fit(scene)
    below = fit is not None and fit.reason.ok is False
    if error is None and not (below and _says_unavailable(scene)):
        if fit is not None and fit.reason.ok:
            yield RuledOut(fit.reason.text)
        return
    evidence = (*lines(error), *torch_evidence(scene), *scene.driver_evidence)
    driver = driver_text(scene)
    if fit is not None and fit.reason.ok and error is not None:
        # Rule 1 says that the driver suffices, so the process may have loaded another libcuda.
        newer = driver_running(scene, f"{CudaVersion.parse(scene.toolkit or '12.0').major + 1}.0")
        own = scene.mentions("lmdeploy", "onnxruntime", "tensorrt", "cupy", "paddle", "nccl warn", "turbomind")
        # The torch runs on this driver: what failed is another program, or torch found another libcuda.
        fixes = (
            (*filter(None, [newer] if own else []), CAUSE.fix("other-build"), CAUSE.fix("look"))
            if own
            else (CAUSE.fix("look"), *_fixes(scene))
        )
        floor = fit.reason.text
        yield CAUSE.finding("contradicted", Grounds.SUGGESTED, evidence, fixes, (), floor=floor, driver=driver)
        return
    floor = fit.reason.text.split(";")[0] if fit and fit.required else CAUSE.words("unknown-floor")
    grounds = Grounds.STATED if error and not below else Grounds.CONFIRMED if error else Grounds.DERIVED
    yield CAUSE.finding("below", grounds, evidence, _fixes(scene), floor=floor, driver=capitalized(driver))


def _fit(scene: Scene) -> DriverFit | None:
    return scene.fit(scene.toolkit) if scene.toolkit and scene.driver else None


def _says_unavailable(scene: Scene) -> bool:
    """Whether a report without an error says that CUDA is not available; False for an environment without a report."""
    words = ("is_available", "cuda available", "cuda_available", "cuda is not available", "cuda unavailable")
    return not scene.report.text.strip() or scene.mentions(*words)


def _fixes(scene: Scene) -> tuple[Fix, ...]:
    driver = driver_running(scene, scene.toolkit) if scene.toolkit else _newest_driver(scene)
    # A container that was started without GPUs sees no driver at all, which the runtime calls too old.
    blind = scene.in_container and not scene.driver and not scene.mentions("--gpus", "--nv", "nvidia.com/gpu")
    hidden = [CAUSE.fix("container")] if blind else []
    # The best build for an unknown driver is the newest, which needs the newest driver.
    variants = None if scene.driver else _of_older_families(scene)
    found = [*hidden, *replacements(scene, variants=variants), with_another_python(scene), _cudatoolkit(scene), driver]
    known = tuple(filter(None, found))
    return known if len(known) > len(hidden) else (*known, CAUSE.fix("other-build"))


def _newest_driver(scene: Scene) -> Fix | None:
    """The driver for the newest CUDA family that the GPUs' drivers run: it runs all older families as well."""
    majors = sorted({toolkit.cuda_version.major for toolkit in scene.catalogue.toolkits}, reverse=True)
    return next(filter(None, (driver_running(scene, f"{major}.0") for major in majors)), None)


def _of_older_families(scene: Scene) -> list[str]:
    """The variants of CUDA families older than torch's own, or than the newest if torch is not known."""
    found = {build.variant: CudaVersion.parse(build.cuda).major for build in scene.published("torch") if build.cuda}
    own = CudaVersion.parse(scene.toolkit).major if scene.toolkit else max(found.values(), default=0)
    return [variant for variant, major in found.items() if major < own]


def _cudatoolkit(scene: Scene) -> Fix | None:
    """Builds older than the catalogue's: conda's cudatoolkit package names the variant."""
    torch, cuda = scene.torch, scene.driver.cuda if scene.driver else None
    if torch is None or torch.version is None or torch.build or not cuda or not cuda.startswith(("9", "10")):
        return None
    return CAUSE.fix("cudatoolkit", torch=torch.version, cuda=cuda)
