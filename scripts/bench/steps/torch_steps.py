"""The peer: torch_steps.py OUTPUT WORKLOADS cpu|cuda, where WORKLOADS is JSON; see step-rank.mjs."""

import json
import sys
import time

import torch
from torch import nn
from torch.nn import functional as F


device = torch.device(sys.argv[3])
if device.type == "cuda":
    torch.backends.cuda.matmul.allow_tf32 = True  # as TensorFlow


def settle():
    """Waits for the device, as our steps do where they are timed."""
    if device.type == "cuda":
        torch.cuda.synchronize()


def mlp(workload):
    """Linear layers with ReLUs between, and plain SGD."""
    width, batch = workload["width"], workload["batch"]
    layers = [nn.Linear(width, width) for _ in range(workload["layers"])]
    modules = [part for layer in layers[:-1] for part in (layer, nn.ReLU())]
    model = nn.Sequential(*modules, layers[-1])
    x = torch.randn(batch, width)
    return model, torch.optim.SGD, x, torch.arange(batch) % width


class Block(nn.Module):
    """A block of GPT-2."""

    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.ln_1, self.ln_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.c_attn, self.c_proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(approximate="tanh"), nn.Linear(4 * width, width)
        )

    def forward(self, x):
        batch, length, width = x.shape
        rows = self.c_attn(self.ln_1(x)).split(width, dim=2)
        q, k, v = (part.view(batch, length, self.heads, -1).transpose(1, 2) for part in rows)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.c_proj(y.transpose(1, 2).reshape(batch, length, width))
        return x + self.mlp(self.ln_2(x))


class GPT(nn.Module):
    """A GPT with learned positions and an output head of its own."""

    def __init__(self, layers, width, heads, block, vocabulary):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(vocabulary, width), nn.Embedding(block, width)
        self.blocks = nn.Sequential(*(Block(width, heads) for _ in range(layers)))
        self.ln_f = nn.LayerNorm(width)
        self.lm_head = nn.Linear(width, vocabulary, bias=False)

    def forward(self, tokens):
        positions = self.wpe(torch.arange(tokens.shape[1], device=tokens.device))
        x = self.blocks(self.wte(tokens) + positions)
        return self.lm_head(self.ln_f(x)).flatten(0, 1)


def gpt(workload):
    """A GPT and AdamW."""
    sizes = {key: workload[key] for key in ("layers", "width", "heads", "block", "vocabulary")}
    tokens = torch.randint(sizes["vocabulary"], (2, workload["batch"], sizes["block"]))
    return GPT(**sizes), torch.optim.AdamW, tokens[0], tokens[1].flatten()


def cnn(workload):
    """Two convolutions with max pooling and a hidden layer, on images of 28 x 28, and Adam."""
    width, batch = workload["width"], workload["batch"]
    model = nn.Sequential(
        *(nn.Conv2d(1, width, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(width, 2 * width, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Flatten(), nn.Linear(98 * width, 128), nn.ReLU(), nn.Linear(128, 10)),
    )
    return model, torch.optim.Adam, torch.rand(batch, 1, 28, 28), torch.randint(10, (batch,))


def trainer(workload):
    """One training step: forward pass with the cross-entropy, backward pass, update."""
    model, make, x, labels = {"mlp": mlp, "gpt": gpt, "cnn": cnn}[workload["kind"]](workload)
    model, x, labels = model.to(device), x.to(device), labels.to(device)
    optimizer = make(model.parameters(), 1e-3)
    criterion = nn.CrossEntropyLoss()

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
        run = multiplier(workload) if workload["kind"] == "matmul" else trainer(workload)
        samples.append({"workload": workload["name"], "times": repeat(workload, run)})
    with open(sys.argv[1], "w", encoding="utf-8") as file:
        name = "CPU" if device.type == "cpu" else torch.cuda.get_device_name(device)
        json.dump({"device": name, "threads": 1, "samples": samples}, file)


main()
