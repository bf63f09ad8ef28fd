"""``driver-needs-reload``: the running driver is not the installed one, or lost its state."""

from __future__ import annotations

import re
from collections.abc import Iterator

from envsolve.diagnose.causes._shared import Cause, lines, system_install
from envsolve.diagnose.fixes import led_by
from envsolve.diagnose.model import Finding, Fix, Grounds
from envsolve.diagnose.scene import Scene
from envsolve.diagnose.signatures import Match

CAUSE = Cause.of(__name__)
#: A restart that did not help, in people's words.
_RESTARTED = re.compile(
    r"(?:tried|after) (?:a )?(?:reboot|restart)|(?:reboot|restart)(?:ed|ing)?\b[^.\n]{0,40}"
    r"(?:still|doesn.t|didn.t|does not|did not|no effect|not help)",
    re.IGNORECASE,
)


def from_report(scene: Scene) -> Iterator[Finding]:
    """The driver itself states a mismatch; an unknown error counts only if nothing else explains it."""
    # Only a report of an update or a suspend makes the shared words of 803 and 999 point here.
    updated = scene.mentions("suspend", "sleep", "resume", "hibernat", "updat", "upgrad", "reboot")
    grounds = Grounds.STATED if updated else Grounds.SUGGESTED
    reboot = CAUSE.fix("reboot")
    consequences = ("no-driver", "compat-libcuda")
    if (match := CAUSE.first(scene, "mismatch")) and (other := _of_image(scene, match)):
        ways: tuple[Fix, ...] = (CAUSE.fix("image"), CAUSE.fix("image-run"))
        values = {"library": match.groups["library"], "driver": other}
        yield CAUSE.finding("image", Grounds.STATED, lines(match), ways, consequences, **values)
    elif match:
        inside = [led_by(CAUSE.words("host-works"), CAUSE.fix("image"))] if scene.in_container else []
        ways = (CAUSE.fix("rebuild") if _RESTARTED.search(scene.report.text) else reboot, CAUSE.fix("swap"), *inside)
        if scene.driver and scene.driver.version and scene.mentions("on the host", "on host", "container", "jupyter"):
            # nvidia-smi printed the table somewhere, so that the machine's own driver is in order.
            ways = (CAUSE.fix("restart"), led_by(CAUSE.words("host-works"), CAUSE.fix("image")), reboot)
        yield CAUSE.finding("mismatch", Grounds.STATED, lines(match), ways, consequences)
    elif match := CAUSE.first(scene, "fabric"):
        yield CAUSE.finding("fabric", Grounds.STATED, lines(match), _fabric_fixes(scene, match))
    elif match := CAUSE.first(scene, "unknown"):
        yield CAUSE.finding("unknown", grounds, lines(match), (CAUSE.fix("reload"), reboot))
    # In a container, error 803 most often means a compat library: compat-libcuda weighs it.
    elif (match := scene.first("mismatch-803")) and not scene.in_container and not scene.mentions("compat"):
        yield CAUSE.finding("mismatch", grounds, lines(match), (reboot,))


def _of_image(scene: Scene, match: Match) -> str | None:
    """The host's driver, if a report of a container names another one than that of the library in it."""
    library, driver = match.groups.get("library"), scene.driver.version if scene.driver else None
    if not (library and driver and scene.in_container):
        return None
    return driver if library.partition(".")[0] != driver.partition(".")[0] else None


def _fabric_fixes(scene: Scene, match: Match) -> Iterator[Fix]:
    driver = match.group("driver") or (scene.driver.version if scene.driver else None)
    if driver:
        dnf = "dnf" in system_install(scene, inside=False)
        yield CAUSE.fix("fabric-rpm" if dnf else "fabric-install", driver=driver, branch=driver.partition(".")[0])
    yield CAUSE.fix("fabric-start")
