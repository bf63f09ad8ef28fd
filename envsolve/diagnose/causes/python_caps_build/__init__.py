"""``python-caps-build``: no build for the environment's Python is new enough."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from packaging.utils import canonicalize_name
from packaging.version import Version

from envsolve.diagnose.causes._asked import Asked, another_python, looked_up, nearest, python_for, python_of
from envsolve.diagnose.causes._shared import Cause, gpu_names, lines, pytorch_index, torch_evidence
from envsolve.diagnose.causes.mixed_flavours.linker import published_wheel
from envsolve.diagnose.causes.no_kernel_for_gpu import failure, lacking
from envsolve.diagnose.fixes import conda_remedies, led_by, replacements, with_another_python
from envsolve.diagnose.model import Finding, Fix, Grounds
from envsolve.diagnose.scene import Scene
from envsolve.diagnose.signatures import Match, search_near
from envsolve.rules.platform import python_fits, same_system

CAUSE = Cause.of(__name__)


def from_report(scene: Scene) -> Iterator[Finding]:
    """No build with code for the GPU supports this Python, or an installer reports that the Python does not fit."""
    yield from _capped(scene)
    yield from _without_extra(scene)
    if scene.first("conflict-unavailable"):
        return
    if asked := looked_up(scene):
        yield from _looked_up(scene, asked)
    if match := scene.first("requires-python"):
        range_ = match.group("range", "other") or ""
        yield _out_of_range(scene, [match], range_, [python_for(scene, range_)], have=match.group("have"))
    if (match := scene.first("uv-wheels")) and match.groups["what"].lower() != "platform":
        yield _other_wheels(scene, match)
    if match := scene.first("wheel-platform"):
        yield from _of_file(scene, match)
    if match := scene.first("conda-python"):
        range_ = match.group("range", "classic") or ""
        yield _out_of_range(scene, [match], range_, [another_python(range_), *_conda(scene)])


#: An extra whose packages the catalogue knows: jax[cuda13].
_EXTRA = re.compile(r"\bjax\[(?P<cuda>cuda1[2-9])\]")


def _without_extra(scene: Scene) -> Iterator[Finding]:
    """jax for a CUDA whose plug-in is not for this Python: pip then takes an older jax, which has no such extra."""
    match = search_near(scene.report.text, _EXTRA, "jax[cuda")
    plugins = scene.published(f"jax-{match['cuda']}-plugin") if match else []
    tags = [tag for build in plugins for tag in build.pythons]
    if match and scene.python and tags and python_fits(tags, scene.python).ok is False:
        pythons = sorted({python_of(tag) for tag in tags}, key=Version)
        fix = another_python(pythons[-2] if len(pythons) > 1 else pythons[-1])
        fix = Fix(fix.text, f"{fix.command} .venv-jax && VIRTUAL_ENV=.venv-jax uv pip install '{match[0]}'")
        yield _published(Grounds.STATED, [f"{match[0]}, Python {scene.python}"], [fix], match[0], scene.python, pythons)


def _capped(scene: Scene) -> Iterator[Finding]:
    missing, torch = lacking(scene), scene.torch
    if missing and torch and (another := with_another_python(scene)):
        evidence = (*lines(failure(scene)), *torch_evidence(scene), torch.code_from or "", *scene.gpu_evidence)
        consequences = ("no-kernel-for-gpu", "nvcc-torch-mismatch", "nvcc-arch-unknown")
        values = {"gpus": gpu_names(missing), "python": scene.python}
        yield CAUSE.finding("capped", Grounds.DERIVED, evidence, [another], consequences, **values)


def _looked_up(scene: Scene, asked: Asked) -> Iterator[Finding]:
    pythons, evidence = asked.pythons, lines(asked.match)
    if asked.match.signature.id == "poetry-none" and asked.lacks_local:
        return
    if asked.match.signature.id == "poetry-none" and asked.here and asked.why in ("another-index", "python"):
        # The lock names the index, so that it is the Python of the environment that no file fits.
        fix = CAUSE.fix("poetry-python", python=pythons[-1], pythons=", ".join(pythons), asked=asked.words)
        yield _published(Grounds.STATED, evidence, [fix], asked.words, scene.python or "(not known)", pythons)
        return
    if asked.why == "python-range":
        range_ = asked.ignored or ""
        matches = [asked.match, *scene.found("pip-ignored")[:1]]
        yield _out_of_range(scene, matches, range_, [python_for(scene, range_)], ("no-such-build",))
    elif asked.why == "python":
        grounds = Grounds.CONFIRMED if scene.python else Grounds.STATED
        yield _published(grounds, evidence, _places(scene, asked), asked.words, asked.python, pythons)
    elif asked.why == "another-index" and scene.python is None:
        # Which Python it is decides first, and the report does not say.
        fixes = nearest(scene, asked.name, asked.wanted)
        if "+" in asked.wanted:
            # Exactly this build exists: another variant is no fix.
            fixes = fixes[-1:]
        yield _published(Grounds.SUGGESTED, evidence, fixes, asked.words, "(not known)", pythons, ())


def _places(scene: Scene, asked: Asked) -> tuple[Fix, ...]:
    pythons = asked.pythons
    other = () if scene.other_vendor else nearest(scene, asked.name, "")
    if scene.python is None:  # it is known by what the installer lists only
        other = tuple(fix for fix in other if asked.words not in (fix.command or ""))
    fixes = (*other, another_python(pythons[-1]))
    if asked.wanted and (scene.python is None or (not scene.torch and "+" not in asked.wanted)):
        # Nothing is installed yet, and a project that pins a version expects that one.
        place = another_python(pythons[-1])
        command = f"{place.command} .venv-{pythons[-1]} && VIRTUAL_ENV=.venv-{pythons[-1]} uv pip install"
        local = asked.wanted.partition("+")[2] or (asked.torch_index or "").rpartition("/")[2]
        tail = f" --index-url {pytorch_index(scene, local)}" if local and scene.python is None else ""
        fixes = (Fix(place.text, f"{command} '{asked.words}'{tail}"), *other)
    return fixes


def _of_file(scene: Scene, match: Match) -> Iterator[Finding]:
    """A wheel that was given as a file: the part of its name that does not fit, or the pip of another Python."""
    wheel = match.groups["wheel"]
    if wheel.count("-") < 4:
        return
    pythons, abi, platform = wheel.removesuffix(".whl").split("-")[-3:]
    tags = [f"{tag}-{abi}" if abi in ("abi3", "none") else tag for tag in pythons.split(".")]
    wanted = python_of(pythons)
    values = {"wheel": wheel, "pythons": wanted, "platform": platform}
    own = " ".join(filter(None, (scene.platform.os, scene.platform.arch)))
    published = published_wheel(scene, canonicalize_name(wheel.partition("-")[0]))
    if own and not same_system(platform, scene.platform):
        yield CAUSE.finding(
            "file-platform",
            Grounds.STATED,
            lines(match),
            [published or CAUSE.fix("file-other", own=own)],
            own=own,
            **values,
        )
    elif scene.python and python_fits(tags, scene.python).ok is False:
        own_python = [published] if published else []
        last = CAUSE.fix("file-python", have=scene.python)
        fixes = (*own_python, CAUSE.fix("file-environment", python=wanted, wheel=wheel), last)
        yield CAUSE.finding("file-python", Grounds.STATED, lines(match), fixes, have=scene.python, **values)
    else:
        fixes = (CAUSE.fix("file-pip", python=wanted, wheel=wheel), CAUSE.fix("file-tags"))
        yield CAUSE.finding("file-pip", Grounds.STATED, lines(match), fixes, **values)


def _other_wheels(scene: Scene, match: Match) -> Finding:
    """uv itself says which part of the tags does not fit."""
    name, version = match.group("package", "name") or "it", match.group("version")
    listed = sorted(set(re.findall(r"cp3(\d+)", scene.report.text)), key=int)
    fixes = (*nearest(scene, canonicalize_name(name), f"=={version}" if version else ""), another_python(""))
    words = f"{name} {version}" if version else name
    pythons = [f"3.{minor}" for minor in listed] or ["others"]
    return _published(Grounds.STATED, lines(match), fixes, words, scene.python or "this one", pythons)


def _published(
    grounds: Grounds,
    evidence: Iterable[str],
    fixes: Iterable[Fix],
    asked: str,
    python: str | None,
    pythons: list[str],
    explains: tuple[str, ...] = ("no-such-build",),
) -> Finding:
    values = {"asked": asked, "python": python, "pythons": ", ".join(pythons)}
    return CAUSE.finding("published", grounds, evidence, fixes, explains, **values)


def _out_of_range(
    scene: Scene,
    matches: list[Match],
    range_: str,
    fixes: Iterable[Fix],
    explains: tuple[str, ...] = (),
    have: str | None = None,
) -> Finding:
    values = {"python": have or scene.python or "this one", "range": range_}
    return CAUSE.finding("range", Grounds.STATED, lines(*matches), fixes, explains, **values)


def _conda(scene: Scene) -> Iterator[Fix]:
    for remedy in conda_remedies(scene)[-1:]:
        yield led_by(Cause("no-such-build").words("conda-forge"), remedy)
    yield from replacements(scene)[:1]
