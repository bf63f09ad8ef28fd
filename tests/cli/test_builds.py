"""The table of ``envsolve builds``: what its cells say is what the list says, in every format."""

from __future__ import annotations

import csv
import html
import json
import re
from pathlib import Path
from xml.etree import ElementTree

import pytest
from markdown_it import MarkdownIt

from envsolve.cli.main import run

TURING = "T4, driver 550.54, python 3.11, linux-x86_64, glibc 2.35"


def out(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    with pytest.raises(SystemExit) as left:
        run(["builds", *words])
    said = capsys.readouterr()
    assert left.value.code == 0, said.err
    return said.out


def rows(text: str) -> dict[str, dict[str, str]]:
    """A CSV table: release to variant to cell."""
    return {row.pop("release"): row for row in csv.DictReader(text.splitlines())}


def test_cells_are_the_verdicts_of_the_list(capsys: pytest.CaptureFixture[str]) -> None:
    table = rows(out(capsys, "torch==2.6.0", "--target", TURING, "--format", "csv"))
    listed = json.loads(out(capsys, "torch==2.6.0", "--target", TURING, "--format", "json"))
    runs = {one["variant"] for one in listed["builds"] if one["verdict"] != "none"}
    assert runs == {variant for variant, cell in table["2.6.0"].items() if cell.startswith("yes")} != set()
    taken = listed["recommended"]
    assert [variant for variant, cell in table["2.6.0"].items() if cell.endswith("*")] == [taken["variant"]]


def test_releases_with_the_same_verdicts_share_a_row(capsys: pytest.CaptureFixture[str]) -> None:
    text = out(capsys, "torch>=2.4,<2.7", "--target", TURING)
    assert "\n2.4.0 to 2.5.1 " in text
    assert "\n2.6.0 " in text
    assert "--all lists every build" in text
    assert "2.7" not in text


def test_gpus_have_their_own_rows_if_they_differ(capsys: pytest.CaptureFixture[str]) -> None:
    both = out(
        capsys, "torch==2.7.1", "--target", "RTX 5090 + RTX 4090, driver 580.65, linux-x86_64", "--format", "csv"
    )
    cells = {row["GPU"]: row["cu118"] for row in csv.DictReader(both.splitlines())}
    assert {gpu.split("RTX ")[1][:4]: cell for gpu, cell in cells.items()} == {"5090": "no", "4090": "yes"}
    alike = out(
        capsys, "torch==2.7.1", "--target", "RTX 4080 + RTX 4090, driver 580.65, linux-x86_64", "--format", "csv"
    )
    assert alike.startswith("release,cu")


NAMES = ("<img src=x>", "=1+1", "@SUM(1)", "a|b", "**b** ![i](http://h/i.png)", "&lt;x&gt;", "https://h.example/x")


@pytest.mark.parametrize("name", NAMES)
def test_a_name_of_a_gpu_is_no_markup_and_no_formula(
    name: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    gpus = [{"name": name, "compute_capability": "9.0"}, {"name": "old", "compute_capability": "5.0"}]
    machine = {"schema": "envsolve.machine/1", "driver": {"version": "580.65.06"}, "gpus": gpus}
    (tmp_path / "m.json").write_text(json.dumps(machine))
    asked = ("torch==2.9.0", "--machine", str(tmp_path / "m.json"), "--all", "--format")
    markdown = MarkdownIt("commonmark").enable("table").render(out(capsys, *asked, "markdown"))
    assert set(re.findall(r"<(\w+)", markdown)) <= {
        "p",
        "table",
        "thead",
        "tbody",
        "tr",
        "th",
        "td",
        "strong",
        "ul",
        "li",
    }
    assert f"{html.escape(name)} (cc 9.0)" in markdown
    cells = [cell for row in csv.reader(out(capsys, *asked, "csv").splitlines()) for cell in row]
    assert any(name in cell for cell in cells)
    assert not [cell for cell in cells if cell.startswith(("=", "+", "-", "@"))]
    shown = ElementTree.fromstring(out(capsys, *asked, "svg"))
    assert not list(shown.iter("img"))
    assert "<img" not in out(capsys, *asked, "html")


@pytest.mark.parametrize(("suffix", "start"), [("md", "**Builds of torch"), ("html", "<!DOCTYPE"), ("svg", "<svg")])
def test_the_suffix_chooses_the_format(
    suffix: str, start: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out(capsys, "torch==2.6.0", "--target", TURING, "-o", str(tmp_path / f"table.{suffix}"))
    assert (tmp_path / f"table.{suffix}").read_text().startswith(start)


@pytest.mark.parametrize(
    ("package", "said"),
    [
        ("torch[x]", "more than a name and versions"),
        ("torch<0.1", "no build of torch<0.1"),
        ("torch>>", "is not a package"),
    ],
)
def test_what_is_no_question(package: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        run(["builds", package, "--target", TURING])
    assert left.value.code == 2
    assert said in capsys.readouterr().err


def test_the_fast_paths_of_the_gpu(capsys: pytest.CaptureFixture[str]) -> None:
    target = ("--target", "RTX 5090 + H100, driver 580.95, linux-x86_64")
    sections = out(capsys, "torch==2.11.0", *target, "--fast-paths").split("torch 2.11.0 cu130 on ")
    blackwell, hopper = ({line[4:30].strip(): line[31:] for line in one.splitlines()[1:10]} for one in sections[1:])
    assert blackwell["fp8 with scales by row"] == "yes, sm_120a"
    assert blackwell["grouped bf16"] == "no: it has sm_90a sm_100a sm_103a"
    assert (hopper["grouped bf16"], hopper["fp8 with scales by row"]) == ("yes, sm_90a", "yes, sm_90a")
    listed = json.loads(out(capsys, "torch==2.11.0", *target, "--fast-paths", "--format", "json"))
    codes = {path["path"]: path["code"] for path in listed["builds"][0]["fast_paths"]}
    assert codes["grouped MXFP8"] is None


def test_fast_paths_of_builds_that_were_not_measured(capsys: pytest.CaptureFixture[str]) -> None:
    assert out(capsys, "torchvision", "--target", TURING, "--fast-paths").startswith(
        "none of the builds of torchvision"
    )


@pytest.mark.parametrize("option", ["--all", "--format=csv"])
def test_fast_paths_are_no_table(option: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        run(["builds", "torch", "--target", TURING, "--fast-paths", option])
    assert left.value.code == 2
    assert "--fast-paths prints only text or JSON" in capsys.readouterr().err


@pytest.mark.parametrize("width", [30, 60, 80, 200])
def test_a_narrow_terminal_drops_the_oldest_variants(
    width: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setenv("NO_COLOR", "1")
    lines = re.sub("\x1b\\[[0-9;]*m", "", out(capsys, "torch", "--target", TURING)).splitlines()
    (header,) = (line for line in lines if line.startswith("release"))
    assert len(header) <= width
    assert header.split()[-1] == "cu129", "the newest stays"
    assert ("too narrow" in "\n".join(lines)) == (width < 74)


@pytest.mark.parametrize(
    ("asked", "gpu", "verdict"),
    [
        ("faiss-gpu-cu12==1.14.1.post1", "A100", "native"),
        ("faiss-gpu-cu12==1.14.1.post1", "RTX 5090", "none"),  # machine code for cc 7.0 and 8.0, and no PTX
        ("spconv-cu126==2.3.8", "RTX 5090", "ptx"),
        ("spconv-cu118==2.3.8", "RTX 5090", "none"),  # CUDA 11.8 does not know the GPU
    ],
)
def test_packages_for_one_cuda_are_judged_by_the_code_in_their_wheels(
    capsys: pytest.CaptureFixture[str], asked: str, gpu: str, verdict: str
) -> None:
    target = f"{gpu}, driver 580.95.05, python 3.11, linux-x86_64, glibc 2.35"
    listed = json.loads(out(capsys, asked, "--target", target, "--format", "json"))
    assert {build["verdict"] for build in listed["builds"]} == {verdict}
