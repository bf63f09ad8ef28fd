"""``envsolve index``: the facts, and what artefacts really carry."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from envsolve import api
from envsolve.cli.output import deliver, remark

commands = typer.Typer(help="The facts behind the answers, and how to measure them.", no_args_is_help=True)


@commands.command()
def measure(
    what: Annotated[str, typer.Argument(metavar="FILE-OR-URL", help="A wheel, a .so, a ptxas, an environment.")],
    output: Annotated[Path | None, typer.Option("-o", metavar="FILE", help="Write it to FILE.")] = None,
) -> None:
    """Read the CUDA code inside an artefact.

    And its pins and tools: no GPU, no import, no full download. Prints JSON.
    """
    from envsolve.jsontext import dump

    deliver(dump(api.measure(what)), output)


@commands.command()
def update(
    into: Annotated[
        Path | None,
        typer.Option("--into", metavar="DIR", help="The index_data/ of a checkout, in place of your own catalogue."),
    ] = None,
) -> None:
    """Measure releases that the catalogue lacks.

    They are written into your own catalogue folder, which is laid over the bundled one: the next plan knows them.
    """
    written = api.update_facts(into)
    for path, added in written.items():
        remark(f"{path}: {', '.join(added)}")
    if not written:
        remark("nothing new is published")


@commands.command()
def show(
    package: Annotated[str, typer.Argument(help="torch, triton, torchvision, ...")],
    version: Annotated[str | None, typer.Argument(help="2.9.1; every version where left out.")] = None,
    variant: Annotated[str | None, typer.Argument(help="cu128; every variant where left out.")] = None,
) -> None:
    """Show what is known of a package's builds.

    With evidence and source, as JSON.
    """
    from envsolve.jsontext import dump

    deliver(dump(api.facts(package, version, variant)), None)
