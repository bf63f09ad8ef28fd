"""A Dockerfile of a plan with torch, and with CUDA code to compile, built for real by the BuildKit of Docker.

No registry is asked. What stands in for NVIDIA's image of the toolkit is made of NVIDIA's own packages on the default
index, those of the plan; and the line ``# syntax=``, which fetches a newer frontend, is left out.
"""

from __future__ import annotations

import http.server
import re
import shutil
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

import envsolve
from tests.network.roots import ENVSOLVE, NEEDS_ROOT, PIVOT, TARGET, python, ran, with_builder
from tests.network.test_source_builds import tiny_kernels

pytestmark = [
    pytest.mark.network,
    NEEDS_ROOT,
    pytest.mark.skipif(
        shutil.disk_usage(tempfile.gettempdir()).free < 25 * 2**30, reason="torch and its layers take 20 GB"
    ),
]

DAEMON = (
    "exec dockerd --iptables=false --ip6tables=false --bridge=none -H unix:///run/docker.sock >/run/dockerd.log 2>&1"
)
BASE = "python:3.11-slim-bookworm"
TOOLKIT = """\
FROM {base} AS wheels
RUN apt-get update && apt-get install -y --no-install-recommends gcc libc6-dev
COPY *.whl /
RUN python -m venv /v && /v/bin/pip install /*.whl && /v/bin/pip install --no-deps {packages}
RUN /v/bin/python -c 'from pathlib import Path; from envsolve.install.sources import complete; \\
    complete(Path("/v/lib/python3.11/site-packages/nvidia/cu13"), "gcc")'
FROM scratch
COPY --from=wheels /v/lib/python3.11/site-packages/nvidia/cu13 {folder}
"""


@pytest.fixture
def docker(tmp_path: Path) -> Iterator[Path]:
    """A root file system with a Docker daemon that runs in it, and the image of Python."""
    root = with_builder("trixie", "docker.io,docker-cli,docker-buildx", tmp_path / "root")
    command = ["unshare", "--mount", "--propagation", "private", "bash", "-c", PIVOT, str(root), DAEMON]
    daemon = subprocess.Popen(command)
    try:
        for _ in range(120):
            if (root / "run/docker.sock").exists() or daemon.poll() is not None:
                break
            time.sleep(0.5)
        assert daemon.poll() is None, (root / "run/dockerd.log").read_text()[-2000:]
        base = python(tmp_path / "base", ",python3-dev")
        ran("tar", "-C", base, "-cf", root / "work/base.tar", ".")
        in_docker(root, "import", "/work/base.tar", BASE)
        (root / "work/base.tar").unlink()
        yield root
    finally:
        daemon.terminate()
        daemon.wait(60)
        shutil.rmtree(root / "var/lib/docker", ignore_errors=True)


def in_docker(root: Path, *words: str) -> str:
    settings = ["DOCKER_HOST=unix:///run/docker.sock", "HOME=/root", "PATH=/usr/sbin:/usr/bin:/sbin:/bin"]
    return ran("chroot", root, "/usr/bin/env", "-i", "-C", "/work", *settings, "docker", *words)


def built(root: Path, name: str, *options: str) -> str:
    return in_docker(root, "build", "--network", "host", "--progress", "plain", "-t", name, *options, ".")


@pytest.fixture
def extension(tmp_path: Path) -> Iterator[str]:
    """The address of a source distribution that has one kernel, with its hash."""
    folder = tmp_path / "served"
    folder.mkdir()
    archive, digest = tiny_kernels(folder)
    handler = partial(http.server.SimpleHTTPRequestHandler, directory=str(folder))
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_address[1]}/{archive.name}#sha256={digest}"
    server.shutdown()


def test_torch_and_what_is_compiled_against_it(docker: Path, extension: str, tmp_path: Path) -> None:
    work = docker / "work"
    asked = ("torch>=2.14", f"tiny-kernels @ {extension}", "--cuda", "cu132", *TARGET)
    ran(*ENVSOLVE, "plan", *asked, "--for", "docker", "-o", tmp_path / "Dockerfile")
    text = (tmp_path / "Dockerfile").read_text()
    assert text.startswith("# syntax=docker/dockerfile:1\n")
    (work / "Dockerfile").write_text(text.partition("\n")[2])

    packages = sorted(set(re.findall(r"^nvidia-(?:cublas|cuda|cu\w+|nvjitlink|nvvm|nvtx)[\w.-]*==\S+", text, re.M)))
    [toolkit], [folder] = re.findall(r"^ARG CUDA=(\S+)", text, re.M), re.findall(r"COPY --from=cuda (\S+)", text)
    (work / "Toolkit").write_text(TOOLKIT.format(base=BASE, packages=" ".join(packages), folder=folder))
    built(docker, toolkit, "-f", "Toolkit")

    wheel = next(work.glob("envsolve-*.whl")).name
    said = built(docker, "made", "--build-arg", f"ENVSOLVE=./{wheel}")
    assert "cubins for sm_90" in said, "the kernels were compiled as it was built"
    imported = "import torch, tiny_kernels; print(tiny_kernels.__file__)"
    shown = in_docker(docker, "run", "--rm", "--network", "none", "made", "python", "-c", imported)
    [library] = re.findall(r"^/opt/env/\S+\.so$", shown, re.M)
    in_docker(docker, "create", "--name", "held", "made", "true")
    in_docker(docker, "cp", f"held:{library}", "/work/tiny.so")
    [found] = envsolve.measure(str(work / "tiny.so")).libraries
    assert found.code == ("sm_90",), "for the machine that is meant, where none was there"
    later = "! pip install torch==2.9.0 && ! command -v nvcc && env | grep NVIDIA_REQUIRE_CUDA"
    asked_for = in_docker(docker, "run", "--rm", "--network", "host", "made", "sh", "-c", later)
    assert "driver>=580.65.6 cuda>=13.0" in asked_for
