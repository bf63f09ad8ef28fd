"""torchvision's own kernel, non-maximum suppression, keeps the boxes on the GPU that it should."""

from __future__ import annotations

NAME = "torchvision-nms"
RUNS_ON = "gpu"
ORDER = 70
NEEDS = ("torch", "torchvision")

COUNT = 500


def check(ordinal):
    """Of boxes in pairs, apart from all others, the better one of each pair stays, best first."""
    import torch
    import torchvision

    device = torch.device("cuda", int(ordinal))
    corner = 100.0 * torch.arange(COUNT)
    better = torch.stack([corner, corner, corner + 10, corner + 10], 1)
    boxes = torch.cat([better + 1, better])  # The pair overlaps by 81 of 119: more than half.
    scores = torch.cat([torch.arange(COUNT), COUNT + torch.arange(COUNT)]).float()
    kept = torchvision.ops.nms(boxes.to(device), scores.to(device), 0.5).cpu().tolist()
    expected = list(range(2 * COUNT - 1, COUNT - 1, -1))
    if kept != expected:
        same = len(set(kept) & set(expected))
        raise ArithmeticError("nms kept {} boxes, {} of them the {} right ones".format(len(kept), same, COUNT))
    return {"detail": "torchvision {}: nms keeps the right {} boxes".format(torchvision.__version__, COUNT)}
