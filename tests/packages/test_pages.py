"""Project pages, JSON and HTML: what is read, what is left out, what is refused."""

from __future__ import annotations

import html
import json
from collections import Counter
from typing import Any
from urllib.parse import quote

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from packaging.utils import canonicalize_name

from envsolve.packages.model import IndexFile, version_in
from envsolve.packages.pages import HTML_TYPE, JSON_TYPE, PageError, read_page

INDEX = "https://index.test/simple/"
URL = "https://index.test/simple/demo/"
WHEEL = "demo-1.0-py3-none-any.whl"


def from_json(*files: Any, **page: Any) -> tuple[IndexFile, ...]:
    document = {"meta": {"api-version": "1.1"}, "name": "demo", "files": files} | page
    return tuple(read_page(json.dumps(document).encode(), JSON_TYPE, URL, INDEX, "demo"))


def from_html(text: str, url: str = URL, content_type: str = "text/html; charset=utf-8") -> tuple[IndexFile, ...]:
    return tuple(read_page(text.encode(), content_type, url, INDEX, "demo"))


def json_file(**changes: Any) -> dict[str, Any]:
    return {"filename": WHEEL, "url": f"https://files.test/{WHEEL}", "hashes": {"sha256": "ab"}} | changes


def test_a_full_json_entry() -> None:
    [file] = from_json(
        json_file(
            **{"requires-python": ">=3.8", "size": 12, "upload-time": "2024-01-02T03:04:05Z", "yanked": "broken"},
            **{"core-metadata": {"sha256": "cd"}, "gpg-sig": True},
        )
    )
    assert file == IndexFile(
        filename=WHEEL,
        url=f"https://files.test/{WHEEL}",
        index=INDEX,
        hashes={"sha256": "ab"},
        requires_python=">=3.8",
        yanked="broken",
        upload_time="2024-01-02T03:04:05Z",
        size=12,
        metadata_hashes={"sha256": "cd"},
    )


def test_text_that_is_no_digest_is_no_hash() -> None:
    """Formats write hashes into lines of Dockerfiles and requirements files."""
    [file] = from_json(json_file(hashes={"sha256": "ab\nEOF\nRUN touch /x", "sha512": "cd", "md5 --x": "ef"}))
    assert file.hashes == {"sha512": "cd"}


@pytest.mark.parametrize(("said", "yanked"), [(False, None), (True, ""), ("", ""), ("CVE", "CVE")])
def test_yanked_in_json(said: object, yanked: str | None) -> None:
    assert from_json(json_file(yanked=said))[0].yanked == yanked


@pytest.mark.parametrize(
    ("said", "hashes"),
    [
        ({}, None),
        ({"core-metadata": False}, None),
        ({"core-metadata": True}, {}),
        ({"dist-info-metadata": {"sha256": "1"}}, {"sha256": "1"}),
        ({"core-metadata": {"sha256": "1"}, "dist-info-metadata": False}, {"sha256": "1"}),
        ({"core-metadata": False, "dist-info-metadata": {"sha256": "1"}}, None),
    ],
)
def test_offered_metadata_in_json(said: dict[str, Any], hashes: dict[str, str] | None) -> None:
    assert from_json(json_file(**said))[0].metadata_hashes == hashes


@pytest.mark.parametrize(
    "bad",
    [
        42,
        {"filename": WHEEL},
        json_file(url=7),
        json_file(hashes="none"),
        json_file(size="big"),
        json_file(filename="../demo-1.0-py3-none-any.whl"),
        json_file(filename="demo-1.0.exe"),
        json_file(url="file:///etc/demo-1.0-py3-none-any.whl"),
        json_file(url="javascript:alert(1)//.whl"),
        json_file(url="//[half/demo.whl"),
        json_file(url=f"https://files.test/x\nRUN touch /x\n/{WHEEL}"),
        json_file(url=f"https://files.test/x --index-url http://127.0.0.1/{WHEEL}"),
        json_file(filename="demo-1.0\n-py3-none-any.whl"),
    ],
)
def test_a_bad_json_entry_is_left_out_and_the_others_stay(bad: object) -> None:
    files = from_json(json_file(), bad, json_file(filename="demo-2.0.tar.gz", url="../../f/demo-2.0.tar.gz"))
    assert [(f.filename, f.url) for f in files] == [
        (WHEEL, f"https://files.test/{WHEEL}"),
        ("demo-2.0.tar.gz", "https://index.test/f/demo-2.0.tar.gz"),
    ]


