"""What setup.py and setup.cfg state, read without running them."""

from __future__ import annotations

import pytest

from envsolve.packages.project_files import setup_fields, stated

LITERAL = """
import os
from setuptools import setup
setup(
    name="seg", version="2.6.0", python_requires=">=3.9",
    install_requires=["torch>=2.1,<2.6", "numpy<2", 'requests;python_version>="3.10"'],
    extras_require={"dev": ["black"], "docs": open("docs.txt").read()},
    long_description=open("README.md").read(),
)
"""
TABLE = """
needs = {"install": ["scipy"], "train": ["wandb"], "all": []}
needs["all"].extend(needs["train"])
common = ["numpy"]
common.append("pandas")
common += ["tqdm"]
if __name__ == "__main__":
    setuptools.setup(install_requires=needs["install"] + common, extras_require=dict(all=needs["all"]))
"""
CONDITIONAL = """
needs = ["torch"]
if os.environ.get("GPU"):
    needs.append("flash-attn")
setup(install_requires=needs)
"""


def _read(**files: str) -> object:
    return lambda path: text.encode() if (text := files.get(path.replace(".", "_"))) is not None else None


@pytest.mark.parametrize(
    ("text", "requires"),
    [
        (LITERAL, ("torch>=2.1,<2.6", "numpy<2", 'requests;python_version>="3.10"')),
        (TABLE, ("scipy", "numpy", "pandas", "tqdm")),
        ("setup(name='library', packages=find_packages())", ()),
        ("args = dict(install_requires=['a'])\nsetup(**args)", ("a",)),
        ("setup(install_requires='a\\n# no\\nb')", ("a", "b")),
        (CONDITIONAL, None),
        ("setup(**arguments())", None),
        ("setup(install_requires=open('requirements.txt').read().splitlines())", None),
        ("needs = ['a']\nfor one in more(): needs.append(one)\nsetup(install_requires=needs)", None),
        ("a = ['x']\n" + "a.extend(a)\n" * 60 + "setup(install_requires=a)", None),
        ("a = ['x']\n" + "a = a + a\n" * 60 + "setup(install_requires=a)", None),
        ("setup(install_requires=" + "+".join(["['a']"] * 9000) + ")", None),
    ],
)
def test_only_literals_are_requirements(text: str, requires: tuple[str, ...] | None) -> None:
    assert setup_fields(_read(setup_py=text)).requires == requires  # type: ignore[arg-type]


def test_the_other_fields() -> None:
    fields = setup_fields(_read(setup_py=LITERAL))  # type: ignore[arg-type]
    assert (fields.name, fields.version, fields.requires_python) == ("seg", "2.6.0", ">=3.9")
    assert fields.extras == {"dev": ("black",)}


def test_setup_cfg_states_what_setup_py_does_not() -> None:
    text = "[metadata]\nname = x\nversion = attr: x.v\n[options]\ninstall_requires =\n    torch\n    numpy\n"
    found = stated("x", _read(setup_py="from setuptools import setup\nsetup()", setup_cfg=text))  # type: ignore[arg-type]
    assert (found.version, found.requires_dist, found.exact) == ("", ("torch", "numpy"), False)
