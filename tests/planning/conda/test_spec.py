"""Requirements as people write them, read as match specs."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from envsolve.errors import UsageError
from envsolve.packages.conda_inputs import read_spec
from envsolve.rules.conda import Spec

NAMES = {"torch": "pytorch"}


@pytest.mark.parametrize(
    ("text", "spec"),
    [
        ("torch", "pytorch"),
        ("torch>=2.5,<2.8", "pytorch <2.8,>=2.5"),
        ("torch==2.7.*", "pytorch 2.7.*"),
        ("torch==2.7.1", "pytorch ==2.7.1"),
        ("torch~=2.7.0", "pytorch ~=2.7.0"),
        ("numpy[dev]>=2", "numpy >=2"),
        ("PyYAML", "pyyaml"),
        ("pytorch=2.7", "pytorch 2.7.*"),
        ("pytorch=2.7.1=cuda129*", "pytorch 2.7.1 cuda129*"),
        ("pytorch=*=cuda*", "pytorch * cuda*"),
        ("pytorch==2.7.1=cuda129_mkl_py313_h1e53aa0_304", "pytorch ==2.7.1 cuda129_mkl_py313_h1e53aa0_304"),
        ("pytorch 2.7.1 cuda*", "pytorch 2.7.1 cuda*"),
        ("conda-forge::pytorch>=2.7", "conda-forge::pytorch >=2.7"),
        ("conda-forge::pytorch=2.7.1=cuda*", "conda-forge::pytorch 2.7.1 cuda*"),
        ("pytorch[version='>=2.7', build='cuda*']", "pytorch >=2.7 cuda*"),
        ("pytorch[build=cuda*,channel=conda-forge]", "conda-forge::pytorch * cuda*"),
        ("cuda-version=12.9", "cuda-version 12.9.*"),
        ("_openmp_mutex", "_openmp_mutex"),
    ],
)
def test_how_specs_are_read(text: str, spec: str) -> None:
    assert str(read_spec(text, "here", NAMES)) == spec


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("torch==2.7.1+cu126", "--cuda"),
        ("demo @ https://example.org/demo-1.0-py3-none-any.whl", "pip:"),
        ("=2.7", "write pytorch"),
        ("pytorch=2.7;x", "write pytorch"),
        ("pytorch[build=cuda*,md5=0]", "only the keys version, build and channel"),
        ("pytorch[version=>=2.7", "only the keys"),
        ("pytorch[version 2.7]", "only the keys"),
    ],
)
def test_what_conda_has_not_is_refused(text: str, hint: str) -> None:
    with pytest.raises(UsageError) as caught:
        read_spec(text, "environment.yml", NAMES)
    assert "environment.yml" in caught.value.message
    assert hint in (caught.value.hint or "")


@given(st.text(alphabet="abcxyz019=<>!~*.,_-:[]' ;@", max_size=40))
def test_whatever_is_written_is_read_or_refused(text: str) -> None:
    try:
        spec = read_spec(text, "here", NAMES)
    except UsageError:
        return
    assert isinstance(spec, Spec)
    assert spec.name
