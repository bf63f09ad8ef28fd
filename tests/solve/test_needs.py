"""Bounds of specifiers: what lies beyond them is not looked at."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.version import Version

from envsolve.solve.needs import within

_RELEASES = st.builds("{}.{}{}".format, st.integers(0, 2), st.integers(0, 3), st.sampled_from(["", ".0", ".1"]))
_ENDS = ("", "a1", "rc2", ".dev1", ".post1", ".post1.dev2", "+cpu", "+cu128")
_VERSIONS = st.builds("{}{}".format, _RELEASES, st.sampled_from(_ENDS)).map(Version)


@st.composite
def _specifiers(draw: st.DrawFn) -> SpecifierSet:
    clauses = []
    for operator in draw(st.lists(st.sampled_from(["<", "<=", ">", ">=", "==", "!=", "~=", "===", "*"]), max_size=3)):
        version = draw(_VERSIONS)
        if operator == "*":
            clauses.append(f"=={'.'.join(map(str, version.release))}.*")
        else:
            clauses.append(f"{operator}{version if '==' in operator else version.public}")
    try:
        return SpecifierSet(",".join(clauses))
    except InvalidSpecifier:
        return SpecifierSet()


@given(versions=st.sets(_VERSIONS, max_size=20), specifier=_specifiers())
def test_no_version_that_fits_is_beyond_the_bounds(versions: set[Version], specifier: SpecifierSet) -> None:
    newest_first = sorted(versions, reverse=True)
    near = [newest_first[place] for place in within(range(len(newest_first)), specifier, newest_first.__getitem__)]
    assert [v for v in newest_first if specifier.contains(v, prereleases=True)] == [
        v for v in near if specifier.contains(v, prereleases=True)
    ]


def test_what_is_beyond_the_bounds_is_left_out() -> None:
    newest_first = [Version(f"1.{n}") for n in range(2000, 0, -1)]
    near = within(range(2000), SpecifierSet(">=1.40,<1.41"), newest_first.__getitem__)
    assert [str(newest_first[place]) for place in near] == ["1.41", "1.40"]
