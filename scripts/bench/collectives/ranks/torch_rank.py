"""One rank of the peer PyTorch + gloo: python torch_rank.py OUTPUT op:count:warm_ups:repeats ..."""

import json
import sys
import time

import torch
import torch.distributed as dist


def operation(op, count, rank, ranks):
    """A function that runs `op` once, and the buffers that it reads and writes."""
    full = torch.zeros(count)
    part = torch.zeros(count // ranks)
    other = torch.zeros(count)
    if op == "allReduce":
        return lambda: dist.all_reduce(full), full, full
    if op == "reduceScatter":
        return lambda: dist.reduce_scatter_tensor(part, full), full, part
    if op == "allGather":
        return lambda: dist.all_gather_into_tensor(full, part), part, full
    if op == "broadcast":
        return lambda: dist.broadcast(full, 0), full, full
    if op == "allToAll":
        return lambda: dist.all_to_all_single(other, full), full, other
    if op == "sendRecv":

        def exchange():
            works = dist.batch_isend_irecv(
                [
                    dist.P2POp(dist.isend, full, (rank + 1) % ranks),
                    dist.P2POp(dist.irecv, other, (rank + ranks - 1) % ranks),
                ]
            )
            for work in works:
                work.wait()

        return exchange, full, other
    raise SystemExit(f"unknown operation {op}")


def expected(op, rank, ranks):
    """The first and the last element of the result if the input of every rank is rank + 1."""
    total = ranks * (ranks + 1) / 2
    if op in ("allReduce", "reduceScatter"):
        return total, total
    if op in ("allGather", "allToAll"):
        return 1, ranks
    if op == "broadcast":
        return 1, 1
    left = (rank + ranks - 1) % ranks + 1
    return left, left


def measure(op, count, warm_ups, repeats):
    rank, ranks = dist.get_rank(), dist.get_world_size()
    run, source, target = operation(op, count, rank, ranks)
    source.fill_(rank + 1)
    run()
    if (float(target[0]), float(target[-1])) != expected(op, rank, ranks):
        raise SystemExit(f"rank {rank}: {op} of {count} elements gave {target}")
    source.zero_()
    target.zero_()
    for _ in range(warm_ups):
        dist.barrier()
        run()
    times = torch.zeros(repeats, dtype=torch.float64)
    for i in range(repeats):
        dist.barrier()
        start = time.perf_counter_ns()
        run()
        times[i] = (time.perf_counter_ns() - start) / 1e3
    dist.all_reduce(times, dist.ReduceOp.MAX)
    return times.tolist()


def main(output, steps):
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    lines = []
    for step in steps:
        op, *numbers = step.split(":")
        count, warm_ups, repeats = map(int, numbers)
        us = measure(op, count, warm_ups, repeats)
        lines.append(json.dumps({"op": op, "count": count, "us": us}))
    if dist.get_rank() == 0:
        with open(output, "w", encoding="utf-8") as file:
            file.write("\n".join(lines) + "\n")
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
