"""GPUs and drivers: nvidia-smi in all its forms, messages of frameworks, and GPU names within text."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache

from envsolve.diagnose.report.observation import (
    Codes,
    Fact,
    Field,
    GpuGroup,
    Observation,
    Readers,
    Scalar,
    Trust,
    clean,
    shape,
)
from envsolve.diagnose.report.text import Line, Log
from envsolve.errors import UsageError
from envsolve.facts.catalogue import Catalogue
from envsolve.facts.gpu_names import find_gpu
from envsolve.facts.hardware import GpuModel

READERS = Readers()

# GPU names within text: where one begins and ends. The catalogue decides whether it is one.

GPU = shape("{{GPU_NAME}}")
# A letter and a number count without context only if nothing else in such a text has that name.
_SELF_EVIDENT = re.compile(
    r"(?:[ABHV]\d{3}S?|[AL]\d{2}[GSM]?|H20|P40|P100|K[248]0[cmX]?|M[46]0|G[BH]\d{2,3}|A[2456]\d{3})\b"
)
_BARE = re.compile(r"(?:GB|GH|[ABHLVPKMT])\d{1,4}[a-zA-Z]?\b", re.IGNORECASE)
_CONTEXT = re.compile(r"\b(?:GPUs?|cards?|nodes?|instances?|VRAM|Tesla|NVIDIA|colab)\b", re.IGNORECASE)
# "2x 5090": the bare number of a GeForce card after a count.
_COUNTED_NUMBER = re.compile(r"\b(\d{1,2})\s?x\s?([1-5]0[5-9]0(?:\s?Ti)?)\b(?![.,]?\d)", re.IGNORECASE)
# "my GPU is a 3090"; without a word such as GPU, only "my 1080", "the 5090" and "a 5070 Ti".
_BARE_NUMBER = shape("{{BARE_NUMBER}}")
_OWN = re.compile(r"my |(?:an?|the) [3-5]0|.*\d\s?(?:Ti|Super)", re.IGNORECASE)
_PLURAL = re.compile(r"(?<=\d)s\b")
_LIST_COUNT = re.compile(r"(\d{1,3})\s?[x\u00d7*]\s?(?=[A-Za-z])")
_LIST_AFTER = re.compile(r"(?:(?<=[\d\sBbi])\s?[x\u00d7*]\s?(\d{1,2})|\s\((\d{1,2})x?\))$")


def named(text: str, catalogue: Catalogue) -> Iterator[GpuGroup]:
    """Every GPU in a text that the catalogue knows."""
    text = _PLURAL.sub("", text)
    in_context = _CONTEXT.search(text) is not None
    for count, number in _COUNTED_NUMBER.findall(text):
        if model_of(number, catalogue):
            yield GpuGroup(number, count=int(count))
    for found in _BARE_NUMBER.finditer(text):
        if (in_context or _OWN.match(found[0])) and model_of(found[1], catalogue):
            yield GpuGroup(found[1])
    for match in GPU.finditer(text):
        name = match["name"].strip()
        bare = _BARE.match(name)
        if bare and not _SELF_EVIDENT.match(name) and not ((in_context or match["count"]) and bare[0].isupper()):
            continue
        words = name.split()
        beginnings = (" ".join(words[:end]) for end in range(len(words), 0, -1))
        if known := next((text for text in beginnings if model_of(text, catalogue)), None):
            yield GpuGroup(known, count=int(match["count"] or match["after"] or 1) or 1)


@lru_cache(maxsize=4096)
def model_of(name: str, catalogue: Catalogue) -> GpuModel | None:
    """The model with a name; None if the catalogue knows none, or several that run different code."""
    try:
        return find_gpu(name, catalogue)
    except UsageError:
        return None


def counted(value: str) -> Iterator[GpuGroup]:
    """The GPUs in the value of a label: ``NVIDIA A100``, ``3x RTX A6000``."""
    for part in value.split(",") if "," in value else value.split(" + "):
        text, count = part.strip(" *`|"), 1
        if match := _LIST_COUNT.match(text):
            text, count = text[match.end() :], int(match[1])
        elif match := _LIST_AFTER.search(text):
            text, count = text[: match.start()], int(match[1] or match[2])
        if text and GPU.match(text) and 0 < count < 100:
            yield GpuGroup(clean(text), count=count)


# nvidia-smi: the table of every generation, ``-L``, ``-q``, and ``--query-gpu`` as CSV.

_SMI = re.compile(r"NVIDIA-SMI[ version:]{1,12}(\d{3}(?:\.\d{1,3}){0,2})(?!\d)", re.IGNORECASE)
_DRIVER = re.compile(r"(?:Driver|KMD) Version\s{0,20}:\s{0,4}(\d{3}(?:\.\d{1,3}){0,2})(?!\d)", re.IGNORECASE)
_CUDA = re.compile(r"CUDA (?:UMD )?Version\s{0,30}[:=]\s{0,4}(\d{1,2}\.\d)\b", re.IGNORECASE)
_OF_THE_DRIVER = re.compile(r"\bdriver\b|nvidia-smi|\bKMD\b", re.IGNORECASE)
_PERSISTENCE = frozenset({"on", "off", "n/a", "wddm", "tcc", "mcdm", "disabled", "enabled"})
_MEMORY = re.compile(r"/\s{0,10}(\d{3,7})MiB")
_LISTED = re.compile(r"[^\w]{0,8}GPU\s?(\d{1,2})(?:-(\d{1,2})|((?:,\s?\d{1,2}){1,15}))?(?::\s{0,10}|\s{3,40})(\S.*)")
_CAPABILITY = re.compile(r"\(arch=(\d{1,2}\.\d)\)")
_LIST_HEADING = re.compile(r".*(?:models and configuration|gpu models)", re.IGNORECASE)
_VERSION_CELL = re.compile(r"\d{3}(?:\.\d{1,3}){1,2}")
_DEVICE = re.compile(
    r"Device (\d{1,2}): \"?([A-Z][\w .()/-]{2,60}?)\"?(?:, compute capability (\d{1,2}\.\d)|\s\([0-9a-f]{8}:|\s{0,3}$)"
)


class _Listing:
    """Tells which rows belong to one list, by the number of each GPU: a number that does not grow begins a new one."""

    def __init__(self) -> None:
        self._start, self._number, self._line = 0, -1, 0

    def of(self, number: int, line: Line, most_apart: int | None = None) -> int:
        """The list of a row; rows further apart than ``most_apart`` lines belong to different lists."""
        apart = most_apart is not None and line.index - self._line > most_apart
        if self._number < 0 or number <= self._number or apart:
            self._start = line.index
        self._number, self._line = number, line.index
        return self._start


@READERS.log
def _versions(log: Log, catalogue: Catalogue) -> Iterator[Observation]:
    """The driver, and the CUDA version that it supports."""
    for line in log.containing("nvidia-smi ", "driver version", "cuda version", "kmd version", "umd version"):
        # Under WSL the two versions differ: the driver's is the one of Windows.
        if match := _DRIVER.search(line.text) or _SMI.search(line.text):
            yield Observation(Scalar(Field.DRIVER, match[1]), line, Trust.PRINTED)
        # People write "CUDA Version" of the toolkit or of torch, too.
        if (match := _CUDA.search(line.text)) and match[0].startswith("CUDA "):
            near = (line, *log.before(line, 2), *log.after(line, 1))
            if any(_OF_THE_DRIVER.search(other.text) for other in near):
                yield Observation(Scalar(Field.DRIVER_CUDA, match[1]), line, Trust.PRINTED)


@READERS.log
def _table(log: Log, catalogue: Catalogue) -> Iterator[Observation]:
    """Rows such as ``|   0  NVIDIA A100-SXM4-80GB   On  | 00000000:01:00.0 Off |   0 |``."""
    listing = _Listing()
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
        rows = [following.text for following in log.after(line, 2) if following.text.lstrip().startswith("|")]
        memory = next((match for row in rows[:1] if (match := _MEMORY.search(row))), None)
        gpu = GpuGroup(
            clean(name),
            memory_mib=int(memory[1]) if memory else None,
            mig=True if len(rows) == 2 and rows[1].rstrip(" |").endswith("Enabled") else None,
            listing=listing.of(int(words[0]), line),
            truncated=name.endswith(".."),
        )
        yield Observation(gpu, line, Trust.PRINTED)


def _is_name(name: str) -> bool:
    """Whether it is a GPU's name rather than a process (``N/A  N/A  1234  G  /usr/lib/Xorg``)."""
    first = name.lower().partition(" ")[0]
    return len(name) < 60 and first not in {"", "n/a", "g", "c", "c+g", "no"} and not {"/", "\\"} & {*name}


