"""What setup.py and setup.cfg state, read without running them."""

from __future__ import annotations

import pytest

from envsolve.packages.setup_files import dependency_files, setup_fields, stated

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
        ("with version():\n    setup(install_requires=['a'])", ("a",)),
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


FILES = {
    "requirements.txt": "torch>=2.1  # newest\n# no\n--extra-index-url https://x\nnumpy\n-r requirements/more.txt\n",
    "requirements/more.txt": "scipy\n",
    "requirements/dev.txt": "ruff\n",
    "README.txt.md": "no",
}
NAMED = ("torch>=2.1", "numpy", "scipy")


@pytest.mark.parametrize(
    ("text", "requires"),
    [
        ("setup(install_requires=open('requirements.txt').read().splitlines())", NAMED),
        ("with open('./requirements.txt') as f:\n    needs = f.readlines()\nsetup(install_requires=needs)", NAMED),
        ("needs = (Path(__file__).parent / 'requirements.txt').read_text()\nsetup(install_requires=needs)", NAMED),
        ("path = os.path.join(here, 'requirements', 'more.txt')\nsetup(install_requires=lines(path))", ("scipy",)),
        ("path = here / 'requirements' / 'more.txt'\nsetup(install_requires=lines(path))", ("scipy",)),
        ("def of(p='requirements.txt'):\n    return more(p)\nneeds, _ = of()\nsetup(install_requires=needs)", NAMED),
        ("needs = []\nfor x in open('requirements.txt'):\n    needs.append(x)\nsetup(install_requires=needs)", NAMED),
        (
            "with open('requirements.txt') as f:\n    needs = f.read()\n"
            "with open('requirements/dev.txt') as f:\n    dev = f.read()\n"
            "setup(install_requires=needs, extras_require={'dev': dev})",
            NAMED,
        ),
        ("setup(install_requires=open('absent.txt').read())", None),
        ("setup(install_requires=open('../requirements.txt').read())", None),
        ("setup(install_requires=['a'], long_description=open('requirements.txt').read())", ("a",)),
    ],
)
def test_requirements_in_a_file_that_setup_py_names(text: str, requires: tuple[str, ...] | None) -> None:
    files = {**FILES, "setup.py": text}
    found = setup_fields(lambda path: files[path].encode() if path in files else None)
    assert found.requires == requires
    assert stated("x", lambda path: files[path].encode() if path in files else None).exact is False


@pytest.mark.parametrize(
    ("tool", "dependencies", "extras"),
    [
        ({"setuptools": {"dynamic": {"dependencies": {"file": ["requirements.txt"]}}}}, NAMED, {}),
        ({"setuptools": {"dynamic": {"dependencies": {"file": "requirements.txt"}}}}, NAMED, {}),
        ({"setuptools": {"dynamic": {"dependencies": {"file": ["absent.txt"]}}}}, None, {}),
        (
            {"setuptools": {"dynamic": {"optional-dependencies": {"dev": {"file": "requirements/dev.txt"}}}}},
            None,
            {"dev": ("ruff",)},
        ),
        (
            {
                "hatch": {
                    "metadata": {
                        "hooks": {
                            "requirements_txt": {
                                "files": ["requirements.txt"],
                                "optional-dependencies": {"dev": ["requirements/dev.txt"]},
                            }
                        }
                    }
                }
            },
            NAMED,
            {"dev": ("ruff",)},
        ),
        ({"setuptools": {"dynamic": "no"}, "hatch": []}, None, {}),
    ],
)
def test_files_of_dynamic_fields(tool: dict[str, object], dependencies: object, extras: object) -> None:
    assert dependency_files(tool, lambda path: FILES[path].encode() if path in FILES else None) == (
        dependencies,
        extras,
    )


def test_setup_cfg_takes_requirements_from_a_file() -> None:
    files = {**FILES, "setup.cfg": "[options]\ninstall_requires = file: requirements.txt\n"}
    assert setup_fields(lambda path: files[path].encode() if path in files else None).requires == NAMED


BY_NAME = """
import os, re
from setuptools import setup
_deps = ["torch>=1.4", "accelerate>=0.31", "Pillow", "jax[cpu]~=0.4 ", "tf-nightly"]
deps = {b: a for a, b in (re.findall(r"^(([^!=<>~ ]+)(?:[!=<>~ ].*)?$)", x)[0] for x in _deps)}

def deps_list(*pkgs):
    return [deps[pkg] for pkg in pkgs]

extras = {}
extras["torch"] = deps_list("torch", "accelerate")
if os.name == "nt":
    extras["flax"] = []
else:
    extras["flax"] = deps_list("jax[cpu]")
extras["bad"] = deps_list("absent")
extras["dev"] = extras["torch"] + deps_list("tf-nightly")
install_requires = [deps["Pillow"]]
setup(name="d", install_requires=list(install_requires), extras_require=extras)
"""


def test_a_table_of_requirements_by_their_names() -> None:
    """setup.py of transformers and diffusers."""
    fields = setup_fields({"setup.py": BY_NAME.encode()}.get)
    assert fields.requires == ("Pillow",)
    assert fields.extras["torch"] == ("torch>=1.4", "accelerate>=0.31")
    assert fields.extras["dev"] == ("torch>=1.4", "accelerate>=0.31", "tf-nightly")
    # What depends on the system, and what is not in the table, only the build knows.
    assert not {"flax", "bad"} & {*fields.extras}


@pytest.mark.parametrize(
    "text",
    [
        "extras = {}\nfor name in names:\n    extras[name] = ['a']\nsetup(extras_require=extras)",
        "extras = {}\nextras.update(more)\nsetup(extras_require=extras)",
        "deps = {a: a for a in (x.strip() for x in ['torch'])}\nsetup(extras_require={'t': [deps['torch']]})",
        "def f(*p):\n    return p\nsetup(extras_require={'t': f('torch')})",
    ],
)
def test_a_table_made_in_another_way_is_not_read(text: str) -> None:
    assert setup_fields({"setup.py": text.encode()}.get).extras == {}
