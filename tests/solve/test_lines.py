"""Which requirement lines can be left unread."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from packaging.requirements import Requirement

from envsolve.solve.needs import only_for

_COMPARISONS = st.sampled_from(
    ['sys_platform == "linux"', 'python_version < "3"', "extra == 'x'", 'os_name == "("', 'os_name == ") or ("']
)
_MARKERS = st.recursive(
    _COMPARISONS,
    lambda inner: st.one_of(
        st.builds("{} {} {}".format, inner, st.sampled_from(["and", "or"]), inner), st.builds("({})".format, inner)
    ),
    max_leaves=6,
)


@pytest.mark.parametrize(
    ("marker", "only"),
    [
        # cuda-toolkit 13 writes all of its extras so.
        ('((os_name == "a" and os_name == "b") or os_name == "c") and extra == "cu_blas"', "cu-blas"),
        ('(os_name == "a" or os_name == "b") and (extra == "x")', "x"),
        ('(os_name == "a" or os_name == "b") or os_name == "c" and extra == "x"', None),
        ('(os_name == "a" or os_name == "b" and extra == "x")', None),
        ('os_name == "(" or os_name == ")" and extra == "x"', None),
    ],
)
def test_an_or_counts_where_the_extra_could_be_without_it(marker: str, only: str | None) -> None:
    assert only_for(f"name>=1 ; {marker}") == only


@given(_MARKERS)
def test_what_is_left_unread_holds_for_no_other_extra(marker: str) -> None:
    line = f"name ; {marker}"
    if only_for(line):
        parsed = Requirement(line).marker
        assert parsed is not None
        for system in ("linux", "win32"):
            assert not parsed.evaluate({"sys_platform": system, "python_version": "2.7", "os_name": "(", "extra": "y"})
