"""URLs: what may be printed of them, their logins and origins."""

from __future__ import annotations

import time

import pytest

from envsolve.packages.urls import join_project, origin, redact, split_login, without_logins


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("https://a.test/simple/", "https://a.test/simple/"),
        ("https://me:pass@a.test:8/x", "https://****@a.test:8/x"),
        ("https://token@a.test/", "https://****@a.test/"),
        ("https://me:p@ss@a.test/", "https://****@a.test/"),
        ("https://a.test:port/", "(a URL that cannot be read)"),
    ],
)
def test_redact(url: str, shown: str) -> None:
    assert redact(url) == shown


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("x @ git+https://me:p@ss@a.test/x@v1#egg=x", "x @ git+https://a.test/x@v1#egg=x"),
        ("git+https://token@a.test/x and http://a:b@c/d", "git+https://a.test/x and http://c/d"),
        ("git+ssh://git:pass@a.test/x", "git+ssh://git@a.test/x"),
        ("git+ssh://git@a.test/x", "git+ssh://git@a.test/x"),
        ("https://a.test/x@v1, me@example.org", "https://a.test/x@v1, me@example.org"),
    ],
)
def test_text_without_logins(text: str, shown: str) -> None:
    assert without_logins(text) == shown


def test_address_parts() -> None:
    assert split_login("https://me:p%40ss@a.test/x") == ("https://a.test/x", ("me", "p@ss"))
    assert split_login("https://me@a.test/x") == ("https://a.test/x", ("me", None))
    assert origin("HTTPS://A.test/x") == origin("https://a.test:443/y") != origin("http://a.test/x")
    assert join_project("https://a.test/simple", "x") == join_project("https://a.test/simple/", "x")


@pytest.mark.parametrize("word", ["a" * 50_000, "a://" * 20_000, "://a:" * 20_000, "@" * 50_000, "a" * 50_000 + "://b"])
def test_a_long_word_without_a_login_takes_linear_time(word: str) -> None:
    """Five thousand characters of one took nine seconds."""
    start = time.process_time()
    assert without_logins(f"{word} @") == f"{word} @"
    assert time.process_time() - start < 1
