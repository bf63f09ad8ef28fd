"""The operating system side of a machine: OS, architecture, C library, distribution, and what it runs inside."""

from __future__ import annotations

import os
import platform
import re
import shlex
from collections.abc import Callable, Mapping
from pathlib import Path

from envsolve.files import is_there
from envsolve.machine.architecture import architecture
from envsolve.machine.model import Platform
from envsolve.processes import ask

_MUSL_VERSION = re.compile(r"^Version (\d+\.\d+)", re.MULTILINE)
_TEGRA_RELEASE = re.compile(r"R(\d+)\s*\(release\),\s*REVISION:\s*(\d+(?:\.\d+)*)")
_CGROUP_RUNTIMES = (("kubepods", "kubernetes"), ("libpod", "podman"), ("docker", "docker"), ("lxc", "lxc"))

Finding = tuple[str | None, str]
"""A value and where it was read."""


def read_platform(root: Path = Path("/"), environ: Mapping[str, str] = os.environ) -> tuple[Platform, dict[str, str]]:
    """Read the platform of this host, with the source of each field."""
    system = platform.system().lower()
    findings: dict[str, Finding] = {
        "os": (system or None, "uname"),
        "arch": (architecture(platform.machine()) or None, "uname"),
    }
    wsl = False
    if system == "linux":
        wsl = is_wsl(root)
        findings["libc"] = libc(root, environ)
        findings["distro"] = distro(root)
        findings["container"] = container(root, environ)
        findings["jetson"] = jetson(root)
    value = Platform(**{name: text for name, (text, _) in findings.items()}, wsl=wsl)
    sources = {f"platform.{name}": source for name, (_, source) in findings.items()}
    return value, {**sources, "platform.wsl": "/proc/sys/kernel/osrelease" if system == "linux" else "uname"}


def _confstr(name: str) -> str | None:
    return os.confstr(name) if hasattr(os, "confstr") else None


def libc(root: Path, environ: Mapping[str, str], confstr: Callable[[str], str | None] = _confstr) -> Finding:
    """``glibc 2.35`` or ``musl 1.2``: glibc answers ``confstr``; musl's loader prints its version when run."""
    try:
        text = confstr("CS_GNU_LIBC_VERSION")
    except (ValueError, OSError):
        text = None
    if text:
        return text, "confstr(CS_GNU_LIBC_VERSION)"
    for loader in sorted((root / "lib").glob("ld-musl-*.so.1")):
        # The loader prints its version as part of a usage error and fails: a shell turns that into text.
        printed = ask(["/bin/sh", "-c", '"$0" 2>&1; :', str(loader)], environ)
        if match := _MUSL_VERSION.search(printed or ""):
            return f"musl {match[1]}", f"/lib/{loader.name}"
    return None, "neither glibc nor a musl loader answers"


def distro(root: Path) -> Finding:
    """``ubuntu 22.04``: ID and, where there is one, VERSION_ID of os-release."""
    for name in ("etc/os-release", "usr/lib/os-release"):
        try:
            text = (root / name).read_text(errors="replace")
            words = shlex.split(text, comments=True)
        except (OSError, ValueError):
            continue
        fields = dict(word.split("=", 1) for word in words if "=" in word)
        if "ID" in fields:
            return " ".join(filter(None, (fields["ID"], fields.get("VERSION_ID")))), f"/{name}"
    return None, "no os-release file"


def is_wsl(root: Path) -> bool:
    """Whether the kernel is that of Windows Subsystem for Linux (also seen from containers on it)."""
    return "microsoft" in _read(root / "proc/sys/kernel/osrelease").lower()


def container(root: Path, environ: Mapping[str, str]) -> Finding:
    """The container runtime around this process, most specific sign first; None where there is no sign of any."""
    if "KUBERNETES_SERVICE_HOST" in environ:
        return "kubernetes", "KUBERNETES_SERVICE_HOST"
    for variable in ("APPTAINER_CONTAINER", "SINGULARITY_CONTAINER"):
        if variable in environ:
            return "apptainer", variable
    for file, runtime in (
        ("var/run/secrets/kubernetes.io", "kubernetes"),
        (".singularity.d", "apptainer"),
        ("run/.containerenv", "podman"),
        (".dockerenv", "docker"),
    ):
        if is_there(root / file):
            return runtime, f"/{file}"
    for text, source in (
        (environ.get("container", ""), "container (environment)"),
        (_read(root / "run/systemd/container"), "/run/systemd/container"),
    ):
        if text:
            return text.strip().lower(), source
    groups = _read(root / "proc/1/cgroup")
    for word, runtime in _CGROUP_RUNTIMES:
        if word in groups:
            return runtime, "/proc/1/cgroup"
    return None, "no sign of a container"


def jetson(root: Path) -> Finding:
    """L4T release of a Jetson, ``36.3`` or ``36.4.3``."""
    source = "/etc/nv_tegra_release"
    if match := _TEGRA_RELEASE.search(_read(root / source.lstrip("/"))):
        return f"{match[1]}.{match[2].removesuffix('.0')}", source
    return None, f"no {source}"


def _read(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""
