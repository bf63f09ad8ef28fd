"""The HTML page: every check and every raw error is in it, escaped, and nothing is loaded or run."""

from __future__ import annotations

from html.parser import HTMLParser

import pytest

from envsolve.machine.model import Driver, Gpu, Machine
from envsolve.verify.page import page
from envsolve.verify.report import Change, Check, Report
from tests.verify.pages import HOSTILE, REPORT

VOID = {"meta", "br", "hr", "link", "img", "input"}


class Page(HTMLParser):
    """The text of a page, its elements and attributes; elements that are not closed in their order are an error."""

    def __init__(self, source: str) -> None:
        super().__init__(convert_charrefs=True)
        self.text, self.tags, self.attributes = "", set[str](), list[tuple[str, str | None]]()
        self._open: list[str] = []
        self.feed(source)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes += attrs
        if tag not in VOID:
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def test_every_check_and_every_raw_error_is_there() -> None:
    shown = Page(page(REPORT)).text
    for check in REPORT.checks:
        assert check.name in shown
        assert check.detail in shown
        assert (check.gpu or "") in shown
        assert (check.cause or "") in shown
        assert (check.command or "") in shown
    for words in (
        "envsolve verify: failed",
        "2 passed, 2 failed, 1 skipped in 31.0 s, 26.7 s beyond importing torch once",
        "envsolve verify --python /e/bin/python --only triton-kernel",
        "5.0 s (4.3 s importing torch)",
        "machine code (sm_90)",
        "NVIDIA H100",
        "580.95",
        "version torch: 2.10.0 -> 2.11.0",
        "2026-11-28T05:00:00+00:00",
        "held against plan.json",
    ):
        assert words in shown


@pytest.mark.parametrize("text", HOSTILE)
def test_nothing_of_a_report_becomes_markup(text: str) -> None:
    check = Check(text, text, "fail", 1.0, text, text, text, {text: text}, {text: text})
    machine = Machine(driver=Driver(text), gpus=(Gpu(text, "9.0"),), environment={"CUDA_HOME": text})
    changes = (Change("version", text, text, text, text),)
    hostile = Report(
        python=text, checks=(check,), made=text, machine=machine, versions={text: text}, plan=text, changes=changes
    )
    plain = Page(page(Report(checks=(Check("a", "b", "fail", 1.0, "c", "d", "e", {"f": "g"}),))))
    shown = Page(page(hostile))
    assert text in shown.text
    assert shown.tags <= plain.tags | {"details", "summary"}
    assert {name for name, _ in shown.attributes} <= {name for name, _ in plain.attributes}


def test_nothing_is_loaded_from_elsewhere_and_no_script_runs() -> None:
    source = page(REPORT)
    shown = Page(source)
    assert not shown.tags & {"script", "link", "img", "iframe", "object", "embed", "base", "form"}
    assert not {"src", "href", "style", "srcset", "action"} & {name for name, _ in shown.attributes}
    assert "url(" not in source
    assert "@import" not in source
    assert "default-src 'none'" in source


def test_a_page_for_paper_and_for_the_dark() -> None:
    source = page(REPORT)
    assert "@media print" in source
    assert "@media (prefers-color-scheme: dark)" in source


def test_a_report_of_nothing() -> None:
    assert "nothing could be checked" in Page(page(Report())).text
