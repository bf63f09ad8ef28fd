"""A problem of attention whose answer is known exactly, whatever the kernel.

Keys are the rows of a unit matrix. A query of the first half is a multiple of one key, so large that softmax leaves
that key alone: its row of the answer is a row of the values. A query of the second half is zero: its row is the mean of
all values, over a power of two. Both are exact in float32, and so is their rounding to the kernel's type.
"""

from __future__ import annotations

LENGTH = WIDTH = 64
HEADS = 4
# By softmax's scale of 1/8 this is a score of 128 against zeros, and exp(-128) is zero in float32.
LARGE = 1024.0


def problem(torch):
    """Queries, keys, values and the answer, float64 on the CPU, of shape (1, heads, length, width)."""
    torch.manual_seed(0)
    half = LENGTH // 2
    unit = torch.eye(LENGTH, WIDTH, dtype=torch.float64)
    chosen = torch.stack([torch.randperm(LENGTH)[:half] for _ in range(HEADS)])
    queries = torch.zeros(1, HEADS, LENGTH, WIDTH, dtype=torch.float64)
    queries[0, :, :half] = LARGE * unit[chosen]
    keys = unit.expand(1, HEADS, LENGTH, WIDTH).contiguous()
    values = torch.randint(-8, 8, (1, HEADS, LENGTH, WIDTH)).double()
    answer = values.mean(2, keepdim=True).expand_as(values).clone()
    for head in range(HEADS):
        answer[0, head, :half] = values[0, head, chosen[head]]
    return queries, keys, values, answer
