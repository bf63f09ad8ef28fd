"""The Jobs of Kubernetes: valid, one pod on each node, and a report where ``fleet verify`` reads it."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from envsolve.cli.main import run as command_line
from envsolve.fleet.emit.kubernetes import render
from envsolve.fleet.plan import read_plan
from envsolve.fleet.probe import read_inventory
from envsolve.fleet.verify import Choice, fold_reports
from envsolve.system.files import dump
from envsolve.verify.report import Check, Report

REPORT = dump(Report(checks=(Check("driver", None, "pass", 0.1, ""),)))


def jobs(fleet: Path, python: str = "/usr/bin/python3") -> list[dict[str, Any]]:
    text = render(fleet, read_plan(fleet), python)
    documents = "".join(line for line in text.splitlines(keepends=True) if not line.startswith("#")).split("---\n")
    return [json.loads(document) for document in documents]


def test_each_plan_is_a_job_with_a_pod_on_each_of_its_nodes(fleet: Path) -> None:
    old, new = jobs(fleet)
    assert (old["spec"]["completions"], new["spec"]["completions"]) == (2, 1)
    for job, nodes in ((old, ["v1", "v2"]), (new, ["h1"])):
        spec = job["spec"]["template"]["spec"]
        affinity = spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
        assert affinity["nodeSelectorTerms"][0]["matchExpressions"][0]["values"] == nodes
        (apart,) = spec["affinity"]["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
        assert apart["labelSelector"]["matchLabels"] == job["spec"]["template"]["metadata"]["labels"]
    assert old["metadata"]["labels"]["plan"] != new["metadata"]["labels"]["plan"]


def test_the_jobs_are_valid(fleet: Path) -> None:
    validate = pytest.importorskip("kubernetes_validate")
    for job in jobs(fleet):
        validate.validate(job, "1.37", strict=True)
        job["spec"]["template"]["spec"]["container"] = []
        with pytest.raises(validate.ValidationError):
            validate.validate(job, "1.37", strict=True)


def test_the_pods_leave_reports_that_are_judged(fleet: Path, tmp_path: Path) -> None:
    python = tmp_path / "python"
    python.write_text(f"#!/bin/sh\n[ $ENVSOLVE_NODE = v1 ] || {{ echo broken; exit 1; }}\ncat <<'END'\n{REPORT}END\n")
    python.chmod(0o755)
    codes = {}
    for job, node in zip([*jobs(fleet, str(python))[:1] * 2], ["v1", "v2"], strict=True):
        (container,) = job["spec"]["template"]["spec"]["containers"]
        done = subprocess.run(container["command"], env={"ENVSOLVE_NODE": node, "PATH": "/usr/bin:/bin"}, check=False)
        codes[node] = done.returncode
    assert codes == {"v1": 0, "v2": 1}
    folded = fold_reports(fleet, read_plan(fleet), read_inventory(fleet), Choice())
    assert {node: one.status for node, one in folded.nodes.items()} == {"v1": "pass", "v2": "missing", "h1": "missing"}
    assert folded.nodes["h1"].why == ("no report",)
    assert not list(fleet.rglob("*.part"))


def test_a_command_either_reaches_nodes_or_reads_reports(fleet: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for words, code in ((["--reports"], 4), ([], 2), (["--reports", "--ssh", "n1"], 2)):
        with pytest.raises(SystemExit) as left:
            command_line(["fleet", "verify", "--fleet", str(fleet), *words])
        assert left.value.code == code
    assert "--reports" in capsys.readouterr().err
