"""Slurm: a job that sums over all GPUs of several nodes, to find the links on which NCCL fails."""

from __future__ import annotations

import shlex
from pathlib import Path

from envsolve.fleet.plan import FleetPlan

_TEXT = """\
#!/bin/sh
# sbatch --nodes=2 --ntasks-per-node=1 --gpus-per-node=8 FILE
# One process of torchrun on each node, and below it one for each GPU. It ends with exit code 1 and the rank if a sum is
# wrong, and with NCCL's own message if a link fails: NCCL_DEBUG=WARN names it.
#SBATCH --time=10
export MASTER_ADDR="$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)" MASTER_PORT="${{MASTER_PORT:-29417}}"
export NCCL_DEBUG="${{NCCL_DEBUG:-WARN}}"
check=$(cat <<'END'
import datetime, os, socket, time
import torch
import torch.distributed as dist
torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
dist.init_process_group("nccl", timeout=datetime.timedelta(seconds=120))
rank, count = dist.get_rank(), dist.get_world_size()
for size in (1, 2**20, 2**26):
    data = torch.full((size,), rank + 1.0, device="cuda")
    started = time.monotonic()
    dist.all_reduce(data)
    torch.cuda.synchronize()
    seconds = time.monotonic() - started
    wrong = int((data != count * (count + 1) / 2).sum())
    assert not wrong, f"rank {{rank}} on {{socket.gethostname()}}: {{wrong}} of {{size}} sums are wrong"
if rank == 0:
    nodes = os.environ["SLURM_JOB_NUM_NODES"]
    print(f"NCCL sums over {{count}} GPUs of {{nodes}} nodes: right, 256 MiB in {{seconds:.3f}} s")
dist.destroy_process_group()
END
)
export check
log=$(mktemp)
# Each wait has an end, in this order: a node that cannot load torch, one that does not join, one that hangs in a sum,
# and at last one whose processes cannot be killed.
{{ timeout -k 30 540 srun --kill-on-bad-exit=1 sh -c '
  node=${{SLURMD_NODENAME:-$(hostname)}}
  gpus=$(echo "${{CUDA_VISIBLE_DEVICES:-0}}" | tr , "\n" | wc -l)
  timeout -k 5 120 '{python}' -c "import torch" && echo "$node: ready" || {{
    echo "$node: cannot load torch within 120 s" >&2; exit 1; }}
  file=$(mktemp) && printf "%s\n" "$check" > "$file"
  timeout -k 5 360 '{python}' -m torch.distributed.run --nnodes "$SLURM_JOB_NUM_NODES" --nproc-per-node "$gpus" \
    --rdzv-backend c10d --rdzv-conf join_timeout=150 --rdzv-id "$SLURM_JOB_ID" \
    --rdzv-endpoint "$MASTER_ADDR:$MASTER_PORT" "$file"
  code=$?; rm -f "$file"
  [ $code -eq 0 ] || echo "$node: ended with exit code $code" >&2
  exit $code' 2>&1; echo $? > "$log.code"; }} | tee "$log"
for node in $(scontrol show hostnames "$SLURM_JOB_NODELIST"); do
  grep -q "^$node: ready" "$log" || echo "$node: did not get ready"
done
code=$(cat "$log.code"); rm -f "$log" "$log.code"
exit "$code"
"""


def render(fleet: Path, _: FleetPlan, python: str) -> str:
    """Return a batch script."""
    words = [python, "-m", "envsolve", "run", "--fleet", str(fleet), "--", "python"]
    return _TEXT.format(python=shlex.quote(shlex.join(words)))