@READERS.log
def _numbered(log: Log, catalogue: Catalogue) -> Iterator[Observation]:
    """``GPU 0: NVIDIA A100 (UUID: ...)`` of ``-L`` and collect_env, ``GPU 0-7: ...``, ``GPU 0,1   ... (arch=8.6)``."""
    listing = _Listing()
    for line in log.containing(*(f"gpu {digit}" for digit in range(10))):
        heading = _LIST_HEADING.match(line.text)
        match = _LISTED.match(line.text[heading.end() if heading else 0 :])
        if match is None or not (name := clean(match[4])) or not name[0].isalpha():
            continue
        first, to, more = int(match[1]), match[2], match[3]
        count = int(to) - first + 1 if to else 1 + (more.count(",") if more else 0)
        if not 1 <= count <= 72 or len(name) > 60 or " is " in name or " has " in name:
            continue
        cc = _CAPABILITY.search(match[4])
        mig = True if any("MIG" in following.text[:12] for following in log.after(line, 1)) else None
        gpu = GpuGroup(name, cc[1] if cc else None, count, mig=mig, listing=listing.of(first, line, most_apart=20))
        yield Observation(gpu, line, Trust.PRINTED)


@READERS.log
def _queried(log: Log, catalogue: Catalogue) -> Iterator[Observation]:
    """``Product Name : NVIDIA A100`` of ``nvidia-smi -q``."""
    listing: int | None = None
    for line in log.containing("product name"):
        label, _, value = line.text.partition(":")
        if label.strip().lower() == "product name" and value.strip():
            listing = line.index if listing is None else listing
            yield Observation(GpuGroup(clean(value), listing=listing), line, Trust.PRINTED)


