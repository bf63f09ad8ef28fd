"""``envsolve index``: the facts, and what artefacts really carry."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import envsolve
from envsolve.cli import options
from envsolve.cli.declare import Commands, argument, option
from envsolve.cli.output import SETTINGS, deliver, remark
from envsolve.errors import VerificationError

commands = Commands("The facts behind the answers, and how to measure them.")


@commands.add
def measure(
    what: Annotated[str, argument(metavar="FILE-OR-URL", help="A wheel, a .so, a ptxas, an environment.")],
    every: Annotated[
        bool, option("--all", help="Of torch, every library too: most of the wheel is read then.")
    ] = False,
    form: Annotated[Literal["text", "json"], option("--format", help="text or json.")] = "text",
    output: options.OutputFile = None,
) -> None:
    """Read the CUDA code inside an artefact.

    And its pins, ABI and tools: no GPU, no import, no full download.
    """
    found = envsolve.measure(what, every=every)
    if form == "json":
        from envsolve.system.files import dump

        deliver(dump(found), output)
    else:
        from envsolve.binaries.model import describe

        deliver(describe(found), output)


@commands.add
def update(
    into: Annotated[
        Path | None,
        option("--into", metavar="DIR", help="The index_data/ of a checkout, in place of your own catalogue."),
    ] = None,
) -> None:
    """Measure releases that the catalogue lacks.

    They are written into your own catalogue folder, which is laid over the bundled one: the next plan knows them.
    """
    written = envsolve.update_facts(into)
    for path, added in written.items():
        remark(f"{path}: {', '.join(added)}")
    if not written:
        remark("nothing new is published")


@commands.add
def check(
    packages: Annotated[
        list[str] | None, argument(metavar="[PACKAGE]...", help="torch, vllm, toolkit, ...; any where left out.")
    ] = None,
    sample: Annotated[int, option("--sample", metavar="N", help="How many releases to measure again.")] = 20,
    seed: Annotated[
        int | None, option("--seed", metavar="S", help="Draw the sample that an earlier check reported.")
    ] = None,
    catalogue: Annotated[
        Path | None, option("--catalogue", metavar="DIR", help="A catalogue in place of the one in use.")
    ] = None,
    form: Annotated[Literal["text", "json"], option("--format", help="text or json.")] = "text",
) -> None:
    """Measure a sample of the facts again.

    And compare it with the catalogue, field by field. Exit code 4 where something disagrees.
    """
    found = envsolve.check_facts(packages or (), sample=sample, seed=seed, folder=catalogue, progress=remark)
    if form == "json":
        from envsolve.system.files import dump

        deliver(dump(found), None)
    else:
        from envsolve.facts.maintain.describe import describe_check

        deliver(describe_check(found), None)
    if found.disagreements:
        count = len(found.disagreements)
        raise VerificationError(
            f"{count} fact{' is' if count == 1 else 's are'} not what is published",
            hint="what the catalogue says there is wrong, or the files were replaced: please report it",
        )


@commands.add
def show(
    what: Annotated[
        str | None,
        argument(metavar="[WHAT]", help="torch, vllm, ... or driver, gpu, toolkit, image, ..."),
    ] = None,
    which: Annotated[
        list[str] | None, argument(metavar="[WHICH]...", help="2.9.1 cu128, or 580, or 'RTX 4090'.")
    ] = None,
    form: Annotated[Literal["text", "json"], option("--format", help="text or json.")] = "text",
    output: options.OutputFile = None,
) -> None:
    """Show what is known of something.

    With evidence and sources. Without WHAT: how much is known of everything, and how old it is.
    """
    from envsolve.facts.maintain.describe import describe_facts, describe_summary
    from envsolve.system.files import dump

    if what is None:
        summary = envsolve.facts_summary()
        deliver(dump(summary) if form == "json" else describe_summary(summary), output)
        return
    found = envsolve.facts(what, *(which or ()))
    if form == "json":
        deliver(dump({**found.records, "sources": found.sources}), output)
    else:
        deliver(describe_facts(found, requires=SETTINGS.verbose), output)
