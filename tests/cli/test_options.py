"""Options that several commands share."""

from __future__ import annotations

import pytest

from envsolve.cli import options
from envsolve.errors import UsageError


def test_every_target_that_is_given_counts() -> None:
    given = ["V100, driver 580", "RTX 5090, driver 570.86"]
    machines = options.Machines(target=given).named_or_host()
    assert [machine.gpus[0].compute_capability for machine in machines if machine.gpus] == ["7.0", "12.0"]
    changed = options.Machines(target=given, driver="590.44").named_or_host()
    assert [machine.driver.version for machine in changed if machine.driver] == ["590.44", "590.44"]
    assert options.Machines().named() is None


def test_an_empty_target_is_no_machine() -> None:
    with pytest.raises(UsageError):
        options.Machines(target=[""]).named()


@pytest.mark.parametrize(
    ("text", "variant"),
    [
        ("12.8", "cu128"),
        ("cuda 12.8", "cu128"),
        ("cu12.8", "cu128"),
        ("cu128", "cu128"),
        ("cpu", "cpu"),
        ("auto", None),
    ],
)
def test_a_variant_may_be_named_by_its_version(text: str, variant: str | None) -> None:
    assert options.cuda_variant(text) == variant
