"""``envsolve update``: make a lock again from the request that it remembers, with newer releases."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from msgspec import structs

from envsolve.cli.options import Form, option, path_argument
from envsolve.cli.output import deliver, deliver_as
from envsolve.cli.plan import Preferred, show_impossible
from envsolve.cli.remembered import recall, remember, same_but_for_dates
from envsolve.errors import ImpossibleError
from envsolve.planning import plans as planning
from envsolve.planning.groups import Plans
from envsolve.planning.request import Request
from envsolve.system.files import read_regular

if TYPE_CHECKING:
    from envsolve.machine.model import Machine


def command(
    lock: Annotated[Path | None, path_argument(metavar="LOCK", help="The lock file (default: pylock.toml).")] = None,
    upgrade_package: Annotated[
        list[str] | None,
        option("-P", "--upgrade-package", metavar="NAME", help="Upgrade only this package. Repeatable."),
    ] = None,
    outdated: Annotated[bool, option("--outdated", help="Only show what would change.")] = False,
    offline: Annotated[bool, option("--offline", help="Use no network, only the cache and the catalogue.")] = False,
    build_metadata: Annotated[
        bool,
        option("--build-metadata", help="Let pip build source packages to read their metadata. This runs their code."),
    ] = False,
    form: Form = None,
) -> None:
    """Upgrade a lock to the newest releases for its machines.

    The lock remembers its requirements and machines. A lock that nothing newer fits is not touched.
    """
    file = lock or Path("pylock.toml")
    was = recall(file)
    from envsolve.formats import render_plans
    from envsolve.locks.compare import Comparison, compare, read_said, table

    old = read_regular(file).decode("utf-8")
    preferred = Preferred(lock=file, upgrade=not upgrade_package, upgrade_package=upgrade_package)
    request = structs.replace(
        was.asked._replace(offline=offline, build_metadata=build_metadata).request(was.requirements),
        keep=preferred.versions(preferred.existing_lock(None, "pylock")),
    )
    given = was.machines.named_or_host()
    made = planning.plan_groups(request, given) if was.allow_groups else _single(request, given)
    for plan in made.unserved:
        show_impossible(plan)
    if made.unserved:
        raise typer.Exit(ImpossibleError.exit_code)
    text = render_plans(made, "pylock")
    new = remember(text, was.requirements, was.asked, was.machines, groups=was.allow_groups, place=file)
    found = Comparison(str(file), "newest", tuple(compare(read_said(old, file), read_said(new, file))))
    words = table(found.differences, ("locked", "newest")) if found.differences else f"{file} is up to date"
    deliver_as(form, found, lambda: words, None)
    if not outdated and not same_but_for_dates(old, new, file):
        deliver(new, file)


def _single(request: Request, machines: tuple[Machine, ...]) -> Plans:
    made = planning.plan(request, machines)
    return Plans(unserved=(made,)) if made.status == "impossible" else Plans(plans=(made,))
