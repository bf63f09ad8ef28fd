"""Record the terminal pictures of the documentation by running the commands: python docs/pictures.py

Needs the package index, and rich (``pip install '.[docs]'``). Writes one SVG for each entry of PICTURES.
"""

from __future__ import annotations

import io
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from rich.console import Console
from rich.text import Text

from envsolve.cli.builds import svg_format

HERE = Path(__file__).parent / "pictures"
COLUMNS = 104

#: Files that the commands read.
FILES = {
    "error.txt": "torch 2.14.1+cu130, NVIDIA GeForce GTX 1080, driver 580.95.05\n"
    "RuntimeError: CUDA error: no kernel image is available for execution on the device\n"
}

#: The name of each picture and the commands in it.
PICTURES: dict[str, list[str]] = {
    "plan": ["envsolve plan torch torchvision --target 'RTX 4090, driver 580.95, linux-x86_64, glibc 2.35'"],
    "diagnose": ["cat error.txt", "envsolve diagnose error.txt"],
}


def record(name: str, commands: list[str]) -> Path:
    """Run the commands in a shell and save what a terminal would show; returns the file."""
    environ = {**os.environ, "COLUMNS": str(COLUMNS), "FORCE_COLOR": "1"}
    environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{environ['PATH']}"
    console = Console(record=True, width=COLUMNS, file=io.StringIO(), force_terminal=True)
    with tempfile.TemporaryDirectory() as directory:
        for file, text in FILES.items():
            Path(directory, file).write_text(text, encoding="utf-8")
        for command in commands:
            console.print(Text(f"$ {command}", style="bold"))
            run = subprocess.run(
                ["bash", "-c", command], cwd=directory, env=environ, capture_output=True, text=True, check=True
            )
            console.print(Text.from_ansi(run.stdout))
    picture = HERE / f"{name}.svg"
    picture.write_text(console.export_svg(title=name, code_format=svg_format(), unique_id=name), encoding="utf-8")
    return picture


if __name__ == "__main__":
    for name, commands in PICTURES.items():
        print(record(name, commands))
