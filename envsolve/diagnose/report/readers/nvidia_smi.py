"""nvidia-smi: the table of every generation, ``-L``, ``-q``, and ``--query-gpu`` as CSV."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from envsolve.diagnose.report.observation import Card, Field, Observation, Scalar, Trust
from envsolve.diagnose.report.readers._gpus import clean
from envsolve.diagnose.report.text import Line, Log
from envsolve.facts.catalogue import Catalogue

_SMI = re.compile(r"NVIDIA-SMI[ version:]{1,12}(\d{3}(?:\.\d{1,3}){0,2})(?!\d)", re.IGNORECASE)
_DRIVER = re.compile(r"(?:Driver|KMD) Version\s{0,20}:\s{0,4}(\d{3}(?:\.\d{1,3}){0,2})(?!\d)", re.IGNORECASE)
_CUDA = re.compile(r"CUDA (?:UMD )?Version\s{0,30}[:=]\s{0,4}(\d{1,2}\.\d)\b", re.IGNORECASE)
_OF_THE_DRIVER = re.compile(r"\bdriver\b|nvidia-smi|\bKMD\b", re.IGNORECASE)
_PERSISTENCE = frozenset({"on", "off", "n/a", "wddm", "tcc", "mcdm", "disabled", "enabled"})
_MEMORY = re.compile(r"/\s{0,10}(\d{3,7})MiB")
_NUMBERED = re.compile(r"[^\w]{0,8}GPU\s?(\d{1,2})(?:-(\d{1,2})|((?:,\s?\d{1,2}){1,15}))?(?::\s{0,10}|\s{3,40})(\S.*)")
_CAPABILITY = re.compile(r"\(arch=(\d{1,2}\.\d)\)")
_LIST_HEADINGS = ("models and configuration", "gpu models")


def read(log: Log, catalogue: Catalogue) -> Iterator[Observation]:
    """Driver, its CUDA version and the cards."""
    for line in log.containing("nvidia-smi ", "driver version", "cuda version", "kmd version", "umd version"):
        if match := _DRIVER.search(line.text) or _SMI.search(line.text):
            yield Observation(Scalar(Field.DRIVER, match[1]), line, Trust.PRINTED)
        if (match := _CUDA.search(line.text)) and _is_of_the_driver(line, match, log):
            yield Observation(Scalar(Field.DRIVER_CUDA, match[1]), line, Trust.PRINTED)
    yield from _table(log)
    yield from _numbered(log)
    yield from _queried(log)
    yield from _comma_separated(log)
    for line in log.containing("no devices were found"):
        yield Observation(Card(None, count=0, listing=line.index), line, Trust.PRINTED)


def _is_of_the_driver(line: Line, match: re.Match[str], log: Log) -> bool:
    """Whether a "CUDA Version" is nvidia-smi's; people give the toolkit's or torch's under the same words."""
    near = (line, *log.before(line, 2), *log.after(line, 1))
    return match[0].startswith("CUDA ") and any(_OF_THE_DRIVER.search(other.text) for other in near)


def _table(log: Log) -> Iterator[Observation]:
    """Rows such as ``|   0  NVIDIA A100-SXM4-80GB   On  | 00000000:01:00.0 Off |   0 |``."""
    listing, last = 0, -1
    for line in log.containing("|"):
        if not line.text.lstrip().startswith("|"):
            continue
        words = line.text.split("|")[1].split()
        if len(words) < 2 or not words[0].isdigit() or len(words[0]) > 2 or not words[1][0].isalpha():
            continue
        if words[-1].lower() in _PERSISTENCE:
            words.pop()
        name = " ".join(words[1:])
        if not _is_name(name):
            continue
        if int(words[0]) <= last or last < 0:
            listing = line.index
        last = int(words[0])
        rows = [following.text for following in log.after(line, 2) if following.text.lstrip().startswith("|")]
        memory = next((match for row in rows[:1] if (match := _MEMORY.search(row))), None)
        mig = True if len(rows) == 2 and rows[1].rstrip(" |").endswith("Enabled") else None
        card = Card(
            clean(name),
            memory_mib=int(memory[1]) if memory else None,
            mig=mig,
            listing=listing,
            truncated=name.endswith(".."),
        )
        yield Observation(card, line, Trust.PRINTED)


