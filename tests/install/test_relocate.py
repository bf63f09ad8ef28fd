from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from envsolve.install import relocate
from envsolve.install import relocate as variables


@pytest.mark.parametrize(
    "name", ["plain", "with space", "quote's", 'double"quote', "ünïcode", "$dollar", "long" * 50, "' '''"]
)
def test_a_script_head_runs_under_any_path(tmp_path: Path, name: str) -> None:
    folder = tmp_path / name
    folder.mkdir()
    python = folder / "python"
    python.symlink_to(sys.executable)
    script = tmp_path / "script"
    script.write_bytes(relocate.script_head(python) + b"import sys\nprint(sys.argv[1:], ascii(sys.orig_argv[0]))\n")
    script.chmod(0o755)
    ran = subprocess.run([script, "a b"], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == f"['a b'] {str(python)!a}"


@pytest.mark.parametrize(("length", "plain"), [(124, True), (125, False)])
def test_the_shortest_form_is_used_where_every_kernel_takes_it(length: int, plain: bool) -> None:
    head = relocate.script_head(Path("/" + "p" * (length - 1)))
    assert head.startswith(b"#!/pp") == plain
    assert not plain or len(head) == length + 3


def test_the_variables_line_survives_any_value(tmp_path: Path) -> None:
    values = {"A": "plain", "B": "'\"\\ \n ü \t", "C": ""}
    environment = {name: value for name, value in os.environ.items() if name not in values} | {"A": "mine"}
    line = variables.line(values, "lib/python3.12/site-packages")
    script = line + f"print([os.environ[name] for name in {sorted(values)}])"
    assert line.count("\n") == 1
    ran = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == str(["mine", values["B"], ""])


def test_files_outside_that_a_record_names_are_left_alone(tmp_path: Path) -> None:
    environment, outside = tmp_path / "env", tmp_path / "outside.txt"
    info = environment / "lib" / f"python3.{sys.version_info.minor}" / "site-packages" / "evil-1.0.dist-info"
    info.mkdir(parents=True)
    (environment / "bin").mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: evil\nVersion: 1.0\n")
    own = info.parent / "own.txt"
    (info.parent / "link").symlink_to(tmp_path)
    rows = ["own.txt", "../../../../outside.txt", str(outside), "link/outside.txt", "evil-1.0.dist-info/RECORD"]
    (info / "RECORD").write_text("".join(f"{row},,\n" for row in rows))
    for path in (own, outside):
        path.write_text(f"in {environment}\n")
    relocate.relocate(environment, tmp_path / "final", ["evil"])
    assert own.read_text() == f"in {tmp_path / 'final'}\n"
    assert outside.read_text() == f"in {environment}\n"
