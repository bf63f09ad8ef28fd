"""The operating system: collect_env's OS line, uname, os-release, platform strings, ldd, WSL and Jetson."""

from __future__ import annotations

import re
from collections.abc import Iterator

from envsolve.diagnose.report.observation import Fact, Field, Observation, Scalar, Trust
from envsolve.diagnose.report.readers._words import sentences
from envsolve.diagnose.report.text import Log
from envsolve.facts.catalogue import Catalogue
from envsolve.values import processor

_DISTRO = re.compile(
    r"\b(Ubuntu|Debian(?: GNU/Linux)?|CentOS(?: Linux| Stream)?(?: release)?|Rocky(?: Linux)?|AlmaLinux|RHEL"
    r"|Red Hat Enterprise Linux(?: Server)?(?: release)?|Fedora(?: Linux| release)?"
    r"|TencentOS(?: Linux| Server)?|Amazon Linux|Alpine(?: Linux)?|openSUSE(?: Leap)?|SLES|Arch Linux"
    r"|Manjaro(?: Linux)?|Linux Mint|Pop!_OS|DGX OS|openEuler|Oracle Linux(?: Server)?|Alibaba Cloud Linux)"
    r"(?:[ :v-]{0,3}(\d{1,2}(?:\.\d{1,2})?)(?:\.\d{1,5})?)?(?![\w-])",
    re.IGNORECASE,
)
_IDS = {
    "red hat enterprise linux": "rhel", "amazon linux": "amzn", "arch linux": "arch", "linux mint": "linuxmint",
    "pop!_os": "pop", "oracle linux": "ol", "alibaba cloud linux": "alinux", "opensuse leap": "opensuse-leap",
}  # fmt: skip
# "gcc (Debian 12.2.0-14)": the package's version. "(Ubuntu 11.4.0-1ubuntu1~22.04)": the release at the end.
_COMPILER_BUILD = re.compile(r"\((?:Ubuntu|Debian|SUSE|Linaro)[^)]{0,40}\d-(?:[^)~]{0,30}~(\d\d\.\d\d))?")
_ALWAYS_VERSIONED = frozenset({"alpine", "debian", "fedora", "rhel", "ubuntu", "centos", "rocky"})
_ARCH = re.compile(r"\b(x86[-_]64|aarch64|arm64|amd64)\b", re.IGNORECASE)
_ARCH_ALONE = re.compile(r"\s{0,4}(x86_64|aarch64|arm64)\s{0,4}")
_GLIBC = re.compile(
    r"\bglibc[- ]v?(2\.\d{1,2})\b|\(GNU libc\) (2\.\d{1,2})|^ldd \([^)]{1,60}\) (2\.\d{1,2})", re.IGNORECASE
)
_MUSL = re.compile(r"\bmusl(?: libc)?[- _](1\.\d)", re.IGNORECASE)
_WINDOWS = re.compile(
    r"\bWindows(?:[ -](?:1[01]|Server|11 Pro|10 Pro)|,|\.|:|$| \()|\b(?:on|under|using|running) Windows\b"
    r"|Microsoft Windows|platform win32",
    re.IGNORECASE,
)
_WSL = re.compile(r"\bWSL ?2?\b|microsoft-standard-WSL|/usr/lib/wsl/|/mnt/c/(?:Users|Windows)", re.IGNORECASE)
_NO_WSL = re.compile(r"\b(?:not|no|without|instead of)\b.{0,12}\bWSL", re.IGNORECASE)
_L4T = re.compile(
    r"(?:\b|_)L4T[ :_-]{0,3}(?:release )?[Rr]?(\d{2}(?:\.\d{1,2}){0,2})\b"
    r"|R(\d{2}) \(release\), REVISION: (\d{1,2}(?:\.\d)?)|\btegra-(\d{2}\.\d(?:\.\d)?)\b",
    re.IGNORECASE,
)
_ARM_MACHINES = re.compile(r"\b(?:DGX[- ]Spark|GB10|Jetson(?! works)|GH200|GB200|GB300|L4T)\b|-tegra\b")
_LINUX = re.compile(r"\bLinux\b|-linux-gnu\b|linux_x86_64|linux_aarch64")
# uv says for which platform it resolved.
_UV_HINT = re.compile(
    r"(?:[Yy]ou're on Linux \(|no wheels with a matching platform tag \(e\.g\., )"
    r"`manylinux_(\d)_(\d{1,2})_(x86_64|aarch64)`\)"
)
_KERNEL = re.compile(r"\bLinux[- ](?:\S{1,60} )?\d\.\d{1,2}\.\d{1,3}")