def test_an_html_page_as_pytorch_org_writes_it() -> None:
    page = """<!DOCTYPE html>
<html>
  <body>
    <h1>Links for torch</h1>
    <a href="/whl/cu126/torch-2.8.0%2Bcu126-cp312-cp312-manylinux_2_28_x86_64.whl#sha256=aa"
       data-dist-info-metadata="sha256=bb" data-core-metadata="sha256=bb">torch-2.8.0+cu126-cp312</a><br/>
    <a href="https://other.test/nvidia_nccl_cu12-2.27.3-py3-none-any.whl#sha256=cc">nvidia</a><br/>
  </body>
</html><!--TIMESTAMP 1758000000-->"""
    torch, nccl = from_html(page, url="https://download.test/whl/cu126/torch/")
    assert torch.filename == "torch-2.8.0+cu126-cp312-cp312-manylinux_2_28_x86_64.whl"
    assert torch.url.startswith("https://download.test/whl/cu126/torch-2.8.0%2Bcu126-cp312")
    assert (torch.hashes, torch.metadata_hashes, torch.yanked) == ({"sha256": "aa"}, {"sha256": "bb"}, None)
    assert nccl.url == "https://other.test/nvidia_nccl_cu12-2.27.3-py3-none-any.whl"
    assert (nccl.hashes, nccl.metadata_hashes) == ({"sha256": "cc"}, None)


@pytest.mark.parametrize(
    ("attributes", "field", "value"),
    [
        ('data-requires-python="&gt;=3.8,&lt;4"', "requires_python", ">=3.8,<4"),
        ('data-requires-python="&gt;=3.6.*"', "requires_python", ">=3.6"),
        ('data-requires-python="three"', "requires_python", None),
        ("data-yanked", "yanked", ""),
        ('data-yanked=""', "yanked", ""),
        ('data-yanked="bad &amp; old"', "yanked", "bad & old"),
        ('data-dist-info-metadata="true"', "metadata_hashes", {}),
        ('data-dist-info-metadata="false"', "metadata_hashes", None),
        ('data-core-metadata="sha256=ee"', "metadata_hashes", {"sha256": "ee"}),
        ('data-core-metadata="sha256=ee" data-dist-info-metadata="false"', "metadata_hashes", {"sha256": "ee"}),
    ],
)
def test_attributes_of_an_html_link(attributes: str, field: str, value: object) -> None:
    [file] = from_html(f'<a href="{WHEEL}" {attributes}>x</a>')
    assert getattr(file, field) == value


@pytest.mark.parametrize(
    ("base", "href", "url"),
    [
        ("", WHEEL, f"{URL}{WHEEL}"),
        ("", f"../../f/{WHEEL}", f"https://index.test/f/{WHEEL}"),
        ('<base href="/other/">', WHEEL, f"https://index.test/other/{WHEEL}"),
        ('<base href="https://cdn.test/d/">', WHEEL, f"https://cdn.test/d/{WHEEL}"),
        ("", f"//cdn.test/{WHEEL}#md5=00&amp;egg=demo", f"https://cdn.test/{WHEEL}"),
        ("", f"{WHEEL}?token=1", f"{URL}{WHEEL}?token=1"),
    ],
)
def test_where_html_links_lead(base: str, href: str, url: str) -> None:
    [file] = from_html(f'<head>{base}</head><a href="{href}">x</a>')
    assert (file.url, file.filename) == (url, WHEEL)


def test_html_links_that_are_no_files_are_left_out() -> None:
    links = ["", "#top", "../", "mailto:a@b", "demo-1.0.egg", "file:///x/demo-1.0.zip", "http://[bad/demo-1.0.zip"]
    page = "".join(f'<a href="{link}">x</a>' for link in links) + f'<a>x</a><a href="{WHEEL}">x</a>'
    assert [f.filename for f in from_html(page)] == [WHEEL]


def test_a_local_page_may_point_at_local_files() -> None:
    [file] = from_html(f'<a href="../../{WHEEL}">x</a>', url="file:///srv/simple/demo/")
    assert file.url == f"file:///srv/{WHEEL}"


@pytest.mark.parametrize(
    ("body", "content_type", "reason"),
    [
        (b'{"meta": {"api-version": "2.0"}, "files": []}', JSON_TYPE, "version 2.0"),
        (b'<meta name="pypi:repository-version" content="2.1">', HTML_TYPE, "version 2.1"),
        (b"{", JSON_TYPE, "JSON cannot be read"),
        (b"[" * 100_000, JSON_TYPE, "JSON cannot be read"),
        (b'{"name": "demo"}', JSON_TYPE, "JSON cannot be read"),
        (b"\xff\xfe", JSON_TYPE, "JSON cannot be read"),
        (b"PK", "application/zip", "application/zip"),
        (b"", "", "without a content type"),
        (b"<form action=login><input name=user></form>", "text/html", "captive portal"),
    ],
)
def test_documents_that_are_no_page(body: bytes, content_type: str, reason: str) -> None:
    with pytest.raises(PageError, match=reason):
        read_page(body, content_type, URL, INDEX, "demo")


