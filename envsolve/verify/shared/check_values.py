"""Comparing what a GPU computed with what is known: equality, value by value."""

from __future__ import annotations


def expect_equal(found, expected, what):
    """Fail unless a tensor of the GPU holds exactly the values of one on the CPU, rounded to its own type.

    Args:
        found: On the GPU, of any type.
        expected: On the CPU, float64, exact.
        what: Names the computation in the error.
    """
    right = expected.to(found.dtype).double()
    wrong = int((found.cpu().double() != right).sum())  # NaN equals nothing, so it is wrong.
    if wrong or found.shape != expected.shape:
        raise ArithmeticError("{}: {} of {} values differ from the CPU's".format(what, wrong, expected.numel()))