def _is_name(name: str) -> bool:
    """Whether it is a card's name rather than a process (``N/A  N/A  1234  G  /usr/lib/Xorg``)."""
    first = name.split()[0].lower()
    return len(name) < 60 and first not in {"n/a", "g", "c", "c+g", "no"} and "/" not in name and "\\" not in name


def _numbered(log: Log) -> Iterator[Observation]:
    """``GPU 0: NVIDIA A100 (UUID: ...)`` of ``-L`` and collect_env, ``GPU 0-7: ...``, ``GPU 0,1   ... (arch=8.6)``."""
    listing, last, where = 0, -1, -10
    for line in log.containing(
        "gpu 0", "gpu 1", "gpu 2", "gpu 3", "gpu 4", "gpu 5", "gpu 6", "gpu 7", "gpu 8", "gpu 9"
    ):
        text = line.text
        for heading in _LIST_HEADINGS:
            text = text[at + len(heading) :] if (at := text.lower().find(heading)) >= 0 else text
        match = _NUMBERED.match(text)
        if match is None or not (name := clean(match[4])) or not name[0].isalpha():
            continue
        first, to, more = int(match[1]), match[2], match[3]
        count = int(to) - first + 1 if to else 1 + (more.count(",") if more else 0)
        if not 1 <= count <= 72 or len(name) > 60 or " is " in name or " has " in name:
            continue
        if first <= last or last < 0 or line.index - where > 20:
            listing = line.index
        last, where = first, line.index
        capability = _CAPABILITY.search(match[4])
        mig = True if any("MIG" in following.text[:12] for following in log.after(line, 1)) else None
        card = Card(name, capability[1] if capability else None, count, mig=mig, listing=listing)
        yield Observation(card, line, Trust.PRINTED)


def _queried(log: Log) -> Iterator[Observation]:
    """``Product Name : NVIDIA A100`` of ``nvidia-smi -q``."""
    listing: int | None = None
    for line in log.containing("product name"):
        label, _, value = line.text.partition(":")
        if label.strip().lower() == "product name" and value.strip():
            listing = line.index if listing is None else listing
            yield Observation(Card(clean(value), listing=listing), line, Trust.PRINTED)


def _comma_separated(log: Log) -> Iterator[Observation]:
    """Rows below a ``name, driver_version`` heading, or below the command that asked for these columns."""
    for line in log.containing("--query-gpu", "driver_version", "compute_cap", "name, "):
        columns = _columns(line)
        if len(columns) < 2 and "--query-gpu" not in line.text:
            continue
        for row in log.after(line, 20):
            cells = [cell.strip() for cell in row.text.split(",")]
            if len(cells) != len(columns) or _columns(row) == columns:
                if row.index == line.index + 1 and _columns(row):
                    continue  # the heading under the command
                break
            yield from _row(dict(zip(columns, cells, strict=True)), row, line.index)


def _columns(line: Line) -> Sequence[str]:
    text = line.text
    if match := re.search(r"--query-gpu=([a-z_.,]{3,200})", text):
        text = match[1]
    columns = [re.sub(r"\s?\[.{0,12}\]$", "", cell.strip()) for cell in text.split(",")]
    known = {"name", "gpu_name", "driver_version", "compute_cap", "index"}
    return columns if known & set(columns) and all(re.fullmatch(r"[a-z_.]{2,40}", c) for c in columns) else ()


def _row(cells: dict[str, str], line: Line, listing: int) -> Iterator[Observation]:
    if re.fullmatch(r"\d{3}(?:\.\d{1,3}){1,2}", version := cells.get("driver_version", "")):
        yield Observation(Scalar(Field.DRIVER, version), line, Trust.PRINTED)
    capability = cells.get("compute_cap", "")
    name = cells.get("name") or cells.get("gpu_name")
    if name or re.fullmatch(r"\d{1,2}\.\d", capability):
        card = Card(clean(name) if name else None, capability or None, listing=listing)
        yield Observation(card, line, Trust.PRINTED)