def read(log: Log, catalogue: Catalogue) -> Iterator[Observation]:
    """Distribution, OS, architecture, C library, WSL, Jetson."""
    for line in log.containing(*_SYSTEM_WORDS):
        yield from (Observation(fact, line, Trust.PRINTED) for fact in _printed(line.text))
    for line in log.containing(*_DISTRO_WORDS):
        for sentence in sentences(line.text):
            if match := _COMPILER_BUILD.search(sentence):
                yield Observation(Scalar(Field.OS, "linux"), line, Trust.IMPLIED)
                if match[1]:
                    yield Observation(Scalar(Field.DISTRO, f"ubuntu {match[1]}"), line, Trust.HINTED)
            elif match := _DISTRO.search(sentence):
                yield from (Observation(fact, line, Trust.STATED) for fact in _distro(match))
    for line in log.containing("x86_64", "x86-64", "aarch64", "arm64", "amd64"):
        if match := _ARCH_ALONE.fullmatch(line.text):
            yield Observation(Scalar(Field.ARCH, processor(match[1])), line, Trust.PRINTED)
        elif "://" not in line.text:
            archs = {processor(found.replace("-", "_")) for s in sentences(line.text) for found in _ARCH.findall(s)}
            yield from (Observation(Scalar(Field.ARCH, arch), line, Trust.STATED) for arch in archs if len(archs) == 1)
    for line in log.containing("glibc", "gnu libc", "ldd (", "musl"):
        for sentence in sentences(line.text):
            yield from (Observation(fact, line, Trust.PRINTED) for fact in _libc(sentence))
    for line in log.containing("windows", "win32"):
        if any(_WINDOWS.search(s) for s in sentences(line.text)):
            yield Observation(Scalar(Field.OS, "windows"), line, Trust.STATED)
    for line in log.containing("wsl", "/mnt/c/"):
        if _WSL.search(line.text) and not _NO_WSL.search(line.text):
            yield Observation(Scalar(Field.WSL, "true"), line, Trust.IMPLIED)
    for line in log.containing("manylinux_"):
        if match := _UV_HINT.search(line.text):
            yield Observation(Scalar(Field.LIBC, f"glibc {match[1]}.{match[2]}"), line, Trust.PRINTED)
            yield Observation(Scalar(Field.ARCH, match[3]), line, Trust.PRINTED)
    yield from _arm(log)
    yield from _linux(log)


def _linux(log: Log) -> Iterator[Observation]:
    for line in log.containing("linux"):
        if any(_LINUX.search(sentence) for sentence in sentences(line.text)):
            yield Observation(Scalar(Field.OS, "linux"), line, Trust.STATED)


def _arm(log: Log) -> Iterator[Observation]:
    """Machines that exist with one processor only: Jetson, Grace and Spark are aarch64."""
    for line in log.containing(
        "spark", "gb10", "jetson", "gh200", "gb200", "gb300", "l4t", "tegra", "(release), revision"
    ):
        if any(_ARM_MACHINES.search(sentence) for sentence in sentences(line.text)):
            yield Observation(Scalar(Field.ARCH, "aarch64"), line, Trust.STATED)
            yield Observation(Scalar(Field.OS, "linux"), line, Trust.STATED)
        if match := _L4T.search(line.text):
            release = match[1] or match[4] or f"{match[2]}.{match[3].removesuffix('.0')}"
            yield Observation(Scalar(Field.JETSON, release), line, Trust.PRINTED)


def _printed(text: str) -> Iterator[Fact]:
    """A line that a program or a form gives to the system."""
    label = text.lstrip(" *-_|").lower()
    if label.startswith(_LABELS):
        if match := _DISTRO.search(text):
            yield from _distro(match)
        if "windows" in label:
            yield Scalar(Field.OS, "windows")
        if "macos" in label or "darwin" in label:
            yield Scalar(Field.OS, "darwin")
        if match := _ARCH.search(text):
            yield Scalar(Field.ARCH, processor(match[1].replace("-", "_")))
    if _KERNEL.search(text) and ("GNU/Linux" in text or "-with-glibc" in text):
        yield Scalar(Field.OS, "linux")
        if found := _ARCH.search(text):
            yield Scalar(Field.ARCH, processor(found[1]))


def _distro(match: re.Match[str]) -> Iterator[Fact]:
    name = re.sub(r"\s(?:release|server|stream)$", "", match[1].lower())
    name = _IDS.get(name) or _IDS.get(name.removesuffix(" server")) or re.sub(r"(?: gnu/linux| linux)$", "", name)
    yield Scalar(Field.OS, "linux")
    if match[2] or name not in _ALWAYS_VERSIONED:
        yield Scalar(Field.DISTRO, f"{name} {match[2]}" if match[2] else name)


def _libc(text: str) -> Iterator[Fact]:
    if match := _GLIBC.search(text):
        yield Scalar(Field.LIBC, f"glibc {match[1] or match[2] or match[3]}")
    elif match := _MUSL.search(text):
        yield Scalar(Field.LIBC, f"musl {match[1]}")


_LABELS = ("os:", "os version", "os |", "os :", "os**", "pretty_name", "description:", "platform:", "operating system")
_SYSTEM_WORDS = (*_LABELS, "linux-", "linux ")
_DISTRO_WORDS = (
    "ubuntu", "debian", "centos", "rocky", "almalinux", "rhel", "red hat", "fedora", "tencentos", "amazon linux",
    "alpine", "opensuse", "sles", "arch linux", "manjaro", "mint", "pop!_os", "dgx os", "openeuler", "oracle linux",
    "alibaba",
)  # fmt: skip
