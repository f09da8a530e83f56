"""Writes the golden values of test/models/fixtures: a tiny GPT-2 with random weights, made and
run by transformers and torch. Run it again only to change the model:

    pip install torch transformers safetensors
    python test/interop/torch/make-gpt2.py test/models/fixtures
"""

import json
import sys
from pathlib import Path

import torch
from transformers import GPT2Config, GPT2LMHeadModel

folder = Path(sys.argv[1]) / "gpt2"
torch.manual_seed(0)
config = GPT2Config(
    vocab_size=23, n_positions=24, n_embd=16, n_layer=2, n_head=4, initializer_range=0.4,
    resid_pdrop=0, embd_pdrop=0, attn_pdrop=0, bos_token_id=None, eos_token_id=None,
)
model = GPT2LMHeadModel(config).eval()
with torch.no_grad():
    for name, parameter in model.named_parameters():
        # biases and norms would not matter at 0 and 1
        if parameter.ndim == 1:
            parameter.add_(torch.randn_like(parameter) * 0.3)
# sharded: several files and an index
model.save_pretrained(folder, max_shard_size="20KB")

prompt = [3, 14, 1, 5, 9]
tokens = torch.tensor([prompt])
with torch.no_grad():
    logits = model.double()(tokens).logits[0]
    text = list(prompt)
    for _ in range(15):
        text.append(int(model(torch.tensor([text])).logits[0, -1].argmax()))
golden = {"torch": torch.__version__, "prompt": prompt, "logits": logits.tolist(), "greedy": text[len(prompt):]}
(folder / "golden.json").write_text(json.dumps(golden))
