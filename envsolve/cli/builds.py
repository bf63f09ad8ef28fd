"""``envsolve builds``: every published build of a package, its verdict, and the table of releases and variants."""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import envsolve
from envsolve.cli.completion import package_values
from envsolve.cli.options import Machines, OutputFile, PythonVersion, argument, option, python_version
from envsolve.cli.output import SETTINGS, STDOUT, deliver, deliver_as, form_of, print_styled
from envsolve.errors import UsageError

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from envsolve.planning.builds import BuildLine, BuildList

_SUFFIXES = {".md": "markdown", ".csv": "csv", ".html": "html", ".svg": "svg"}
#: Verdicts as cells of the table; and the styles of cells, the best verdict first.
_WORDS = {"native": "yes", "family": "yes", "ptx": "ptx", "unknown": "?", "none": "no"}
_STYLES = {"yes": "green", "ptx": "yellow", "?": "yellow", "no": "red"}
_LEGEND = {
    "yes": "runs",
    "ptx": "runs, but the driver must first compile its code (takes minutes at the first use)",
    "?": "unknown whether it runs",
    "no": "does not run",
    "!": "torch runs, but its Triton kernels (torch.compile) do not",
    "*": "the build that `envsolve plan` chooses",
}
# Where the output is not a terminal, a table is as wide as it needs: what reads it wraps lines, or cuts them.
_UNLIMITED = 1000
_PICTURE_WIDTH = 100

# What begins a link, an image, HTML, an entity, emphasis or another cell; and the colon of a URL, which is a link.
_MARKUP = re.compile(r"[\\`*_\[\]<>|&~]|:(?=//)")

#: A version, and of an extension the torch release that it was compiled for.
Release = tuple[str, str]
_Cells = tuple[str, ...]  # of a release, by variant


def command(
    package: Annotated[
        str, argument(metavar="PACKAGE", help="torch, 'torch>=2.9', torchvision, triton, ...", values=package_values)
    ],
    machines: Machines = Machines(),
    python: PythonVersion = None,
    every: Annotated[bool, option("--all", help="List every build, and why a build does not run.")] = False,
    fast_paths: Annotated[
        bool,
        option(
            "--fast-paths", help="Show which fast paths (flash attention, FP8, ...) the wheels contain for the GPU."
        ),
    ] = False,
    form: Annotated[
        Literal["text", "json", "markdown", "csv", "html", "svg"] | None,
        option("--format", help="Output format (default: from the suffix of -o FILE)."),
    ] = None,
    output: OutputFile = None,
) -> None:
    """Show which builds of a package run.

    Prints a table of the releases and variants of a package of the torch family that run on the machine. With --all
    or --verbose, prints a list of all builds with reasons.
    """
    from envsolve.planning.builds import describe, describe_fast_paths

    by_suffix = _SUFFIXES.get(output.suffix.lower()) if output is not None and output != STDOUT else None
    chosen = form or by_suffix or form_of(None, output)
    named = machines.named_or_host()
    found = envsolve.builds(package, named, python=python_version(python))
    if fast_paths:
        if chosen not in ("text", "json") or every:
            raise UsageError(
                "--fast-paths prints only text or JSON", hint="use --format text or --format json, and leave out --all"
            )
        deliver_as(chosen, found, lambda: describe_fast_paths(found), output)
        return
    listed = every or SETTINGS.verbose or all(line.verdict == "none" for line in found.builds)
    if chosen == "json" or (chosen == "text" and listed):
        deliver_as(chosen, found, lambda: describe(found, every=every, reasons=SETTINGS.verbose), output)
        return
    blind = any(one.gpus and not (one.driver and one.driver.version) for one in named)
    unknown = f"{_LEGEND['?']}; give the driver with --driver VERSION" if blind else _LEGEND["?"]
    matrix = Matrix.of(found, every=every or listed, unknown=unknown)
    if chosen == "text":
        _print_table(matrix, output)
    else:
        deliver({"markdown": _markdown, "csv": _csv, "html": _html, "svg": _svg}[chosen](matrix), output)


