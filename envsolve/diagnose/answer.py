"""All that a diagnosis can start from, joined: a text, a list of packages, an environment, machines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from envsolve.catalogue.load import Catalogue
from envsolve.diagnose.model import Diagnoses, Probe
from envsolve.diagnose.probed import fed
from envsolve.diagnose.reason import diagnose
from envsolve.diagnose.report import decode, read_installed, read_report
from envsolve.machine.model import Machine


def answer(
    log: str | bytes,
    machines: Sequence[Machine],
    installed: str | None,
    prefix: Path | None,
    catalogue: Catalogue,
    environ: Mapping[str, str],
    probes: Sequence[Probe] = (),
) -> Diagnoses:
    """The root causes.

    Args:
        log: An error text or report; may be empty where there is an environment.
        machines: Where it happened, completed from the text, then further ones that the remedies must serve.
        installed: A list of packages, which wins over the text.
        prefix: An environment on this computer, whose files win over both.
        catalogue: The facts.
        environ: Environment variables that decide in an environment beside its files.
        probes: What was tried in it.

    Raises:
        UsageError: The list of packages holds none, or there is no environment at ``prefix``.
    """
    text = decode(log) if isinstance(log, bytes) else log
    listed = read_installed(installed) if installed else None
    words = fed(text, probes)
    report = read_report(words.text, catalogue, machine=machines[0] if machines else None, installed=listed)
    if prefix is None:
        return diagnose(report, machines[1:], catalogue)
    from envsolve.diagnose.environment.diagnose import diagnose_environment
    from envsolve.diagnose.environment.read import read_environment

    environment = read_environment(prefix, environ)
    return words.named(diagnose_environment(environment, report, machines[1:], catalogue, probes))
