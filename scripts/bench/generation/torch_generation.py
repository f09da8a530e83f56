"""The peer: torch_generation.py OUTPUT PLAN, where PLAN is JSON; see generation-rank.mjs."""

import json
import sys
import time
from pathlib import Path

import torch

sys.path.append(str(Path(__file__).parents[1]))
from torch_models import gpt_of


class Cache:
    """The keys and values of a block for all positions that there will be."""

    def __init__(self, plan):
        shape = (1, plan["heads"], plan["block"], plan["width"] // plan["heads"])
        self.keys, self.values, self.length = torch.empty(shape), torch.empty(shape), 0

    def extended(self, k, v):
        begin, self.length = self.length, self.length + k.shape[2]
        self.keys[:, :, begin : self.length] = k
        self.values[:, :, begin : self.length] = v
        return self.keys[:, :, : self.length], self.values[:, :, : self.length]


def generate(model, plan, cached):
    """Draws tokens at a temperature of 1 after a first one; the milliseconds that it takes."""
    begin = time.perf_counter()
    caches = [Cache(plan) for _ in range(plan["layers"])] if cached else None
    text = torch.zeros(1, 1, dtype=torch.long)
    for i in range(plan["tokens"]):
        hidden = model.hidden(text[:, i:], i, caches) if cached else model.hidden(text)
        scores = model.lm_head(hidden[0, -1])
        token = torch.multinomial(scores.softmax(0), 1).item()
        text = torch.cat([text, torch.tensor([[token]])], dim=1)
    return 1000 * (time.perf_counter() - begin)


def main():
    torch.set_num_threads(1)
    plan = json.loads(sys.argv[2])
    plan["block"] = plan["tokens"] + 1
    with torch.inference_mode():
        model = gpt_of(plan)
        generate(model, plan, True)
        cached = generate(model, plan, True)
        whole = generate(model, plan, False) if plan["whole"] else None
    with open(sys.argv[1], "w", encoding="utf-8") as file:
        json.dump({"cachedMs": cached, "wholeMs": whole}, file)


main()
