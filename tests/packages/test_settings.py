"""Where index settings come from, and which of them wins."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from envsolve._default_index import DEFAULT_INDEX
from envsolve.errors import UsageError
from envsolve.packages.settings import IndexSettings, about_indexes_of, read_settings

A, B, C, D = (f"https://{letter}.test/simple" for letter in "abcd")


class Place:
    """A home, a project folder and a Python environment that tests fill with files."""

    def __init__(self, root: Path) -> None:
        self.home, self.cwd, self.prefix = root / "home", root / "project" / "sub", root / "venv"
        self.system = root / "etc"
        for folder in (self.home, self.cwd, self.prefix):
            folder.mkdir(parents=True)

    def write(self, path: Path, text: str) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def read(self, environ: dict[str, str] | None = None, **options: object) -> IndexSettings:
        environ = {"HOME": str(self.home)} | (environ or {})
        return read_settings(environ, cwd=self.cwd, prefix=self.prefix, system=self.system, **options)  # type: ignore[arg-type]


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path / "place")


def test_nothing_configured(place: Place) -> None:
    settings = place.read()
    assert (settings.default, settings.extras) == (DEFAULT_INDEX, ())
    assert settings.sources["default"] == "built-in"


def test_the_order_of_precedence(place: Place) -> None:
    """Each source is added in turn, weakest first, and takes over from all before it."""
    place.write(place.system / "pip.conf", "[global]\nindex-url = https://0.test\n")
    assert place.read().default == "https://0.test"
    pip_user = place.home / ".config/pip/pip.conf"
    place.write(pip_user, "[global]\nindex-url = https://1.test\n")
    assert place.read().default == "https://1.test"
    place.write(pip_user, "[global]\nindex-url = https://1.test\n[install]\nindex-url = https://2.test\n")
    assert place.read().default == "https://2.test"
    place.write(place.prefix / "pip.conf", "[global]\nindex_url = https://3.test\n")
    assert place.read().default == "https://3.test"
    named = place.home / "named.conf"
    place.write(named, "[global]\nindex-url = https://4.test\n")
    environ = {"PIP_CONFIG_FILE": str(named)}
    assert place.read(environ).default == "https://4.test"
    environ["PIP_INDEX_URL"] = "https://5.test"
    assert place.read(environ).default == "https://5.test"
    place.write(place.system / "uv/uv.toml", 'index-url = "https://5a.test"\n')
    assert place.read(environ).default == "https://5a.test"
    place.write(place.home / ".config/uv/uv.toml", 'index-url = "https://6.test"\n')
    assert place.read(environ).default == "https://6.test"
    place.write(place.cwd.parent / "pyproject.toml", '[tool.uv]\nindex-url = "https://7.test"\n')
    assert place.read(environ).default == "https://7.test"
    place.write(place.cwd.parent / "uv.toml", '[[index]]\nurl = "https://8.test"\ndefault = true\n')
    assert place.read(environ).default == "https://8.test"
    environ["UV_INDEX_URL"] = "https://9.test"
    assert place.read(environ).default == "https://9.test"
    environ["UV_DEFAULT_INDEX"] = "https://10.test"
    assert place.read(environ).default == "https://10.test"
    settings = place.read(environ, index_url="https://11.test")
    assert settings.default == "https://11.test"
    assert settings.sources["default"] == "command line"


def test_extras_add_up_without_repetition_and_without_the_default(place: Place) -> None:
    place.write(place.home / ".config/pip/pip.conf", f"[global]\nextra-index-url =\n    {C}\n    {A}/\n")
    environ = {"UV_INDEX": f"mine={B} {A}", "PIP_EXTRA_INDEX_URL": f"{D} {B}/", "UV_DEFAULT_INDEX": A}
    assert place.read(environ, extra_index_urls=[D]).extras == (D, B, C)


def test_devnull_switches_pip_files_off(place: Place) -> None:
    place.write(place.prefix / "pip.conf", f"[global]\nindex-url = {A}\n")
    assert place.read({"PIP_CONFIG_FILE": os.devnull}).default != A
    assert place.read().default == A


def test_uv_can_be_told_to_read_no_file_or_one_file(place: Place, tmp_path: Path) -> None:
    place.write(place.cwd / "uv.toml", f'index-url = "{A}"\n')
    place.write(tmp_path / "own.toml", f'[pip]\nindex-url = "{B}"\n')
    assert place.read().default == A
    assert place.read({"UV_NO_CONFIG": "1"}).default != A
    assert place.read({"UV_CONFIG_FILE": str(tmp_path / "own.toml")}).default == B


def test_indexes_of_a_project(place: Place) -> None:
    place.write(
        place.cwd / "pyproject.toml",
        f'[[tool.uv.index]]\nname = "my-own"\nurl = "{A}"\n'
        f'[[tool.uv.index]]\nname = "torch"\nurl = "{B}"\nexplicit = true\n'
        f'[[tool.uv.index]]\nurl = "{C}"\ndefault = true\n',
    )
    settings = place.read({"UV_INDEX_MY_OWN_USERNAME": "me", "UV_INDEX_MY_OWN_PASSWORD": "s/cret"})
    assert settings.default == C
    assert settings.extras == ("https://me:s%2Fcret@a.test/simple",)  # the explicit one serves nothing by itself


def test_the_strategy_of_uv(place: Place) -> None:
    assert place.read().strategy == "first-index"
    place.write(place.cwd / "uv.toml", 'index-strategy = "unsafe-best-match"\n')
    assert place.read().strategy == "unsafe-best-match"
    assert place.read({"UV_INDEX_STRATEGY": "first-index"}).strategy == "first-index"
    assert place.read({"UV_INDEX_STRATEGY": "unsafe-first-match"}).strategy == "first-index"


def test_credentials_are_not_in_the_repr(place: Place) -> None:
    settings = place.read({"PIP_INDEX_URL": "https://me:s3cret@a.test/simple", "PIP_PROXY": "http://p:s3cret@proxy"})
    assert "s3cret" in settings.default
    assert "s3cret" not in repr(settings)


@pytest.mark.parametrize(
    ("environ", "field", "value"),
    [
        ({"PIP_CERT": "/a.pem", "SSL_CERT_FILE": "/b.pem"}, "ca_bundle", "/a.pem"),
        ({"SSL_CERT_FILE": "/b.pem", "REQUESTS_CA_BUNDLE": "/c.pem"}, "ca_bundle", "/b.pem"),
        ({"REQUESTS_CA_BUNDLE": "/c.pem"}, "ca_bundle", "/c.pem"),
        ({"PIP_TIMEOUT": "33"}, "read_timeout", 33.0),
        ({"PIP_DEFAULT_TIMEOUT": "34"}, "read_timeout", 34.0),
        ({"UV_HTTP_TIMEOUT": "35", "PIP_TIMEOUT": "33"}, "read_timeout", 35.0),
        ({"UV_HTTP_CONNECT_TIMEOUT": "2"}, "connect_timeout", 2.0),
        ({"PIP_RETRIES": "0"}, "retries", 0),
        ({"PIP_CLIENT_CERT": "/me.pem"}, "client_cert", "/me.pem"),
        ({"PIP_PROXY": "http://proxy.test:1"}, "proxy", "http://proxy.test:1"),
        ({"PIP_TRUSTED_HOST": "a.test b.test:8"}, "trusted_hosts", ("a.test", "b.test:8")),
        ({"UV_KEYRING_PROVIDER": "subprocess"}, "keyring", "subprocess"),
    ],
)
def test_other_settings_from_the_environment(place: Place, environ: dict[str, str], field: str, value: object) -> None:
    settings = place.read(environ)
    assert getattr(settings, field) == value
    assert field in settings.sources


def test_other_settings_from_pip_conf(place: Place) -> None:
    place.write(place.prefix / "pip.conf", "[global]\ncert = /ca.pem\ntimeout = 7\ntrusted-host = a.test\n")
    settings = place.read()
    assert (settings.ca_bundle, settings.read_timeout, settings.trusted_hosts) == ("/ca.pem", 7.0, ("a.test",))


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("pip.conf", "index-url = x\n"),
        ("uv.toml", "index = [\n"),
        ("uv.toml", "[[index]]\nname = 'no-address'\n"),
        ("uv.toml", "index-url = 5\n"),
        ("uv.toml", "index-url = 'a.test/simple'\n"),
        ("pyproject.toml", "[tool.uv]\nextra-index-url = [1]\n"),
    ],
)
def test_a_broken_file_is_named(place: Place, file: str, text: str) -> None:
    folder = place.prefix if file == "pip.conf" else place.cwd
    place.write(folder / file, text)
    with pytest.raises(UsageError) as caught:
        place.read()
    assert file in caught.value.message


@pytest.mark.parametrize("value", ["soon", "-1"])
def test_a_timeout_that_is_none(place: Place, value: str) -> None:
    with pytest.raises(UsageError, match=value):
        place.read({"PIP_TIMEOUT": value})


@pytest.mark.parametrize(
    "variable", ["UV_INDEX_URL", "UV_DEFAULT_INDEX", "UV_INDEX", "PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL"]
)
@pytest.mark.parametrize("value", ["garbage", "https://[::", "https://a.test:port/"])
def test_an_address_that_is_none_is_known_by_its_variable(place: Place, variable: str, value: str) -> None:
    with pytest.raises(UsageError, match=variable):
        place.read({variable: value})


def test_a_local_index_that_is_not_there(place: Place) -> None:
    with pytest.raises(UsageError, match="local index file:///no/such/folder does not exist") as caught:
        place.read({"PIP_INDEX_URL": "file:///no/such/folder"})
    assert "PIP_INDEX_URL" in (caught.value.hint or "")
    assert place.read(index_url=place.home.as_uri()).default == place.home.as_uri()


def test_a_deleted_folder_has_no_project(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(place.cwd)
    place.cwd.rmdir()
    assert read_settings({"HOME": str(place.home)}, prefix=place.prefix, system=place.system).default == DEFAULT_INDEX


def test_a_pipe_is_no_configuration_file(place: Place) -> None:
    os.mkfifo(place.prefix / "pip.conf")
    with pytest.raises(UsageError, match=r"pip\.conf cannot be read: it is a pipe"):
        place.read()


def test_what_an_extra_index_is_asked_for_is_said() -> None:
    urls = ["https://download.pytorch.org/whl/cu121", "https://user:secret@own.test/simple"]
    (note,) = about_indexes_of((), urls, "first-index")
    assert "own.test" in note and "secret" not in note
    assert "only for packages that the default index does not have" in note
    assert "--index-strategy unsafe-best-match" in note
    (note,) = about_indexes_of((), urls, "unsafe-best-match")
    assert "is merged with the default index" in note


def test_of_several_default_indexes_in_files_the_last_counts_as_in_pip() -> None:
    urls = ["https://download.pytorch.org/whl/cu121", "https://user:secret@own.test/simple", "https://last.test/"]
    first, second = about_indexes_of(urls, (), "first-index")
    assert first.startswith("--index-url https://download.pytorch.org/whl/cu121 is ignored")
    assert "secret" not in second and "the last one counts, https://last.test/" in second
    assert not [*about_indexes_of(urls[:1] * 2, (), "first-index")]
