"""The HTML page in a real browser without a window: Chromium that is there, else Debian's, unpacked into a folder."""

from __future__ import annotations

import os
import shutil
import subprocess
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from envsolve.verify.page import page
from tests.verify.pages import REPORT
from tests.verify.test_page import Page

pytestmark = pytest.mark.network
PACKAGE = "chromium-headless-shell"
PROGRAMS = (PACKAGE, "chromium", "chromium-browser", "google-chrome")
LIMIT = 120


@dataclass(frozen=True)
class Browser:
    program: str
    environment: Mapping[str, str]

    def run(self, source: Path, *options: str) -> str:
        own = ["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--window-size=1000,1400"]
        command = [self.program, *own, f"--user-data-dir={source.parent / 'profile'}", *options, source.as_uri()]
        done = subprocess.run(command, env=self.environment, capture_output=True, text=True, timeout=LIMIT)
        assert done.returncode == 0, done.stderr[-2000:]
        return done.stdout


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Browser:
    found = next(filter(None, map(shutil.which, PROGRAMS)), None)
    if found:
        return Browser(found, os.environ)
    if not shutil.which("apt-get"):
        pytest.skip(f"there is no {' and no '.join(PROGRAMS)}, and no apt-get to fetch one with")
    return unpacked(tmp_path_factory.mktemp("browser"))


def unpacked(folder: Path) -> Browser:
    """Debian's package and those of its dependencies that are not installed, in a folder; nothing is installed."""
    plan = ["apt-get", "install", "--simulate", "--no-install-recommends", PACKAGE]
    simulated = subprocess.run(plan, capture_output=True, text=True, timeout=LIMIT)
    assert simulated.returncode == 0, f"{simulated.stderr}\nrun apt-get update first"
    names = [line.split()[1] for line in simulated.stdout.splitlines() if line.startswith("Inst ")]
    subprocess.run(["apt-get", "download", *names], cwd=folder, check=True, capture_output=True, timeout=LIMIT)
    for package in folder.glob("*.deb"):
        subprocess.run(["dpkg-deb", "--extract", package, folder / "root"], check=True, timeout=LIMIT)
        package.unlink()
    libraries = {str(path.parent) for path in (folder / "root" / "usr" / "lib").rglob("lib*.so*")}
    program = folder / "root" / "usr" / "lib" / "chromium" / PACKAGE
    return Browser(str(program), {**os.environ, "LD_LIBRARY_PATH": ":".join(sorted(libraries))})


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "report.html"
    path.write_text(page(REPORT), encoding="utf-8")
    return path


def test_a_browser_shows_every_check_and_every_raw_error(browser: Browser, source: Path) -> None:
    document = browser.run(source, "--dump-dom")
    shown = Page(document).text
    for check in REPORT.checks:
        assert check.name in shown
        assert check.detail in shown
    assert "<title>envsolve verify: failed</title>" in document  # The script in an error's text has not run.


def test_it_can_be_printed(browser: Browser, source: Path) -> None:
    printed = source.with_suffix(".pdf")
    browser.run(source, f"--print-to-pdf={printed}")
    assert printed.read_bytes().startswith(b"%PDF-")


@pytest.mark.parametrize(
    ("setting", "paper"), [(0, (0x15, 0x18, 0x1C)), (1, (0xFF, 0xFF, 0xFF))], ids=["dark", "light"]
)
def test_it_is_dark_where_the_reader_prefers_that(
    browser: Browser, source: Path, setting: int, paper: tuple[int, int, int]
) -> None:
    picture = source.with_suffix(".png")
    browser.run(source, f"--blink-settings=preferredColorScheme={setting}", f"--screenshot={picture}")
    assert first_pixel(picture.read_bytes()) == paper


def first_pixel(png: bytes) -> tuple[int, ...]:
    """Red, green and blue of the upper left corner, which every filter of PNG leaves as it is."""
    position, packed = 8, b""
    while position < len(png):
        length, kind = int.from_bytes(png[position : position + 4], "big"), png[position + 4 : position + 8]
        packed += png[position + 8 : position + 8 + length] if kind == b"IDAT" else b""
        position += length + 12
    return tuple(zlib.decompressobj().decompress(packed, 16)[1:4])
