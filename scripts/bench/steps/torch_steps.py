"""The peer: torch_steps.py OUTPUT WORKLOADS cpu|cuda, where WORKLOADS is JSON; see step-rank.mjs."""

import json
import sys
import time

import torch
from torch import nn


device = torch.device(sys.argv[3])
if device.type == "cuda":
    torch.backends.cuda.matmul.allow_tf32 = True  # as TensorFlow


def settle():
    """Waits for the device, as our steps do where they are timed."""
    if device.type == "cuda":
        torch.cuda.synchronize()


def trainer(workload):
    """One training step: linear layers with ReLUs between, cross-entropy, plain SGD."""
    width, batch = workload["width"], workload["batch"]
    layers = [nn.Linear(width, width) for _ in range(workload["layers"])]
    modules = [part for layer in layers[:-1] for part in (layer, nn.ReLU())]
    model = nn.Sequential(*modules, layers[-1]).to(device)
    optimizer = torch.optim.SGD(model.parameters(), 1e-3)
    criterion = nn.CrossEntropyLoss()
    x = torch.randn(batch, width, device=device)
    labels = torch.arange(batch, device=device) % width

    def run():
        start = time.perf_counter()
        loss = criterion(model(x), labels)
        loss.item()
        recorded = time.perf_counter()
        loss.backward()
        settle()
        differentiated = time.perf_counter()
        optimizer.step()
        optimizer.zero_grad()
        settle()
        end = time.perf_counter()
        return [recorded - start, differentiated - recorded, end - differentiated]

    return run


def multiplier(workload):
    """One product of square matrices."""
    width = workload["width"]
    a, b = (torch.randn(width, width, device=device) for _ in range(2))

    def run():
        start = time.perf_counter()
        a @ b
        settle()
        return [time.perf_counter() - start, 0, 0]

    return run


def repeat(workload, run):
    end = time.perf_counter() + workload["seconds"]
    for i in range(workload["warmUps"]):
        if i > 0 and time.perf_counter() > end:
            break
        run()
    times = []
    while len(times) < workload["repeats"] and (len(times) < 3 or time.perf_counter() < end):
        times.append([1000 * seconds for seconds in run()])
    return times


def main():
    torch.set_num_threads(1)
    samples = []
    for workload in json.loads(sys.argv[2]):
        run = trainer(workload) if workload["kind"] == "mlp" else multiplier(workload)
        samples.append({"workload": workload["name"], "times": repeat(workload, run)})
    with open(sys.argv[1], "w", encoding="utf-8") as file:
        name = "CPU" if device.type == "cpu" else torch.cuda.get_device_name(device)
        json.dump({"device": name, "threads": 1, "samples": samples}, file)


main()
