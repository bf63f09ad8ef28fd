"""Cases that made resolvers famous for not ending, in small: what a solve takes is counted, not timed.

The shapes are public: https://github.com/pypa/pip/issues/9187 (boto3, botocore, s3fs), pip's own page on backtracking
(apache-airflow with its extras), and torch pins that packages of one request fight over.
"""

from __future__ import annotations

import itertools
import os
import time

import pytest

from envsolve.facts.catalogue import Catalogue
from envsolve.rules.nvidia import Facts
from envsolve.solve import resolver
from envsolve.solve.needs import ClaimNeed, only_for
from envsolve.solve.resolver import Budget, UnsolvableError
from envsolve.solve.search import Search
from tests.solve.worlds import World, solved

CATALOGUE = Catalogue()
FACTS = Facts.of(CATALOGUE)


def storm(releases: int) -> World:
    """A boto3 a day, each of its one botocore; an old aiobotocore holds botocore back; urllib3 2 came in between."""
    days = range(1, releases + 1)
    return {
        "boto3": {f"1.{day}.0": (f"botocore>=1.{day}.0,<1.{day + 1}", "s3transfer") for day in days},
        "botocore": {f"1.{day}.0": ("urllib3<2" if day < 9 * releases // 10 else "urllib3",) for day in days},
        "s3transfer": {f"0.{day}.0": (f"botocore>=1.{day}.0",) for day in days},
        "aiobotocore": {f"2.{n}.0": (f"botocore==1.{max(1, n * releases // 40)}.0",) for n in range(1, 21)},
        "s3fs": {f"2024.{n}.0": (f"aiobotocore<=2.{n}.0",) for n in range(1, 21)},
        "urllib3": {"1.26.0": (), "2.0.0": (), "2.5.0": ()},
    }


@pytest.mark.parametrize("releases", [200, 400])
def test_a_version_storm_takes_as_many_rounds_whatever_its_size(releases: int) -> None:
    solution, work = solved(storm(releases), ["boto3", "s3fs", "s3transfer"], CATALOGUE, FACTS)
    chosen = {name: str(one.candidate.version) for name, one in solution.chosen.items()}
    assert chosen["botocore"] == chosen["boto3"] == f"1.{releases // 2}.0"
    assert chosen["urllib3"] == "1.26.0"
    assert work.pages == 6
    assert work.rounds <= 120
    assert work.metadata <= releases + 60


def test_a_busy_machine_gives_the_same_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """The limit was one of time alone, and plans failed on machines that did something else as well."""
    seconds = itertools.count()
    monkeypatch.setattr(time, "monotonic", lambda: float(next(seconds)))
    monkeypatch.setattr(os, "getloadavg", lambda: (0.0, 0.0, 0.0), raising=False)
    solution, work = solved(storm(200), ["boto3", "s3fs", "s3transfer"], CATALOGUE, FACTS)
    assert str(solution.chosen["boto3"].candidate.version) == "1.100.0"
    assert 60 < work.rounds < 120


def test_seconds_count_less_where_programs_share_a_processor(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    monkeypatch.setattr(os, "getloadavg", lambda: (16.0, 0.0, 0.0), raising=False)
    monkeypatch.setattr(time, "monotonic", lambda: 0.0)
    budget = Budget(seconds=60, least=0, most=20)
    budget.rounds = 1
    for now, is_spent in ((479.0, False), (481.0, True)):
        monkeypatch.setattr(time, "monotonic", lambda now=now: now)
        assert budget.is_spent is is_spent


def test_a_solve_ends_by_its_rounds_whatever_the_clock_says() -> None:
    budget = Budget(seconds=60, least=10, most=20)
    budget.rounds = 20
    assert not budget.is_spent
    budget.rounds = 21
    assert budget.is_spent


def airflow(providers: int, versions: int) -> tuple[World, dict[str, list[str]]]:
    """An application with an extra for every provider; a third of them want the release before the newest."""
    world: dict[str, dict[str, tuple[str, ...]]] = {"apache-airflow": {}, "flask": {}, "shared": {}}
    names = [f"provider-{n}" for n in range(providers)]
    for v in range(1, versions + 1):
        lines = [f'{name}; extra == "{name}"' for name in names]
        world["apache-airflow"][f"2.{v}"] = ("flask<3", *lines)
        world["flask"][f"{1 + v // 4}.{v}"] = ("shared",)
        world["shared"][f"{v}"] = ()
    for n, name in enumerate(names):
        held = f"shared<{versions}" if n % 3 == 0 else "shared"
        world[name] = {f"1.{v}": (f"apache-airflow>=2.{v // 2 + 1}", held) for v in range(1, versions + 1)}
    return world, {"apache-airflow": names}


def test_an_application_with_sixty_extras() -> None:
    world, extras = airflow(60, 12)
    asked = [f"apache-airflow[{','.join(extras['apache-airflow'])}]"]
    solution, work = solved(world, asked, CATALOGUE, FACTS, extras=extras)
    assert len(solution.chosen) == 63
    assert str(solution.chosen["shared"].candidate.version) == "11"
    assert work.rounds <= 2 * 63
    assert work.metadata == 63


#: Wheels of one library for two CUDA majors install the same files.
MAJORS: World = {
    "trainer": {"1.0": ("nvidia-cudnn-cu12",), "2.0": ("nvidia-cudnn-cu12",), "0.9": ()},
    "server": {"2.0": ("nvidia-cudnn-cu12",), "2.1": ("nvidia-cudnn-cu13",)},
    "nvidia-cudnn-cu12": {"9.10.2.21": (), "9.28.0.42": ()},
    "nvidia-cudnn-cu13": {"9.28.0.42": ()},
}


def test_libraries_of_two_cuda_majors_are_never_chosen_together() -> None:
    solution, _ = solved(MAJORS, ["trainer", "server"], CATALOGUE, FACTS)
    chosen = {name: str(one.candidate.version) for name, one in solution.chosen.items()}
    assert chosen == {"trainer": "2.0", "server": "2.0", "nvidia-cudnn-cu12": "9.28.0.42"}


def test_what_has_an_upper_bound_is_chosen_before_what_can_give_way() -> None:
    world: World = {
        "api": {"0.1": ("core",), "0.2": ("core>=1",)},
        "ui": {"5.1": ("api", "core"), "5.50": ("api", "core<1"), "6.0": ("api",)},
        "core": {"0.5": (), "1.0": ()},
    }
    solution, _ = solved(world, ["api", "ui<6"], CATALOGUE, FACTS)
    assert {n: str(c.candidate.version) for n, c in solution.chosen.items()} == {
        "api": "0.1",
        "ui": "5.50",
        "core": "0.5",
    }


def test_no_old_release_from_before_the_clash_is_taken() -> None:
    with pytest.raises(UnsolvableError) as nothing:
        solved(MAJORS, ["trainer", "server==2.1"], CATALOGUE, FACTS)
    said = {getattr(clash.parent, "label", "") for clash in nothing.value.causes}
    assert {"nvidia-cudnn-cu12 9.28.0.42", "nvidia-cudnn-cu13 9.28.0.42", "trainer 2.0", "server 2.1"} <= said


def test_two_families_of_plugins_are_refused_before_the_versions_of_the_rest_are_tried(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """``jax[cuda12] jax[cuda13]`` took 60 s: the search came upon the clash behind all versions of the helpers."""
    lines = [f'plugin-cu{major}[libs]=={{0}}; extra == "cuda{major}"' for major in (12, 13)]
    versions = ("0.4.1", "0.4.2", "0.5.0", "0.5.1")
    world: World = {
        "frame": {v: ("helper-0", *(line.format(v) for line in lines)) for v in versions},
        **{f"plugin-cu{m}": dict.fromkeys(versions, (f'nvidia-cudnn-cu{m}; extra == "libs"',)) for m in (12, 13)},
        **{f"nvidia-cudnn-cu{m}": {f"9.{n}": ("helper-0",) for n in range(20)} for m in (12, 13)},
        **{f"helper-{n}": {f"1.{v}": (f"helper-{n + 1}>=1.{v}",) for v in range(30)} for n in range(5)},
        "helper-5": {f"1.{v}": () for v in range(30)},
    }
    extras = {"frame": ["cuda12", "cuda13"], "plugin-cu12": ["libs"], "plugin-cu13": ["libs"]}
    rounds: list[str] = []
    pin = Search._attempt_to_pin_criterion

    def counted(one: Search, name: str) -> object:
        rounds.append(name)
        return pin(one, name)

    monkeypatch.setattr(Search, "_attempt_to_pin_criterion", counted)
    with pytest.raises(UnsolvableError) as nothing:
        solved(world, ["frame[cuda12]", "frame[cuda13]"], CATALOGUE, FACTS, extras=extras)
    assert len(rounds) < 40
    said = {cause.need.text for cause in nothing.value.causes}
    assert said >= {"frame[cuda12]", "frame[cuda13]", "plugin-cu12[libs]==0.5.1", "plugin-cu13[libs]==0.5.1"}


def test_libraries_of_two_majors_that_cannot_be_avoided_are_taken_at_once() -> None:
    """onnxruntime-gpu 1.18 beside tensorrt-cu12: what others need of them was tried in all its versions, for 20 s."""
    world: World = {
        "server": {"1.0": ("nvidia-cublas-cu12", "helper-0")},
        "runtime": {"1.0": ("nvidia-cublas-cu11", "helper-0")},
        **{f"nvidia-cublas-cu{m}": {f"{m}.{n}": () for n in range(20)} for m in (11, 12)},
        **{f"helper-{n}": {f"1.{v}": (f"helper-{n + 1}>=1.{v}",) for v in range(30)} for n in range(5)},
        "helper-5": {f"1.{v}": () for v in range(30)},
    }
    solution, work = solved(world, ["server==1.0", "runtime==1.0"], CATALOGUE, FACTS)
    assert {"nvidia-cublas-cu11", "nvidia-cublas-cu12"} <= set(solution.chosen)
    assert work.rounds < 40


def test_packages_that_fight_over_a_pin_end_in_a_conflict_that_names_them() -> None:
    """Each of two trainers pins the core, in all its versions, and they never agree."""
    world: World = {
        "core": {f"2.{n}": () for n in range(30)},
        "trainer": {f"1.{n}": (f"core==2.{n % 15}", "helper") for n in range(30)},
        "server": {f"0.{n}": (f"core==2.{15 + n % 15}", "helper") for n in range(30)},
        "helper": {f"{n}": ("core",) for n in range(30)},
    }
    with pytest.raises(UnsolvableError) as nothing:
        solved(world, ["trainer", "server"], CATALOGUE, FACTS)
    assert {clash.need.key for clash in nothing.value.causes} == {"core"}


def test_what_contradicts_the_request_by_itself_is_found_out_once() -> None:
    """``numpy<2`` beside a server whose newer releases come to numpy 2 by two ways, over packages of many versions."""
    world: World = {
        "numpy": {"1.26": (), "2.0": (), "2.1": ()},
        "opencv": {f"4.{n}": ("numpy>=2" if n > 8 else "numpy",) for n in range(20)},
        "tokens": {f"1.{n}": ("opencv>=4.0", "numpy") for n in range(30)},
        "server": {f"0.{n}": ("opencv>=4.9" if n > 20 else "opencv", "tokens>=1.2", "numpy") for n in range(60)},
    }
    solution, work = solved(world, ["numpy<2", "server", "tokens"], CATALOGUE, FACTS)
    chosen = {name: str(one.candidate.version) for name, one in solution.chosen.items()}
    assert chosen == {"numpy": "1.26", "opencv": "4.8", "tokens": "1.29", "server": "0.20"}
    assert work.rounds <= 60
    assert work.metadata <= 60 + 20 + 30


def test_a_refusal_names_what_the_request_itself_forbids() -> None:
    world: World = {
        "numpy": {"1.26": (), "2.0": ()},
        "opencv": {f"4.{n}": ("numpy>=2",) for n in range(9)},
        "server": {f"0.{n}": ("opencv", "numpy") for n in range(9)},
    }
    with pytest.raises(UnsolvableError) as nothing:
        solved(world, ["numpy<2", "server"], CATALOGUE, FACTS)
    said = {(getattr(clash.parent, "name", None), clash.need.text) for clash in nothing.value.causes}
    assert said >= {(None, "numpy<2"), ("opencv", "numpy>=2")}


SHARED: World = {
    "cuda-python": {"12.6.0": (), "13.4.4": ("cuda-bindings~=13.4.4",)},
    "cuda-bindings": {"13.4.4": (), "13.5.0": ()},
    "user": {"1.0": ("cuda-python>=12", "cuda-bindings")},
}


@pytest.mark.parametrize(
    ("asked", "versions"),
    [
        (["user"], ["13.4.4", "13.4.4"]),
        (["cuda-bindings", "cuda-python"], ["13.4.4", "13.4.4"]),
        (["cuda-python<13"], ["12.6.0"]),
        (["cuda-bindings==13.5.0"], ["13.5.0"]),
    ],
)
def test_packages_that_overwrite_one_another_are_never_chosen_together(asked: list[str], versions: list[str]) -> None:
    solution, _ = solved(SHARED, asked, CATALOGUE, FACTS)
    found = [str(one.candidate.version) for name, one in sorted(solution.chosen.items()) if name != "user"]
    assert found == versions


def test_a_request_for_two_owners_of_the_same_files_is_refused_with_their_names() -> None:
    with pytest.raises(UnsolvableError) as nothing:
        solved(SHARED, ["cuda-python", "cuda-bindings==13.5.0"], CATALOGUE, FACTS)
    said = {getattr(clash.parent, "label", "") for clash in nothing.value.causes if isinstance(clash.need, ClaimNeed)}
    assert said == {"cuda-python 12.6.0", "cuda-bindings 13.5.0"}


def test_packages_that_fight_over_a_pin_meet_where_they_can() -> None:
    world: World = {
        "core": {f"2.{n}": () for n in range(60)},
        "trainer": {f"1.{n}": (f"core==2.{n}",) for n in range(60)},
        "server": {f"0.{n}": (f"core==2.{n // 2}",) for n in range(60)},
        **{f"leaf-{n}": dict.fromkeys(map(str, range(5)), ("core",)) for n in range(20)},
    }
    asked = ["trainer", "server", *(f"leaf-{n}" for n in range(20))]
    solution, work = solved(world, asked, CATALOGUE, FACTS)
    assert str(solution.chosen["core"].candidate.version) == "2.29"
    assert work.rounds == len(solution.chosen)


@pytest.mark.parametrize(
    ("line", "only"),
    [
        ("a; extra == 'dev'", "dev"),
        ('a>=1 ; python_version < "3.9" and extra == "Dev_Tools"', "dev-tools"),
        ('a ; (extra == "x")', "x"),
        ('a ; extra == "x" or extra == "y"', None),
        ("a ; python_version<'3'or sys_platform=='linux'and extra == 'x'", None),
        ('a ; extra == "x" and python_version < "3.9"', None),
        ("a ; python_version < '3.9'", None),
        ("a", None),
    ],
)
def test_the_extra_that_a_line_cannot_do_without(line: str, only: str | None) -> None:
    assert only_for(line) == only


def test_two_pins_that_exclude_each_other_are_found_before_any_search(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in what `pip freeze` and `uv export` write; the search came upon this last, if at all."""
    names = [f"package-{n}" for n in range(30)]
    world: World = {
        **{name: {"1.0": (), "2.0": ()} for name in names},
        "server": {"1.0": ("models<5",)},
        "models": {"4.9": (), "5.0": ()},
    }
    monkeypatch.setattr(resolver, "search", None)  # nothing is searched
    with pytest.raises(UnsolvableError) as failure:
        solved(world, [*(f"{name}==1.0" for name in names), "models==5.0", "server==1.0"], CATALOGUE, FACTS)
    assert [cause.need.text for cause in failure.value.causes] == ["models<5", "models==5.0"]


def test_the_torch_that_a_pinned_package_brings_in_is_chosen_at_once() -> None:
    """``sglang[all]==0.5.2`` pins torch by way of an extra; newer ones were tried with all versions of the rest."""
    world: World = {
        "server": {"1.0": ('server[run]; extra == "all"', 'torch==2.8.0; extra == "run"')},
        **{f"helper-{n}": {f"1.{v}": (f"helper-{n + 1}>=1.{v}",) for v in range(30)} for n in range(5)},
        "helper-5": {f"1.{v}": () for v in range(30)},
        **{name: {"99": ()} for name in ("filelock", "fsspec", "jinja2", "networkx", "numpy", "pillow")},
        **{name: {"99": ()} for name in ("setuptools", "sympy", "typing-extensions")},
    }
    asked = ["torchvision", "helper-0", "server[all]==1.0"]
    solution, work = solved(world, asked, CATALOGUE, FACTS, extras={"server": ["all", "run"]})
    assert str(solution.chosen["torch"].candidate.version.public) == "2.8.0"
    assert work.rounds < 40


def test_what_a_dropped_choice_brought_in_does_not_rule_out_the_next_one() -> None:
    """As torch 2.15 with its cuda-toolkit, beside a package that needs an older torch with another cuda-toolkit."""
    world: World = {
        "a": {"2.0": ("kit[x]==2",), "1.9": ("kit[x]==1",), "1.0": ()},
        "b": {"1.0": ("a<2",)},
        "kit": {n: (f'lib=={n}; extra == "x"',) for n in ("1", "2")},
        "lib": {"1": (), "2": ()},
    }
    solution, _ = solved(world, ["a", "b"], CATALOGUE, FACTS, extras={"kit": ["x"]})
    chosen = {name: str(one.candidate.version) for name, one in solution.chosen.items()}
    assert chosen == {"a": "1.9", "b": "1.0", "kit": "1", "lib": "1"}


def test_a_part_that_a_pin_excludes_is_not_tried_again_for_each_version_of_what_needs_it() -> None:
    """As fastmcp, each of whose releases has its fastmcp-slim, beside axolotl, which pins python-dotenv."""
    numbers = range(1, 31)
    world: World = {
        "app": {"1": ("dotenv==1", "host")},
        "dotenv": {"1": (), "2": ()},
        "host": {f"{n}": ("face>=1",) if n > 1 else () for n in numbers},
        "face": {f"{n}": (f"slim=={n}", *(f"beside-{k}" for k in range(5))) for n in numbers},
        "slim": {f"{n}": ("dotenv>=2",) for n in numbers},
        **{f"beside-{k}": {f"{n}": ("dotenv",) for n in range(5)} for k in range(5)},
    }
    solution, work = solved(world, ["app"], CATALOGUE, FACTS)
    assert str(solution.chosen["host"].candidate.version) == "1"
    assert work.rounds < 150


def test_a_pin_that_the_request_itself_excludes_is_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resolver, "search", None)  # nothing is searched
    with pytest.raises(UnsolvableError) as failure:
        solved(
            {"speed": {"0.23.0": (), "0.22.0": ()}}, ["torch==2.1.0", "speed==0.23.0", "speed<0.23"], CATALOGUE, FACTS
        )
    assert failure.value.by_pins
    assert [cause.need.text for cause in failure.value.causes] == ["speed<0.23", "speed==0.23.0"]


def test_a_package_with_one_allowed_version_brings_its_torch_like_a_pin() -> None:
    """``mosaicml>=0.12.1,<0.13`` needs torch below 1.14; there was no answer within 60 s."""
    world: World = {
        "mosaic": {"0.12.1": ("torch<2.8,>=2.7",), "0.13.0": ("torch",), "0.11.0": ("torch<2",)},
        **{f"helper-{n}": {f"1.{v}": (f"helper-{n + 1}>=1.{v}",) for v in range(30)} for n in range(5)},
        "helper-5": {f"1.{v}": () for v in range(30)},
        **{name: {"99": ()} for name in ("filelock", "fsspec", "jinja2", "networkx", "numpy", "pillow")},
        **{name: {"99": ()} for name in ("setuptools", "sympy", "typing-extensions")},
    }
    solution, work = solved(world, ["torchvision", "helper-0", "mosaic>=0.12,<0.13"], CATALOGUE, FACTS)
    assert str(solution.chosen["torch"].candidate.version.public) == "2.7.1"
    assert work.rounds < 40
