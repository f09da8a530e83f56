"""The peer: torch_checkpoint.py OUTPUT PLAN, where PLAN is JSON; see checkpoint-rank.mjs."""

import json
import sys
import tempfile
import time

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn


def main():
    torch.set_num_threads(1)
    plan = json.loads(sys.argv[2])
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    width, batch = plan["width"], plan["batch"]
    layers = [part for _ in range(plan["layers"]) for part in (nn.Linear(width, width), nn.ReLU())]
    model = nn.Sequential(*layers[:-1])
    optimizer = torch.optim.Adam(model.parameters(), 1e-4)
    criterion = nn.CrossEntropyLoss()
    x, labels = torch.randn(batch, width), torch.arange(batch) % width

    def step():
        begin = time.perf_counter()
        loss = criterion(model(x), labels)
        loss.item()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return 1000 * (time.perf_counter() - begin)

    samples = []
    for _ in range(plan["saves"]):
        before, during = [step() for _ in range(plan["quiet"])], []
        with tempfile.TemporaryDirectory(dir=plan["folder"]) as folder:
            state = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
            begin = time.perf_counter()
            saved = dcp.async_save(state, checkpoint_id=folder)
            stall = 1000 * (time.perf_counter() - begin)
            while not saved.done():
                during.append(step())
            saved.result()
        samples.append({"stallMs": stall, "before": before, "during": during})
    with open(sys.argv[1], "w", encoding="utf-8") as file:
        json.dump(samples, file)
    dist.destroy_process_group()


main()
