"""The solver against brute force: on small random worlds both find an answer, or neither does."""

from __future__ import annotations

import itertools
from collections.abc import Mapping

from hypothesis import example, given, settings
from hypothesis import strategies as st
from packaging.requirements import Requirement
from packaging.version import Version

from envsolve.facts.catalogue import Catalogue
from envsolve.rules.nvidia import Facts
from envsolve.solve.resolver import Solution, UnsolvableError
from tests.solve.worlds import World, solved

NAMES = ("a", "b", "c", "d")
VERSIONS = ("1", "2", "3")

CATALOGUE = Catalogue()
FACTS = Facts.of(CATALOGUE)


specifiers = st.one_of(
    st.just(""),
    st.builds("{}{}".format, st.sampled_from([">=", "<", "==", "!="]), st.sampled_from(VERSIONS)),
)
lines = st.builds("{}{}".format, st.sampled_from(NAMES), specifiers)
worlds = st.fixed_dictionaries(
    {
        name: st.dictionaries(st.sampled_from(VERSIONS), st.lists(lines, max_size=3).map(tuple), min_size=1)
        for name in NAMES
    }
)


# Where a package's dependencies lead back to it, resolvelib may give up its newest version, as pip does.
later_lines = {
    name: st.builds("{}{}".format, st.sampled_from(NAMES[i + 1 :]), specifiers) for i, name in enumerate(NAMES[:-1])
}
acyclic_worlds = st.fixed_dictionaries(
    {
        name: st.dictionaries(
            st.sampled_from(VERSIONS),
            st.lists(later_lines[name], max_size=3).map(tuple) if name in later_lines else st.just(()),
            min_size=1,
        )
        for name in NAMES
    }
)


def by_solver(world: World, asked: list[str]) -> Solution | None:
    try:
        return solved(world, asked, CATALOGUE, FACTS)[0]
    except UnsolvableError:
        return None


def satisfied(chosen: Mapping[str, str], line: str) -> bool:
    requirement = Requirement(line)
    return requirement.name in chosen and requirement.specifier.contains(chosen[requirement.name])


def holds(world: World, asked: list[str], chosen: Mapping[str, str]) -> bool:
    needs = [*asked, *(line for name, version in chosen.items() for line in world[name][version])]
    return all(satisfied(chosen, line) for line in needs)


def answerable(world: World, asked: list[str]) -> bool:
    choices = [[None, *world[name]] for name in NAMES]
    for combination in itertools.product(*choices):
        chosen = {name: v for name, v in zip(NAMES, combination, strict=True) if v is not None}
        if holds(world, asked, chosen):
            return True
    return False


# A package that asks for itself: what it meets itself must not keep the solver from its other versions.
SELF_NEEDED: World = {"a": {"3": ()}, "b": {"1": (), "2": ("b>=2",)}, "c": {"1": ("b<2",)}, "d": {"1": ("c",)}}


# What a dropped choice brought in is needed by the next one as well.
NEEDED_AGAIN: World = {"a": {"1": ("d<2",)}, "b": {"1": ()}, "c": {"1": ("a",)}, "d": {"1": ("c",), "2": ("c",)}}


@example(SELF_NEEDED, ["b", "d"])
@example(NEEDED_AGAIN, ["d"])
@settings(max_examples=2 * settings().max_examples)
@given(worlds, st.lists(lines, min_size=1, max_size=3))
def test_the_solver_finds_an_answer_exactly_where_there_is_one(world: World, asked: list[str]) -> None:
    solution = by_solver(world, asked)
    assert (solution is not None) == answerable(world, asked)
    if solution is not None:
        chosen = {name: str(c.candidate.version) for name, c in solution.chosen.items()}
        assert holds(world, asked, chosen)
        reached = {Requirement(line).name for line in asked}
        for _ in NAMES:
            reached |= {r for name in reached for r in solution.chosen[name].requires}
        assert set(chosen) == reached


@given(worlds, st.lists(lines, min_size=1, max_size=3))
def test_the_order_of_the_request_does_not_matter(world: World, asked: list[str]) -> None:
    one, other = by_solver(world, asked), by_solver(world, asked[::-1])
    assert (one is None) == (other is None)
    if one is not None and other is not None:
        assert {n: c.candidate for n, c in one.chosen.items()} == {n: c.candidate for n, c in other.chosen.items()}


@given(acyclic_worlds, st.sampled_from(NAMES))
def test_a_lone_request_gets_the_newest_version_that_can_be_had(world: World, name: str) -> None:
    solution = by_solver(world, [name])
    possible = [Version(v) for v in world[name] if answerable(world, [f"{name}=={v}"])]
    assert (solution is None) == (not possible)
    if solution is not None:
        assert solution.chosen[name].candidate.version == max(possible)
