"""envsolve: plan, install and verify PyTorch, Triton and CUDA environments that run on a machine.

The names below are the public API (docs/api.md). Each is imported when it is first used, so that ``import envsolve``
and the start of the command line cost nothing.
"""

import sys
from time import time_ns as _now

# Not typing.TYPE_CHECKING: importing typing takes longer than all the rest of `envsolve --version`.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from envsolve.diagnose.report.packages import installed_versions as installed_versions
    from envsolve.environments import apply_fix as apply_fix
    from envsolve.environments import envs as envs
    from envsolve.environments import find_fix as find_fix
    from envsolve.environments import guard as guard
    from envsolve.environments import install as install
    from envsolve.environments import measure_gpus as measure_gpus
    from envsolve.environments import preview_install as preview_install
    from envsolve.environments import probe as probe
    from envsolve.environments import restore as restore
    from envsolve.environments import saved_report as saved_report
    from envsolve.environments import unguard as unguard
    from envsolve.environments import verify as verify
    from envsolve.environments import verify_compiles as verify_compiles
    from envsolve.errors import EnvsolveError as EnvsolveError
    from envsolve.errors import ImpossibleError as ImpossibleError
    from envsolve.errors import IndexUnavailableError as IndexUnavailableError
    from envsolve.errors import UsageError as UsageError
    from envsolve.errors import VerificationError as VerificationError
    from envsolve.fleets import FleetOptions as FleetOptions
    from envsolve.fleets import emit_fleet as emit_fleet
    from envsolve.fleets import install_fleet as install_fleet
    from envsolve.fleets import plan_fleet as plan_fleet
    from envsolve.fleets import probe_fleet as probe_fleet
    from envsolve.fleets import verify_fleet as verify_fleet
    from envsolve.formats import in_containers as in_containers
    from envsolve.formats import render as render
    from envsolve.inspection import bundle as bundle
    from envsolve.inspection import check_dockerfile as check_dockerfile
    from envsolve.inspection import check_facts as check_facts
    from envsolve.inspection import check_lock as check_lock
    from envsolve.inspection import describe as describe
    from envsolve.inspection import diagnose as diagnose
    from envsolve.inspection import facts as facts
    from envsolve.inspection import facts_summary as facts_summary
    from envsolve.inspection import measure as measure
    from envsolve.inspection import to_json as to_json
    from envsolve.inspection import update_facts as update_facts
    from envsolve.machine.known import describe_target as describe_target
    from envsolve.machine.known import detect as detect
    from envsolve.machine.known import load_machines as load_machines
    from envsolve.machine.model import Machine as Machine
    from envsolve.planning.builds import builds as builds
    from envsolve.planning.builds import judge as judge
    from envsolve.planning.plan import Plan as Plan
    from envsolve.planning.plans import plan as plan
    from envsolve.planning.plans import plan_groups as plan_groups
    from envsolve.planning.plans import what_if as what_if
    from envsolve.planning.request import Request as Request

#: When this process began to run envsolve, in nanoseconds since the epoch.
STARTED = _now()

__version__ = "0.1.0"

_MODULES = {
    "diagnose.report.packages": ("installed_versions",),
    "environments": (
        "apply_fix",
        "envs",
        "find_fix",
        "guard",
        "install",
        "measure_gpus",
        "preview_install",
        "probe",
        "restore",
        "saved_report",
        "unguard",
        "verify",
        "verify_compiles",
    ),
    "errors": ("EnvsolveError", "ImpossibleError", "IndexUnavailableError", "UsageError", "VerificationError"),
    "fleets": ("FleetOptions", "emit_fleet", "install_fleet", "plan_fleet", "probe_fleet", "verify_fleet"),
    "formats": ("in_containers", "render"),
    "inspection": (
        "bundle",
        "check_dockerfile",
        "check_facts",
        "check_lock",
        "describe",
        "diagnose",
        "facts",
        "facts_summary",
        "measure",
        "to_json",
        "update_facts",
    ),
    "machine.known": ("describe_target", "detect", "load_machines"),
    "machine.model": ("Machine",),
    "planning.builds": ("builds", "judge"),
    "planning.plan": ("Plan",),
    "planning.plans": ("plan", "plan_groups", "what_if"),
    "planning.request": ("Request",),
}
_PLACES = {name: module for module, names in _MODULES.items() for name in names}
__all__ = sorted(_PLACES)


def __getattr__(name: str) -> object:
    if name not in _PLACES:
        raise AttributeError(f"module 'envsolve' has no attribute {name!r}")
    from importlib import import_module

    found = getattr(import_module(f"envsolve.{_PLACES[name]}"), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


class _Package(type(sys)):  # type: ignore[misc]
    """A module in which the names of the API win over subpackages of the same name (``facts``, ``install``, ...).

    The import system binds a subpackage in its parent once it is loaded, and ``from envsolve import verify`` would give
    the package instead of the function from then on.
    """

    def __setattr__(self, name: str, value: object) -> None:
        if not (name in _PLACES and isinstance(value, type(sys))):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package
