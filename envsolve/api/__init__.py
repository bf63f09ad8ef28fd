"""The stages as functions of plain values.

The command line adds nothing to them but parsing and printing. Each imports what it needs when it is called, so that
importing this package costs nothing.
"""

from __future__ import annotations

from envsolve.api.catalogue import check_facts, facts, facts_summary, measure, update_facts
from envsolve.api.dockerfiles import check_dockerfile
from envsolve.api.environments import diagnose, envs, install, probe, saved_report, verify, verify_compiles
from envsolve.api.guards import forecast, guard, mend, remedy, restore, unguard
from envsolve.api.machines import describe_target, detect, in_containers, load_machines
from envsolve.api.plans import builds, plan, plan_groups, standing, what_if

__all__ = [
    "builds",
    "check_dockerfile",
    "check_facts",
    "describe_target",
    "detect",
    "diagnose",
    "envs",
    "facts",
    "facts_summary",
    "forecast",
    "guard",
    "in_containers",
    "install",
    "load_machines",
    "measure",
    "mend",
    "plan",
    "plan_groups",
    "probe",
    "remedy",
    "restore",
    "saved_report",
    "standing",
    "unguard",
    "update_facts",
    "verify",
    "verify_compiles",
    "what_if",
]
