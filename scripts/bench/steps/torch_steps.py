"""The peer: torch_steps.py OUTPUT WORKLOADS cpu|cuda, where WORKLOADS is JSON; see step-rank.mjs."""

import json
import sys
import time
from pathlib import Path

import torch
from torch import nn

sys.path.append(str(Path(__file__).parents[1]))
from torch_models import training


device = torch.device(sys.argv[3])
if device.type == "cuda":
    torch.backends.cuda.matmul.allow_tf32 = True  # as TensorFlow


def settle():
    """Waits for the device, as our steps do where they are timed."""
    if device.type == "cuda":
        torch.cuda.synchronize()


def trainer(workload):
    """One training step: forward pass with the cross-entropy, backward pass, and the update if any."""
    model, make, x, labels = training(workload)
    model, x, labels = model.to(device), x.to(device), labels.to(device)
    optimizer = make(model.parameters(), 1e-3)
    updates = workload.get("updates", True)
    criterion = nn.CrossEntropyLoss()

    def run():
        start = time.perf_counter()
        loss = criterion(model(x), labels)
        loss.item()
        recorded = time.perf_counter()
        loss.backward()
        settle()
        differentiated = time.perf_counter()
        if updates:
            optimizer.step()
            optimizer.zero_grad()
            settle()
        end = time.perf_counter()
        optimizer.zero_grad()
        return [recorded - start, differentiated - recorded, end - differentiated]

    return run


def normalizer(workload):
    """Batch normalization of images of 28 x 28, forward and backward."""
    model = nn.BatchNorm2d(workload["width"]).to(device)
    shape = (workload["batch"], workload["width"], 28, 28)
    x = torch.randn(shape, device=device, requires_grad=True)
    dy = torch.randn(shape, device=device)

    def run():
        start = time.perf_counter()
        y = model(x)
        settle()
        normalized = time.perf_counter()
        y.backward(dy)
        settle()
        end = time.perf_counter()
        model.zero_grad()
        x.grad = None
        return [normalized - start, end - normalized, 0]

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
        run = {"matmul": multiplier, "norm": normalizer}.get(workload["kind"], trainer)(workload)
        samples.append({"workload": workload["name"], "times": repeat(workload, run)})
    with open(sys.argv[1], "w", encoding="utf-8") as file:
        name = "CPU" if device.type == "cpu" else torch.cuda.get_device_name(device)
        json.dump({"device": name, "threads": 1, "samples": samples}, file)


main()