@READERS.log
def _comma_separated(log: Log, catalogue: Catalogue) -> Iterator[Observation]:
    """Rows below a ``name, driver_version`` heading, or below the command that requests these columns."""
    for line in log.containing("--query-gpu", "driver_version", "compute_cap", "name, "):
        columns = _columns(line.text)
        if len(columns) < 2 and "--query-gpu" not in line.text:
            continue
        for row in log.after(line, 20):
            cells = [cell.strip() for cell in row.text.split(",")]
            if not _is_row(columns, cells) or _columns(row.text) == columns:
                if row.index == line.index + 1 and _columns(row.text):
                    continue  # the heading under the command
                break
            yield from (
                Observation(fact, row, Trust.PRINTED)
                for fact in _row(dict(zip(columns, cells, strict=True)), line.index)
            )


def _columns(text: str) -> Sequence[str]:
    if match := re.search(r"--query-gpu=([a-z_.,]{3,200})", text):
        text = match[1]
    columns = [re.sub(r"\s?\[.{0,12}\]$", "", cell.strip()) for cell in text.split(",")]
    known = {"name", "gpu_name", "driver_version", "compute_cap", "index"}
    return columns if known & set(columns) and all(re.fullmatch(r"[a-z_.]{2,40}", c) for c in columns) else ()


def _is_row(columns: Sequence[str], cells: Sequence[str]) -> bool:
    """Whether cells hold what the columns are of: a sentence below a table may have as many commas."""
    given = dict(zip(columns, cells, strict=False))
    cc, driver = given.get("compute_cap", "0.0"), given.get("driver_version", "000.0")
    return (
        len(cells) == len(columns)
        and re.fullmatch(r"\d{1,2}\.\d|\[?N/A\]?", cc) is not None
        and (_VERSION_CELL.fullmatch(driver) is not None or "N/A" in driver)
        and len(given.get("name", given.get("gpu_name", ""))) < 60
    )


def _row(cells: dict[str, str], listing: int) -> Iterator[Fact]:
    if _VERSION_CELL.fullmatch(version := cells.get("driver_version", "")):
        yield Scalar(Field.DRIVER, version)
    cc = cells.get("compute_cap", "")
    name = cells.get("name") or cells.get("gpu_name")
    known = cc if re.fullmatch(r"\d{1,2}\.\d", cc) else None
    if name or known:
        yield GpuGroup(clean(name) if name else None, known, listing=listing)


