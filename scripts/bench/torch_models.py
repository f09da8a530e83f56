"""The models, optimizers and data that the programs of the peer train; see steps/trainings.mjs."""

import torch
from torch import nn
from torch.nn import functional as F


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

    def forward(self, x, cache=None):
        """With a cache, x is a sequence of which the cache has nothing yet, or one token."""
        batch, length, width = x.shape
        rows = self.c_attn(self.ln_1(x)).split(width, dim=2)
        q, k, v = (part.view(batch, length, self.heads, -1).transpose(1, 2) for part in rows)
        if cache is not None:
            k, v = cache.extended(k, v)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=length > 1)
        x = x + self.c_proj(y.transpose(1, 2).reshape(batch, length, width))
        return x + self.mlp(self.ln_2(x))


class GPT(nn.Module):
    """A GPT with learned positions; its head has the table of the tokens if it is tied."""

    def __init__(self, layers, width, heads, block, vocabulary, tied=False):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(vocabulary, width), nn.Embedding(block, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.ln_f = nn.LayerNorm(width)
        self.lm_head = nn.Linear(width, vocabulary, bias=False)
        if tied:
            self.lm_head.weight = self.wte.weight

    def forward(self, tokens):
        return self.lm_head(self.hidden(tokens)).flatten(0, 1)

    def hidden(self, tokens, begin=0, caches=None):
        """The values before the head, of tokens whose first position is `begin`."""
        end = begin + tokens.shape[1]
        x = self.wte(tokens) + self.wpe(torch.arange(begin, end, device=tokens.device))
        for i, block in enumerate(self.blocks):
            x = block(x, caches and caches[i])
        return self.ln_f(x)


def gpt_of(workload):
    names = ("layers", "width", "heads", "block", "vocabulary")
    return GPT(**{name: workload[name] for name in names}, tied=workload.get("tied", False))


def gpt(workload):
    """A GPT and AdamW."""
    size = (2, workload["batch"], workload["block"])
    tokens = torch.randint(workload["vocabulary"], size)
    return gpt_of(workload), torch.optim.AdamW, tokens[0], tokens[1].flatten()


def cnn(workload):
    """Two convolutions with max pooling and a hidden layer, on images of 28 x 28, and Adam."""
    width, batch = workload["width"], workload["batch"]
    model = nn.Sequential(
        *(nn.Conv2d(1, width, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(width, 2 * width, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Flatten(), nn.Linear(98 * width, 128), nn.ReLU(), nn.Linear(128, 10)),
    )
    return model, torch.optim.Adam, torch.rand(batch, 1, 28, 28), torch.randint(10, (batch,))


def training(workload):
    """The model of a workload, the class of its optimizer, its inputs and its labels."""
    return {"mlp": mlp, "gpt": gpt, "cnn": cnn}[workload["kind"]](workload)
