"""Command lines of pip, uv and conda: each form as a table, and properties that hold for any words."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from envsolve.errors import UsageError
from envsolve.packages.commands import (
    Argument,
    Change,
    Command,
    Meaning,
    changes_in_words,
    installer,
    installers,
    parse,
    parse_options,
    translated,
)
from envsolve.packages.shell import edit


def command(text: str) -> Command:
    found = parse(shlex.split(text))
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("text", "name", "verb", "requirements"),
    [
        ("pip install torch", "pip", ("install",), ("torch",)),
        ("/opt/env/bin/pip3.12 --no-input install torch numpy", "pip", ("install",), ("torch", "numpy")),
        ("python3 -m pip install -U torch", "pip", ("install",), ("torch",)),
        ("python -I -m pip --python .venv install torch", "pip", ("install",), ("torch",)),
        ("pip --version", "pip", (), ()),
        ("pip install -r a.txt -- -odd", "pip", ("install",), ("-odd",)),
        ("uv pip install --python .venv torch", "uv", ("pip", "install"), ("torch",)),
        ("uv --directory there pip --quiet sync a.txt", "uv", ("pip", "sync"), ("a.txt",)),
        ("uv sync --frozen", "uv", ("sync",), ()),
        ("conda install -n base pytorch=2.5", "conda", ("install",), ("pytorch=2.5",)),
        ("micromamba -r /opt install -y numpy", "conda", ("install",), ("numpy",)),
        ("conda env create --file e.yml", "conda", ("env", "create"), ()),
    ],
)
def test_installer_verb_and_requirements(
    text: str, name: str, verb: tuple[str, ...], requirements: tuple[str, ...]
) -> None:
    found = command(text)
    assert (found.installer, found.verb, found.requirements) == (name, verb, requirements)
    assert parse(found.words) == found


@pytest.mark.parametrize("text", ["", "rm -r x", "pipx install torch", "python setup.py install", "python -m venv x"])
def test_other_programs_are_not_parsed(text: str) -> None:
    assert parse(shlex.split(text)) is None


@pytest.mark.parametrize(
    ("text", "meaning", "values"),
    [
        ("pip install -r a.txt --requirement=b.txt -rc.txt", "files", ("a.txt", "b.txt", "c.txt")),
        ("pip install -Ur a.txt", "files", ("a.txt",)),
        ("uv pip install -p=3.12 x", "python", ("3.12",)),
        ("uv pip install --torch-backend=auto torch", "backend", ("auto",)),
        ("pip install -i URL --extra-index-url MORE", "index_urls", ("URL",)),
        ("pip install --index URL x", "index_urls", ("URL",)),
        ("uv pip install --index URL x", "indexes", ("URL",)),
        ("uv pip install --default-index URL x", "index_urls", ("URL",)),
        ("pip install -f one -f two x", "find_links", ("one", "two")),
        ("pip --python .venv install x", "python", (".venv",)),
        ("pip install -C --build-option=x y", "other", ("--build-option=x",)),
        ("conda install -c conda-forge -c=nvidia x", "channels", ("conda-forge", "nvidia")),
        ("pip install torch --unheard-of -r", "files", ()),
    ],
)
def test_values_of_options(text: str, meaning: Meaning, values: tuple[str, ...]) -> None:
    found = command(text)
    assert found.values(meaning) == values
    assert parse(found.words) == found


@pytest.mark.parametrize(
    ("text", "meanings"),
    [
        ("pip install -qU --no-dependencies x", {"quiet", "upgrade", "no_deps"}),
        ("pip install --no-build-isolation --pre x", {"no_build_isolation", "prereleases"}),
        ("uv pip install --reinstall --system x", {"force_reinstall", "system"}),
        ("conda update --all -y", {"upgrade", "yes"}),
        ("pip install --no-deps=1 --unheard-of -r", {"unknown"}),
    ],
)
def test_flags(text: str, meanings: set[str]) -> None:
    assert {one.meaning for one in command(text).arguments} - {"requirements"} == meanings


def test_options_of_a_requirement_file_line() -> None:
    found = parse_options(["numpy==1", "--hash=sha256:aa", "--index-url", "URL"], "pip")
    assert (found.requirements, found.values("hashes")) == (("numpy==1",), ("sha256:aa",))
    assert found.value("index_urls") == "URL"


@pytest.mark.parametrize(
    ("text", "rehearsal"),
    [
        ("pip install x", "pip install --dry-run --quiet --report - x"),
        ("pip install --dry-run x", None),
        ("pip list", None),
        ("uv -q pip install -q x", "uv pip install --dry-run x"),
        ("uv pip uninstall x", "uv pip uninstall --dry-run x"),
        ("uv pip list", None),
        ("conda remove -y x", "conda remove --dry-run --json -y x"),
        ("conda env update", None),
        ("mamba install -d x", None),
    ],
)
def test_dry_run(text: str, rehearsal: str | None) -> None:
    found = command(text)
    words = installer(found.installer).dry_run(found)
    assert (words and shlex.join(words)) == rehearsal


def test_uv_add_has_no_dry_run() -> None:
    with pytest.raises(UsageError) as refused:
        installer("uv").dry_run(command("uv add torch"))
    assert refused.value.hint is not None
    assert "uv add --no-sync torch && envsolve guard -- uv sync" in refused.value.hint


@pytest.mark.parametrize(
    ("text", "prefix"),
    [
        ("pip install --prefix /opt/a x", "/opt/a"),
        ("uv pip install --prefix=/opt/a x", "/opt/a"),
        ("conda install -p /opt/a x", "/opt/a"),
        ("conda install x", "/opt/active"),
        ("conda install -n other x", None),
        ("uv pip install x", "/opt/active"),
        ("uv sync", None),
    ],
)
def test_environment_of_a_command(text: str, prefix: str | None) -> None:
    found = command(text)
    place = installer(found.installer).prefix(found, {"CONDA_PREFIX": "/opt/active"})
    assert place == (Path(prefix) if prefix else None)


@pytest.mark.parametrize(
    ("text", "name", "expected"),
    [
        ("pip uninstall -y torch", "uv", "pip uninstall torch"),
        ("pip install torch --index-url URL", "uv", "pip install torch --index URL"),
        ("uv pip install --index URL --reinstall y", "pip", "uv pip install --index-url URL --force-reinstall y"),
    ],
)
def test_translation(text: str, name: str, expected: str) -> None:
    assert shlex.join(translated(command(text), name).words) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("cd x && pip install 'a b'; ls", "cd x && pip install --no-deps 'a b'; ls"),
        ('A=1 pip install "numpy<2"\nls | wc', 'A=1 pip install --no-deps "numpy<2"\nls | wc'),
        ("(pip install x) && $(pip install y)", "(pip install --no-deps x) && $(pip install --no-deps y)"),
        ("echo pip install x", "echo pip install x"),
        ("don't pip install", "don't pip install"),
    ],
)
def test_commands_are_rewritten_in_a_shell_text(text: str, expected: str) -> None:
    assert edit(text, lambda found, _: found.adding(Argument("--no-deps", "no_deps"))) == expected


WORDS = st.one_of(
    st.text(max_size=6),
    st.sampled_from(
        [name for one in installers() for names in (*one.valued, *one.flags) for name in names.split()]
        + ["pip", "install", "python", "-m", "uv", "sync", "conda", "--", "-", "-x", "--odd", "torch", "-rfile", "-Uq"]
    ),
)
STARTS = st.sampled_from([["pip"], ["python", "-m", "pip"], ["uv"], ["uv", "pip", "install"], ["conda", "install"], []])


@given(STARTS, st.lists(WORDS, max_size=8))
def test_any_words_are_parsed_and_rendered_to_an_equal_command(start: list[str], words: list[str]) -> None:
    found = parse([*start, *words])
    if found is not None:
        assert parse(found.words) == found


@st.composite
def commands(draw: st.DrawFn) -> Command:
    one = installer(draw(st.sampled_from(["pip", "uv", "conda"])))
    word = st.text(st.characters(codec="ascii", exclude_categories=["Cc"]), min_size=1, max_size=8)
    plain = word.filter(lambda text: not text.startswith("-"))
    valued = [(name, meaning) for names, meaning in one.valued.items() for name in names.split()]
    flags = [(name, meaning) for names, meaning in one.flags.items() for name in names.split()]
    options = st.one_of(
        st.builds(lambda pair, value: Argument(pair[0], pair[1], value), st.sampled_from(valued), word),
        st.builds(lambda pair: Argument(pair[0], pair[1]), st.sampled_from(flags)),
    )
    requirements = st.builds(lambda text: Argument("", "requirements", text), plain)
    verb = ("pip", "install") if one.name == "uv" else ("install",)
    general, arguments = draw(st.lists(options, max_size=2)), draw(st.lists(options | requirements, max_size=5))
    return Command(one.name, (one.name,), tuple(general), verb, tuple(arguments))


@given(commands())
def test_a_command_survives_rendering(found: Command) -> None:
    assert parse(found.words) == found


@given(st.text(max_size=60))
def test_editing_without_a_change_keeps_any_text(text: str) -> None:
    assert edit(text, lambda found, _: found) == text
    edit(f"pip install {text}", lambda found, _: found.adding(Argument("-U", "upgrade")))


def test_changes_in_words() -> None:
    libraries = [Change(f"nvidia-lib{n}", "1", "2") for n in range(4)]
    torch = Change("torch", "2.14.1", "2.15.0", variant="cu132")
    gone, new = Change("torchtext", "0.18.0", None), Change("torchcodec", None, "0.17.0")
    assert changes_in_words([torch]) == "torch 2.14.1 -> 2.15.0 (cu132)"
    assert changes_in_words([torch, *libraries]) == "torch 2.14.1 -> 2.15.0 (cu132) and 4 NVIDIA libraries"
    assert changes_in_words([torch, gone, new, libraries[0]]) == (
        "torch 2.14.1 -> 2.15.0 (cu132), torchtext 0.18.0 (removed), torchcodec 0.17.0 (new) and nvidia-lib0 1 -> 2"
    )