def test_an_empty_page_is_a_page() -> None:
    assert from_html("<html><body><h1>Links for demo</h1></body></html>") == ()
    assert from_json() == ()


_FILENAMES = st.from_regex(r"[a-z][a-z0-9_]{0,8}-[0-9]{1,3}(\.[0-9]{1,3}){0,2}(\+[a-z0-9.]{1,6})?", fullmatch=True).map(
    lambda stem: f"{stem}-py3-none-any.whl"
)


@given(
    st.lists(
        st.tuples(_FILENAMES, st.none() | st.text("0123456789abcdef", min_size=1), st.none() | st.text(max_size=20)),
        max_size=8,
    )
)
def test_json_and_html_say_the_same(entries: list[tuple[str, str | None, str | None]]) -> None:
    as_json = from_json(
        *(
            json_file(
                filename=name,
                url=f"/f/{quote(name)}",
                hashes={"sha256": digest} if digest else {},
                yanked=False if yanked is None else yanked,
            )
            for name, digest, yanked in entries
        )
    )
    links = [
        f'<a href="/f/{quote(name)}{f"#sha256={digest}" if digest else ""}"'
        + ("" if yanked is None else f' data-yanked="{html.escape(yanked)}"')
        + f">{name}</a>"
        for name, digest, yanked in entries
    ]
    as_html = from_html("<br>".join(links))
    # A browser's parser replaces control characters and newlines in attributes; the file itself must be the same.
    assert [msgspec.structs.replace(f, yanked=None) for f in as_html] == [
        msgspec.structs.replace(f, yanked=None) for f in as_json
    ]
    assert Counter((f.filename, f.yanked is None) for f in as_html) == Counter(
        (name, yanked is None) for name, _, yanked in entries
    )


@given(st.binary() | st.text().map(str.encode), st.sampled_from([JSON_TYPE, HTML_TYPE, "text/html"]))
def test_any_bytes_are_a_page_or_an_error(body: bytes, content_type: str) -> None:
    try:
        files = read_page(body, content_type, URL, INDEX, "demo")
    except PageError:
        return
    assert all(f.url.startswith(("http://", "https://")) for f in files)


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(),
        lambda c: st.lists(c) | st.dictionaries(st.sampled_from(["filename", "url", "hashes", "yanked", "other"]), c),
    )
)
def test_any_json_entry_is_a_file_or_left_out(entry: object) -> None:
    assert all(isinstance(f, IndexFile) for f in from_json(entry))


@pytest.mark.parametrize(
    "page",
    [
        "<title>Sign in</title><h1>Sign in</h1><a href='/login'>Continue</a>",
        "<h1>Welcome, guest</h1>",
        "<p>This service is down for maintenance.</p>",
        "<title>Company portal</title><a href='/style/?v=1.0'>Home</a><a href='https://sso.example/auth?next=x.html'>in</a>",
        "<style>body {}</style><p>Not here</p>",
    ],
)
def test_a_web_page_is_no_empty_index_page(page: str) -> None:
    with pytest.raises(PageError, match="web page"):
        from_html(page)


@pytest.mark.parametrize(
    "page",
    [
        "",
        "<!DOCTYPE html>\n<html><head><style>a {}</style></head><body>\n</body></html>",
        "<title>Links for demo</title><h1>Links for demo</h1>",
        "<html><head><title>Simple Index</title></head><body></body></html>",
        "<h1>Index of /simple/demo/</h1><a href='../'>../</a>",
        "<meta name='pypi:repository-version' content='1.0'><p>nothing yet</p>",
        "<h1>demo</h1><a href='demo-1.0-py2.7.egg#md5=00'>demo-1.0-py2.7.egg</a>",
        "<h1>demo</h1><a href='demo-1.0.win32.exe'>demo</a>",
    ],
)
def test_an_index_page_may_list_nothing_that_can_be_installed(page: str) -> None:
    assert from_html(page) == ()


@given(
    st.from_regex(r"[A-Za-z0-9]+([-_.]+[A-Za-z0-9]+){0,3}", fullmatch=True),
    st.from_regex(r"[0-9]+(\.[0-9]+){0,2}(rc1|-1)?", fullmatch=True),
    st.sampled_from([".tar.gz", ".zip", ".tgz"]),
)
def test_the_version_of_an_sdist_starts_behind_its_name(spelt: str, version: str, suffix: str) -> None:
    assert version_in(f"{spelt}-{version}{suffix}", canonicalize_name(spelt)) == version
