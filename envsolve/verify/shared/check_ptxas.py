"""Which ptxas ran: read off the processes that were started, not guessed from versions and variables."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

VARIABLES = ("TRITON_PTXAS_PATH", "TRITON_PTXAS_BLACKWELL_PATH")


def assemblers():
    """A list that grows with the program of every ptxas that this process starts from now on."""
    found = []
    sys.addaudithook(lambda event, arguments: found.extend(assembler(event, arguments)))
    return found


def assembler(event, arguments):
    """Yield the program of a started ``... --gpu-name=...`` process; Triton 3.0 starts it through a shell."""
    if event != "subprocess.Popen":
        return
    words = [os.fspath(word) for word in arguments[1]]
    if len(words) == 3 and words[1] == "-c":
        words = shlex.split(words[2])
    if any(word.startswith("--gpu-name=") for word in words):
        yield words[0]


def seen(found):
    """The last ptxas that ran, for a plan to be held against; nothing where none did."""
    return {"ptxas": found[-1], "ptxas_cuda": release(found[-1])} if found else {}


def release(program):
    """The release of a ptxas, ``12.9.86``; what it prints where that holds none."""
    text = subprocess.run([program, "--version"], stdout=subprocess.PIPE, check=True).stdout.decode()
    match = re.search(r"\bV(\d+\.\d+\.\d+)", text)
    return match.group(1) if match else text.strip()


def version_of(program):
    """Say which ptxas it is: ``ptxas-blackwell 12.9.86``."""
    return "{} {}".format(Path(program).name, release(program))