@dataclass(frozen=True, slots=True)
class Matrix:
    """The verdicts of a package as a table.

    Attributes:
        title: The package and the GPUs.
        header: Names of the columns: the release, the GPUs if their verdicts differ, and a variant each.
        rows: A row for adjacent releases with the same verdicts, newest first; a cell without a build is empty.
        legend: What the words and marks of the cells mean, those that occur.
    """

    title: str
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    legend: tuple[str, ...]

    @classmethod
    def of(cls, found: BuildList, *, every: bool, unknown: str = _LEGEND["?"]) -> Matrix:
        """Make the table from a list of builds.

        Args:
            found: The verdicts.
            every: Show releases and variants of which no build runs, too.
            unknown: What an unknown verdict means.
        """
        running = [line for line in found.builds if every or line.verdict != "none"]
        release_of = _releases(found.builds)
        releases = list(dict.fromkeys(map(release_of, running)))
        variants = sorted({line.variant for line in running}, key=_by_number)
        cells = _cells(found, release_of)
        gpus = dict.fromkeys(line.gpu for line in found.builds if line.gpu)
        # The verdicts of a release, one after the other, by those of a GPU; GPUs with the same ones share them.
        sharing: dict[tuple[_Cells, ...], list[str]] = {}
        for gpu in gpus or [""]:
            # A build without GPU code has one verdict for all GPUs.
            verdicts = tuple(
                tuple(cells.get((gpu, r, v)) or cells.get(("", r, v), "") for v in variants) for r in releases
            )
            sharing.setdefault(verdicts, []).append(gpu)
        several = len(sharing) > 1
        rows = tuple(_rows(releases, {", ".join(names): verdicts for verdicts, names in sharing.items()}))
        used = {word for row in rows for text in row[1 + several :] for word in re.findall(r"[a-z]+|[?!*]", text)}
        return cls(
            f"Builds of {found.builds[0].package}" + (f" on {', '.join(gpus)}" if gpus else ""),
            ("release", *(["GPU"] if several else []), *variants),
            rows,
            tuple(f"{word}: {meaning}" for word, meaning in {**_LEGEND, "?": unknown}.items() if word in used),
        )


def _cells(found: BuildList, release_of: Callable[[BuildLine], Release]) -> dict[tuple[str, Release, str], str]:
    """The verdict of each GPU, release and variant, marked if ``plan`` would choose it."""
    lines: dict[tuple[str, Release, str], list[BuildLine]] = {}
    for line in found.builds:
        lines.setdefault((line.gpu or "", release_of(line), line.variant), []).append(line)
    best = found.recommended and (found.recommended.version, found.recommended.variant)
    return {
        key: _cell(of_key) + "*" * any((line.version, line.variant) == best for line in of_key)
        for key, of_key in lines.items()
    }


def _rows(releases: Sequence[Release], verdicts: Mapping[str, Sequence[_Cells]]) -> Iterator[tuple[str, ...]]:
    """A row, or one for each GPU if there are several, for each run of releases with the same verdicts.

    Args:
        releases: Newest first.
        verdicts: The cells of each release, by the names of GPUs.
    """

    def alike(number: int) -> tuple[object, ...]:
        version, torch = releases[number]
        # Of an extension only builds of one version are folded: for torch releases in a row.
        return (version if torch else "", *(cells[number] for cells in verdicts.values()))

    for _, group in groupby(range(len(releases)), alike):
        numbers = list(group)
        label = _range([releases[number] for number in numbers])
        for gpus, cells in verdicts.items():
            yield (label, *([gpus] if len(verdicts) > 1 else []), *cells[numbers[0]])
            label = ""


def _releases(builds: Sequence[BuildLine]) -> Callable[[BuildLine], Release]:
    """Name a build by its version, and by its torch release too if the version is compiled for several."""
    torches: dict[str, set[str | None]] = {}
    for line in builds:
        torches.setdefault(line.version, set()).add(line.torch)
    several = any(len(found) > 1 for found in torches.values())
    return lambda line: (line.version, (line.torch or "").removeprefix("==").removesuffix(".*") if several else "")


def _cell(lines: Sequence[BuildLine]) -> str:
    """The verdict of a release and variant: the best of its builds on several indexes, or for several C++ ABIs."""
    words = {_WORDS[line.verdict] for line in lines}
    runs = [line for line in lines if line.verdict in ("native", "family", "ptx")]
    without_triton = bool(runs) and all(line.triton is False for line in runs)
    return next((word for word in _STYLES if word in words), "") + "!" * without_triton


def _by_number(variant: str) -> tuple[int, ...]:
    """Order variants by the toolkit version that their name holds: cpu, cu92, cu118, cu126."""
    return tuple(map(int, re.findall(r"\d+", variant)))


def _range(releases: Sequence[Release]) -> str:
    """``2.9.0 to 2.9.1``, or of one version of an extension ``2.8.3 (torch 2.4 to 2.8)``."""
    (last, last_torch), (first, first_torch) = releases[0], releases[-1]
    if last_torch:
        return f"{last} (torch {first_torch} to {last_torch})" if len(releases) > 1 else f"{last} (torch {last_torch})"
    return f"{first} to {last}" if len(releases) > 1 else last


