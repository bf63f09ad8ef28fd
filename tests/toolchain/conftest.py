"""The small worlds of planning: which toolchain a plan takes is tested on whole plans, too."""

from __future__ import annotations

from tests.planning.conftest import torch_world, world

__all__ = ["torch_world", "world"]
