"""Requests that made resolvers famous for not ending, on the index of one day: rounds of the solver, counted.

In a test of every day ``tests/resolve/test_storms.py`` has them in small.
"""

from __future__ import annotations

import pytest

import envsolve
from envsolve import Request
from tests.rounds import counted

pytestmark = pytest.mark.network
DAY = "2026-11-25"  # no release after it changes the work
_PROVIDERS = "amazon,google,microsoft-azure,postgres,celery,cncf-kubernetes,snowflake,databricks,apache-spark"


@pytest.mark.parametrize(
    ("asked", "most"),
    [
        ([f"apache-airflow[{_PROVIDERS}]"], 2000),
        (["boto3", "botocore", "aiobotocore", "s3fs"], 200),
        (["boto3", "s3fs", "aiobotocore", "awscli", "urllib3<2"], 200),
        (["boto3", "s3fs", "urllib3<1.25.4"], 500),
        (["sagemaker", "boto3", "s3fs", "mlflow", "urllib3<2"], 1000),
        (["vllm", "numba", "numpy<2"], 2000),
        (["torch==2.6.*", "vllm", "xformers", "transformers"], 1000),
        (["vllm", "unsloth", "axolotl"], 3_000),
    ],
    ids=lambda given: " ".join(given) if isinstance(given, list) else "",
)
def test_a_famous_storm_ends(asked: list[str], most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rounds = counted(monkeypatch)
    machine = envsolve.describe_target("H100, driver 580.95.05, python 3.12, linux-x86_64, glibc 2.36")
    assert envsolve.plan(Request(asked, exclude_newer=DAY), [machine]).status == "ok"
    assert sum(rounds) <= most
