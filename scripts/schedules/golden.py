"""Writes test/training/parallel/pipeline/schedule/golden-torch.json: the order in which each rank of
PyTorch's schedules runs its actions, for several numbers of ranks, stages and micro-batches.

    python scripts/schedules/golden.py

Needs torch. No process group is started: only the order is computed.
"""

import json
from pathlib import Path
from types import SimpleNamespace

import torch
from torch.distributed.pipelining import schedules
from torch.distributed.pipelining._utils import generate_rank_to_stage_mapping

NAMES = {
    "interleaved-zb": schedules.ScheduleInterleavedZeroBubble,
    "zb-v": schedules.ScheduleZBVZeroBubble,
    "dualpipe-v": schedules.ScheduleDualPipeV,
}
TARGET = Path(__file__).parents[2] / "test/training/parallel/pipeline/schedule/golden-torch.json"


def order(name: str, ranks: int, chunks: int, microbatches: int) -> list[str]:
    """The actions of each rank: those of pairs that torch overlaps, one after the other."""
    style = "loop" if name == "interleaved-zb" else "v"
    stages = [
        SimpleNamespace(
            group_size=ranks,
            group_rank=0,
            stage_index=stage,
            num_stages=ranks * chunks,
            is_first=stage == 0,
            is_last=stage == ranks * chunks - 1,
            submod=None,
            has_backward=False,
            device=torch.device("cpu"),
            group=None,
            stage_index_to_group_rank={},
        )
        for stage in generate_rank_to_stage_mapping(ranks, ranks * chunks, style=style)[0]
    ]
    made = NAMES[name](stages, microbatches)
    return [
        " ".join(
            repr(action)
            for slot in made.pipeline_order[rank]
            if slot is not None
            for action in (slot.sub_actions or [slot])
        )
        for rank in range(ranks)
    ]


cases = [("interleaved-zb", r, c, m) for r, c, m in [(1, 2, 3), (2, 2, 4), (2, 3, 8), (3, 2, 5), (4, 2, 2), (4, 2, 8), (4, 3, 12)]]
cases += [("zb-v", r, 2, m) for r, m in [(1, 3), (2, 1), (2, 4), (3, 5), (4, 4), (4, 8), (4, 12)]]
cases += [("dualpipe-v", r, 2, m) for r, m in [(1, 2), (2, 4), (2, 7), (3, 6), (4, 8), (4, 10), (4, 16)]]

rows = [
    {"name": name, "ranks": ranks, "chunks": chunks, "microbatches": m, "actions": order(name, ranks, chunks, m)}
    for name, ranks, chunks, m in cases
]
TARGET.write_text(json.dumps({"torch": torch.__version__.split("+")[0], "schedules": rows}, indent=2) + "\n")
