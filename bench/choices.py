"""Holds envsolve's choice of versions against uv's on generated sets of requirements and on given files.

A set is a few common GPU packages and a few others, some with a limit at a version that the index has; the seed decides
which. Each difference is put down to a rule (``bench.compare``), to a newer version of another package in return, or to
nothing: those are the ones to look at. Both tools run on this machine's Python; envsolve plans for an H100.

    python -m bench.choices [--sets 200] [--seed 1] [--save] [FILE ...]
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from packaging.version import Version

from bench.compare import differences, refusal
from bench.peers import Bench
from bench.processes import Sample, sample
from envsolve.errors import EnvsolveError
from envsolve.packages.client import IndexClient
from envsolve.packages.settings import read_settings

RESULTS = Path(__file__).with_name("results") / "choices.json"
GPU = [
    "torch",
    "torchvision",
    "torchaudio",
    "transformers",
    "accelerate",
    "diffusers",
    "bitsandbytes",
    "peft",
    "trl",
    "lightning",
    "timm",
    "kornia",
    "torchmetrics",
    "sentence-transformers",
    "xformers",
    "vllm",
    "torchao",
    "flashinfer-python",
    "jax[cuda12]",
    "tensorflow",
    "onnxruntime-gpu",
    "ultralytics",
    "open-clip-torch",
    "torch-geometric",
    "torchcodec",
    "openai-whisper",
    "faster-whisper",
    "datasets",
    "einops",
    "safetensors",
    "deepspeed",
    "cupy-cuda12x",
]
OTHERS = [
    "numpy",
    "scipy",
    "pandas",
    "scikit-learn",
    "matplotlib",
    "pillow",
    "opencv-python-headless",
    "gradio",
    "streamlit",
    "fastapi",
    "pydantic",
    "uvicorn",
    "httpx",
    "requests",
    "aiohttp",
    "tqdm",
    "rich",
    "typer",
    "click",
    "huggingface-hub",
    "tokenizers",
    "sentencepiece",
    "protobuf",
    "tensorboard",
    "wandb",
    "mlflow",
    "hydra-core",
    "omegaconf",
    "librosa",
    "soundfile",
    "numba",
    "llvmlite",
    "networkx",
    "sympy",
    "spacy",
    "nltk",
    "jupyterlab",
    "ipywidgets",
    "pytest",
    "ray",
    "dask",
    "pyarrow",
    "boto3",
]
_OPERATORS = ("<", "<=", "==", ">=", "~=")


def sets(count: int, seed: int, client: IndexClient) -> Iterator[list[str]]:
    """Sets of requirements, the same for one seed as long as the index lists the same versions."""
    chance = random.Random(seed)
    for _ in range(count):
        gpu = chance.sample(GPU, chance.choice((1, 1, 2, 3)))
        others = chance.sample(OTHERS, chance.choice((0, 1, 2, 3)))
        yield [name + (_limit(name, chance, client) if chance.random() < 0.35 else "") for name in (*gpu, *others)]


def _limit(name: str, chance: random.Random, client: IndexClient) -> str:
    listed = client.listing(name.partition("[")[0]).versions
    stable = [text for text in listed if not Version(text).is_prerelease]
    if not stable:
        return ""
    # Of the newest third: most older releases have no wheel for this Python.
    version = chance.choice(stable[-max(1, len(stable) // 3) :]).partition("+")[0]
    operator = chance.choice(_OPERATORS)
    return "" if operator == "~=" and "." not in version else f"{operator}{version}"


def compared(name: str, file: Path, bench: Bench) -> dict[str, Any]:
    """Both tools on one file: how they ended, their seconds, and the differences of their choices."""
    plan = sample(bench.planned(file))
    pins = sample(bench.uv(file))
    found: dict[str, Any] = {
        "name": name,
        "asked": file.read_text(encoding="utf-8").split("\n")[:-1],
        "envsolve": {"code": plan.code, "seconds": round(plan.wall, 2)},
        "uv": {"code": pins.code, "seconds": round(pins.wall, 2)},
    }
    if plan.code or pins.code:
        said = plan if plan.code else pins
        ended = _ended(plan, pins)
        if ended.startswith("only uv") and (rule := refusal(plan.output)):
            return found | {"kind": "refused by a rule", "rule": rule, "said": said.output[-600:]}
        return found | {"kind": ended, "said": said.output[-600:]}
    listed = differences(plan.output, pins.output)
    return found | {"kind": kind(listed), "differences": listed}


def _ended(plan: Sample, pins: Sample) -> str:
    if plan.code and pins.code:
        return "neither answers"
    return f"only uv answers (exit code {plan.code})" if plan.code else "only envsolve answers"


def kind(found: Sequence[dict[str, Any]]) -> str:
    """What the differences of one set come to."""
    if not found:
        return "same"
    rest = [one for one in found if one["rule"] is None]
    if not rest:
        return "a rule"
    both = [(Version(one["envsolve"]), Version(one["peer"])) for one in rest if one["envsolve"] and one["peer"]]
    older, newer = [one for one in both if one[0] < one[1]], [one for one in both if one[0] > one[1]]
    if not older:
        return "newer"
    return "older for newer" if newer else "older without a reason"


def main() -> None:
    """Compare, print a table and the differences without a rule."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--sets", type=int, default=200)
    options.add_argument("--seed", type=int, default=1)
    options.add_argument("--save", action="store_true", help=f"write {RESULTS.name}")
    options.add_argument("files", nargs="*", type=Path)
    given = options.parse_args()
    done: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as scratch:
        here = Path(sys.prefix)
        bench = Bench(here, here, Path(scratch))
        with IndexClient(read_settings(), cache_dir=Path(scratch) / "listing") as client:
            asked = list(sets(given.sets, given.seed, client))
        for number, lines in enumerate(asked):
            file = Path(scratch) / f"set{number:03}.txt"
            file.write_text("\n".join(lines) + "\n", encoding="utf-8")
            done.append(compared(f"set {number}", file, bench))
            _say(done[-1])
        for file in given.files:
            done.append(compared(file.name, file, bench))
            _say(done[-1])
    print(table(done))
    if given.save:
        made = {"date": time.strftime("%Y-%m-%d"), "seed": given.seed, "sets": done}
        RESULTS.write_text(json.dumps(made, indent=1) + "\n", encoding="utf-8")


def _say(one: dict[str, Any]) -> None:
    print(one["name"], " ".join(one["asked"])[:90], "->", one["kind"], one["envsolve"]["seconds"], file=sys.stderr)


def table(done: Sequence[dict[str, Any]]) -> str:
    """The counts and times, then what has no rule."""
    lines = [f"- {name}: {count}" for name, count in Counter(one["kind"] for one in done).most_common()]
    times = sorted(one["envsolve"]["seconds"] for one in done)
    lines.append(f"- seconds of envsolve: median {statistics.median(times)}, at most {times[-1]}")
    for one in done:
        rest = [d for d in one.get("differences", ()) if d["rule"] is None]
        if one["kind"].startswith("older") or "only uv" in one["kind"]:
            told = (
                "; ".join(f"{d['package']} {d['envsolve']} (uv {d['peer']})" for d in rest)
                or one["said"].strip()[-200:]
            )
            lines.append(f"- {one['kind']}: {' '.join(one['asked'])}: {told}")
    return "\n".join(lines)


if __name__ == "__main__":
    try:
        main()
    except EnvsolveError as error:
        sys.exit(str(error))