_SERIES = re.compile(r"\bRTX[ -]?([2-5]0)(?:x{1,2}\b|(?:00)?[ -]series\b)|\b([2-5]0)[ -]series\b", re.IGNORECASE)


@READERS.log
def _series(log: Log, catalogue: Catalogue) -> Iterator[Observation]:
    """``RTX 50 series``: all models of a series have the compute capability of its second one."""
    for line in log.containing("series", "rtx 50x", "rtx 40x", "rtx 30x", "rtx50x"):
        match = _SERIES.search(line.text)
        model = model_of(f"RTX {match[1] or match[2]}80", catalogue) if match else None
        if model:
            yield Observation(GpuGroup(None, model.compute_capability), line, Trust.HINTED)


@READERS.log
def _no_devices(log: Log, catalogue: Catalogue) -> Iterable[Observation]:
    for line in log.containing("no devices were found"):
        yield Observation(GpuGroup(None, count=0, listing=line.index), line, Trust.PRINTED)


@READERS.log
def _devices(log: Log, catalogue: Catalogue) -> Iterator[Observation]:
    """``Device 0: NVIDIA H100, compute capability 9.0``."""
    listing = _Listing()
    for line in log.containing("device "):
        if (match := _DEVICE.search(line.text)) and GPU.match(match[2]):
            gpu = GpuGroup(clean(match[2]), match[3], listing=listing.of(int(match[1]), line))
            yield Observation(gpu, line, Trust.PRINTED)


# Messages of the driver, of frameworks and of compilers.

_CODE = re.compile(r"(?:sm|compute)_\d{2,3}[af]?")
_CARRIES = re.compile(r"supports CUDA capabilities\s((?:(?:sm|compute)_\d{2,3}[af]?[\s,.]{0,4}){1,40})")
_WANTED = re.compile(r"\b(?:install|try|use|need|should|without|remove)\w{0,3}\b(?! in\b)", re.IGNORECASE)

READERS.patterns("gpus")


@READERS.log
def _compat(log: Log, catalogue: Catalogue) -> Iterator[Observation]:
    """A ``libcuda`` of the compat package."""
    for line in log.containing("/compat"):
        # A loader takes the first that its cache lists.
        listed = any("libcuda.so" in above.text for above in log.before(line, 1))
        if not listed and (match := re.search(r"cuda-(\d{1,2}\.\d)/compat\b", line.text)):
            yield Observation(Scalar(Field.COMPAT, match[1]), line, Trust.IMPLIED)
    for line in log.containing("cuda-compat"):
        if "installed in" not in line.text and _WANTED.search(line.text):
            continue
        if match := re.search(r"\bcuda-compat[- ](\d{1,2})[.-](\d)\b", line.text):
            yield Observation(Scalar(Field.COMPAT, f"{match[1]}.{match[2]}"), line, Trust.STATED)


# The GPU code that a build of torch contains.


@READERS.log
def _carried(log: Log, catalogue: Catalogue) -> Iterator[Observation]:
    """Lists of code, which torch's warning may wrap."""
    for line in log.containing("supports cuda capabilities"):
        wrapped = (after.text for after in log.after(line, 1) if after.text.lstrip().startswith(("sm_", "comp")))
        if match := _CARRIES.search(" ".join((line.text, *wrapped))):
            yield Observation(Codes(tuple(_CODE.findall(match[1]))), line, Trust.PRINTED)


@READERS.log
def _arch_list(log: Log, catalogue: Catalogue) -> Iterator[Observation]:
    """The list that ``torch.cuda.get_arch_list()`` returns, which a terminal may print over several lines."""
    for line in log.containing("['sm_", "[sm_", "arch_list"):
        text = line.text
        for after in log.after(line, 3):
            if "[" not in text or "]" in text.rpartition("[")[2] or not _CODE.search(after.text):
                break
            text = f"{text} {after.text}"
        codes = tuple(_CODE.findall(text))
        if len(codes) > 1:
            yield Observation(Codes(codes), line, Trust.PRINTED)


@READERS.text(Trust.PRINTED, "nvcc architecture flags")
def _flags(text: str) -> Iterator[Fact]:
    if codes := re.findall(r"code=((?:sm|compute)_\d{2,3}[af]?)", text):
        yield Codes(tuple(dict.fromkeys(codes)))


READERS.patterns("runtime")