def _print_table(matrix: Matrix, output: Path | None) -> None:
    notes = [*matrix.legend, "--all lists every build with its reasons"]
    if output is None and sys.stdout is not None and sys.stdout.isatty():
        shown = _narrowed(matrix, shutil.get_terminal_size().columns)
        if hidden := [name for name in matrix.header if name not in shown.header]:
            notes.append(
                f"the terminal is too narrow to show {', '.join(hidden)}; write the whole table to a file with -o FILE"
            )
        print_styled(matrix.title, "", _table(shown), "", *notes)
    else:
        console = _recorder(_UNLIMITED)
        console.print(_table(matrix))
        lines = (line.rstrip() for line in console.export_text(styles=False).splitlines())
        deliver("\n".join([matrix.title, "", *lines, "", *notes]), output)


def _narrowed(matrix: Matrix, width: int) -> Matrix:
    """The table without its oldest variants, and the rows that these leave empty, if it is wider than the terminal."""
    fixed = 1 + ("GPU" in matrix.header)
    widths = [2 + max(map(len, column)) for column in zip(matrix.header, *matrix.rows, strict=True)]
    drop = 0
    while sum(widths) - sum(widths[fixed : fixed + drop]) > width + 2 and fixed + drop < len(widths) - 1:
        drop += 1
    rows = [(*row[:fixed], *row[fixed + drop :]) for row in matrix.rows]
    rows = [row for row in rows if any(row[fixed:])]
    return replace(matrix, header=(*matrix.header[:fixed], *matrix.header[fixed + drop :]), rows=tuple(rows))


def _recorder(width: int) -> Console:
    import io

    from rich.console import Console

    return Console(file=io.StringIO(), record=True, width=width, force_terminal=False, color_system=None)


def _table(matrix: Matrix) -> Table:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in matrix.header:
        table.add_column(name, no_wrap=name != "GPU")
    for row in matrix.rows:
        table.add_row(*(Text(text, _STYLES.get(text.rstrip("*!"), "")) for text in row))
    return table


def _markdown(matrix: Matrix) -> str:
    lines = [matrix.header, *matrix.rows]
    rows = ["| " + " | ".join(map(_plain, row)) + " |" for row in lines]
    table = [rows[0], "| " + " | ".join(["---"] * len(matrix.header)) + " |", *rows[1:]]
    return "\n".join([f"**{_plain(matrix.title)}**", "", *table, "", *(f"- {_plain(text)}" for text in matrix.legend)])


def _plain(text: str) -> str:
    """Text escaped for Markdown: a GPU's name comes from a profile that anybody may have written."""
    return _MARKUP.sub(r"\\\g<0>", text)


def _csv(matrix: Matrix) -> str:
    import csv
    import io

    out = io.StringIO()
    rows = ([_cell_text(text) for text in row] for row in _filled(matrix.rows))
    csv.writer(out, lineterminator="\n").writerows([matrix.header, *rows])
    return out.getvalue()


def _cell_text(text: str) -> str:
    """A cell that no spreadsheet interprets as a formula."""
    return f"'{text}" if text.startswith(("=", "+", "-", "@")) else text


def _filled(rows: Sequence[tuple[str, ...]]) -> Iterator[tuple[str, ...]]:
    """Repeat the release of a row for the GPUs below it: a spreadsheet sorts rows."""
    release = ""
    for row in rows:
        release = row[0] or release
        yield (release, *row[1:])


def _picture(matrix: Matrix) -> Console:
    console = _recorder(_PICTURE_WIDTH)
    console.print(matrix.title, style="bold", markup=False, highlight=False)
    console.print(_table(matrix))
    for text in matrix.legend:
        console.print(text, markup=False, highlight=False)
    return console


def _html(matrix: Matrix) -> str:
    return _picture(matrix).export_html()


def _svg(matrix: Matrix) -> str:
    return _picture(matrix).export_svg(title=f"envsolve builds: {matrix.title}", code_format=svg_format())


def svg_format() -> str:
    """rich's template of a terminal's picture without its fonts: an SVG that is shown as an image may load nothing."""
    from rich._export_format import CONSOLE_SVG_FORMAT

    without_fonts = re.sub(r"@font-face \{\{.*?\}\}\s*", "", CONSOLE_SVG_FORMAT, flags=re.DOTALL)
    return without_fonts.replace("Fira Code, monospace", "Fira Code, Menlo, Consolas, DejaVu Sans Mono, monospace")
