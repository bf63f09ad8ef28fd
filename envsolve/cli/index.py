"""``envsolve index``: the facts of the catalogue, and measuring artefacts."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import envsolve
from envsolve.cli.options import Form, OutputFile, argument, option, path
from envsolve.cli.output import SETTINGS, check_output, deliver_as, remark
from envsolve.errors import VerificationError

HELP = "Show, measure and update the catalogue of facts."


def measure(
    what: Annotated[
        str,
        argument(
            metavar="FILE-OR-URL",
            help="What to measure: a wheel (file or URL), a shared library, a ptxas program or an environment.",
        ),
    ],
    every: Annotated[
        bool, option("--all", help="For torch, read every library. This downloads most of the wheel.")
    ] = False,
    form: Form = None,
    output: OutputFile = None,
) -> None:
    """Read the GPU code inside an artefact.

    Also reads its pins, ABI and tools: no GPU, no import, no full download.
    """
    check_output(form, output)
    found = envsolve.measure(what, every=every)
    deliver_as(form, found, lambda: envsolve.describe(found), output)


def update(
    into: Annotated[
        Path | None,
        path(
            "--into",
            metavar="DIR",
            help="Write into the index_data/ directory of a source checkout instead of your own catalogue.",
        ),
    ] = None,
) -> None:
    """Measure releases that the catalogue lacks.

    Writes them into your own catalogue, which extends the bundled one: the next plan knows them.
    """
    written = envsolve.update_facts(into)
    for file, added in written.items():
        remark(f"{file}: {', '.join(added)}")
    if not written:
        remark("no new release has been published")


def check(
    packages: Annotated[
        list[str] | None,
        argument(metavar="PACKAGE", help="The kind of facts to check: torch, vllm, toolkit, ... (default: all)."),
    ] = None,
    sample: Annotated[int, option("--sample", metavar="N", help="Number of releases to measure again.")] = 20,
    seed: Annotated[
        int | None, option("--seed", metavar="S", help="Random seed, to repeat the sample of an earlier check.")
    ] = None,
    catalogue: Annotated[
        Path | None,
        path("--catalogue", metavar="DIR", help="Check this catalogue directory instead of the one in use."),
    ] = None,
    form: Form = None,
) -> None:
    """Measure a sample of the facts again.

    Compares them with the catalogue, field by field. Exit code 4 if something differs.
    """
    from envsolve.facts.maintain.check import describe_check

    found = envsolve.check_facts(packages or (), sample=sample, seed=seed, folder=catalogue, progress=remark)
    deliver_as(form, found, lambda: describe_check(found), None)
    if found.disagreements:
        count = len(found.disagreements)
        raise VerificationError(
            f"{count} fact{' is' if count == 1 else 's are'} not as published",
            hint="the catalogue is wrong, or the published files were replaced; please report it",
        )


def show(
    what: Annotated[
        str | None,
        argument(metavar="WHAT", help="What to look up: torch, vllm, ... or driver, gpu, toolkit, image, ..."),
    ] = None,
    which: Annotated[
        list[str] | None, argument(metavar="WHICH", help="Which one: 2.9.1 cu128, or 580, or 'RTX 4090'.")
    ] = None,
    form: Form = None,
    output: OutputFile = None,
) -> None:
    """Show what is known about something.

    Prints evidence and sources. Without WHAT: how much is known about everything, and how old it is.
    """
    from envsolve.facts.maintain.lookup import describe_facts
    from envsolve.facts.maintain.summary import describe_summary

    check_output(form, output)
    if what is None:
        summary = envsolve.facts_summary()
        deliver_as(form, summary, lambda: describe_summary(summary), output)
        return
    found = envsolve.facts(what, *(which or ()))
    records = {**found.records, "sources": found.sources}
    deliver_as(form, records, lambda: describe_facts(found, requires=SETTINGS.verbose), output)


COMMANDS = (check, measure, show, update)
