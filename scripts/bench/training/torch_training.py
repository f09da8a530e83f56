"""One rank of the peer: torch_training.py OUTPUT PLAN, where PLAN is JSON; see training-rank.mjs."""

import json
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.pipelining import PipelineStage, Schedule1F1B
from torch.nn.parallel import DistributedDataParallel

sys.path.append(str(Path(__file__).parents[1]))
from torch_models import training

LEARNING_RATE = 1e-3


def network(workload, first, end):
    """The linear layers [first, end) of a network that has a ReLU between any two layers."""
    width = workload["width"]
    parts = []
    for layer in range(first, end):
        parts.append(nn.Linear(width, width))
        if layer < workload["layers"] - 1:
            parts.append(nn.ReLU())
    return nn.Sequential(*parts)


def batch_of(workload, rows):
    return torch.randn(rows, workload["width"]), torch.arange(rows) % workload["width"]


def replica(workload, bucket):
    """Every rank has the whole network, and an equal share of the batch."""
    ranks = dist.get_world_size()
    model, make, x, labels = training({**workload, "batch": workload["batch"] // ranks})
    if ranks > 1:
        model = DistributedDataParallel(model, bucket_cap_mb=bucket)
    optimizer = make(model.parameters(), LEARNING_RATE)
    criterion = nn.CrossEntropyLoss()

    def step():
        loss = criterion(model(x), labels)
        loss.item()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


def stage(workload, microbatches):
    """Each rank has some of the layers."""
    rank, ranks, layers = dist.get_rank(), dist.get_world_size(), workload["layers"]
    own = network(workload, rank * layers // ranks, (rank + 1) * layers // ranks)
    optimizer = torch.optim.SGD(own.parameters(), LEARNING_RATE)
    worker = PipelineStage(own, rank, ranks, torch.device("cpu"))
    schedule = Schedule1F1B(worker, microbatches, loss_fn=nn.CrossEntropyLoss())
    x, labels = batch_of(workload, workload["batch"])
    given = (x,) if rank == 0 else ()

    def step():
        if rank == ranks - 1:
            losses = []
            schedule.step(*given, target=labels, losses=losses)
            torch.stack(losses).mean().item()
        else:
            schedule.step(*given)
        optimizer.step()
        optimizer.zero_grad()

    return step


def measure(workload, step):
    """The milliseconds that each step took on the slowest rank."""
    own, i, begin = [], -workload["warmUps"], time.perf_counter()
    while len(own) < workload["repeats"]:
        elapsed = torch.tensor(time.perf_counter() - begin)
        dist.all_reduce(elapsed, dist.ReduceOp.MAX)  # starts the step on all ranks
        is_over = elapsed.item() > workload["seconds"]
        if is_over and len(own) >= 3:
            break
        start = time.perf_counter()
        step()
        if i >= 0 or is_over:
            own.append(1000 * (time.perf_counter() - start))
        i += 1
    times = torch.tensor(own, dtype=torch.float64)
    dist.all_reduce(times, dist.ReduceOp.MAX)
    return times.tolist()


def main():
    plan = json.loads(sys.argv[2])
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    samples = []
    for workload in plan["workloads"]:
        for mode in plan["modes"]:
            if mode == "1f1b" and workload["kind"] != "mlp":
                continue
            if mode == "1f1b":
                step = stage(workload, plan["microbatches"])
            else:
                step = replica(workload, plan["bucketMiB"])
            samples.append({"workload": workload["name"], "mode": mode, "ms": measure(workload, step)})
    if dist.get_rank() == 0:
        with open(sys.argv[1], "w", encoding="utf-8") as file:
            json.dump({"device": "CPU", "threads": 1, "samples": samples}, file)
    dist.destroy_process_group()


main()
