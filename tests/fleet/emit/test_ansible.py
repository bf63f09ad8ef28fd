"""The playbook, also by Ansible itself if it is installed."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from envsolve.fleet.emit.ansible import render
from envsolve.fleet.plan import read_plan

PLAYBOOK = os.environ.get("ANSIBLE_PLAYBOOK") or shutil.which("ansible-playbook")


def test_each_plan_is_a_play_for_its_nodes(fleet: Path) -> None:
    text = render(fleet, read_plan(fleet), "")
    plays = json.loads("".join(line for line in text.splitlines(keepends=True) if not line.startswith("#")))
    assert [play["hosts"] for play in plays] == [["v1", "v2"], ["h1"]]
    install = plays[0]["tasks"][2]["ansible.builtin.command"]
    assert install["argv"][1:3] == ["install", "{{ directory }}/pylock.cu126-sm70-0123456789ab.toml"]


@pytest.mark.skipif(PLAYBOOK is None, reason="ansible-playbook is not installed")
def test_ansible_runs_it_once_on_each_node(fleet: Path, tmp_path: Path) -> None:
    (tmp_path / "play.yml").write_text(render(fleet, read_plan(fleet), ""))
    (tmp_path / "envsolve").write_text(
        '#!/bin/sh\necho "$@" >> "$0.log"\n[ "$1" = verify ] || { mkdir -p "$4/bin" && touch "$4/bin/python"; }\n'
    )
    (tmp_path / "envsolve").chmod(0o755)
    (tmp_path / "hosts").write_text(f"v1 ansible_connection=local ansible_python_interpreter={sys.executable}\n")
    words = [str(PLAYBOOK), "-i", str(tmp_path / "hosts"), str(tmp_path / "play.yml")]
    words += ["-e", f"directory={tmp_path}/made", "-e", f"envsolve={tmp_path}/envsolve"]
    environ = {**os.environ, "ANSIBLE_HOME": str(tmp_path / "home"), "LC_ALL": "C.UTF-8"}
    subprocess.run([*words, "--syntax-check"], check=True, capture_output=True, env=environ)
    for changed in (3, 0):
        done = subprocess.run(words, capture_output=True, text=True, env=environ)
        assert done.returncode == 0, done.stdout + done.stderr
        assert f"changed={changed} " in done.stdout
    told = [line.split()[0] for line in (tmp_path / "envsolve.log").read_text().splitlines()]
    assert told == ["install", "verify", "verify"]
