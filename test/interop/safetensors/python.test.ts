import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { GPT, gpt2Names } from '@tsrun/models'
import {
  Adam,
  loadBackend,
  loadPretrained,
  openSafetensors,
  saveCheckpoint,
  shardedMLP,
  tf,
  writeSafetensors,
} from '@tsrun/training'
import { python, runPython } from './python.ts'
import { needing } from '../../needs.ts'

let folder: string
beforeAll(async () => {
  await loadBackend('cpu')
  folder = mkdtempSync(join(tmpdir(), 'tsrun-interop-'))
})
afterAll(() => {
  rmSync(folder, { recursive: true, force: true })
})

const { describe: describeWithPython } = needing(python !== undefined, 'Python with safetensors')

describeWithPython('Python’s safetensors', () => {
  it('reads files that tsrun writes, in every dtype', async () => {
    const path = join(folder, 'ours.safetensors')
    await writeSafetensors(
      path,
      new Map([
        ['f32', { shape: [2, 2], values: Float32Array.of(1, -2, 1e-40, 3.5) }],
        ['f64', { shape: [1], values: Float64Array.of(Math.PI) }],
        ['i64', { shape: [1], values: BigInt64Array.of(-(2n ** 60n)) }],
        ['i32', { shape: [2], values: Int32Array.of(-7, 8) }],
        ['u8', { shape: [3], values: Uint8Array.of(0, 1, 255) }],
        ['bool', { shape: [2], values: Uint8Array.of(0, 1), dtype: 'BOOL' as const }],
        ['f16', { shape: [2], values: Uint16Array.of(0x3e00, 0xc000), dtype: 'F16' as const }],
        ['none', { shape: [0, 3], values: new Float32Array(0) }],
        ['scalar', { shape: [], values: Float32Array.of(5) }],
      ]),
      { made: 'here' },
    )
    const program = `
import json, sys
from safetensors import safe_open
with safe_open(sys.argv[1], framework="numpy") as file:
    tensors = {name: file.get_tensor(name) for name in file.keys()}
    print(json.dumps({"metadata": file.metadata(), **{
        name: [str(t.dtype), list(t.shape), t.tolist()] for name, t in tensors.items()}}))`
    expect(runPython(program, path)).toEqual({
      metadata: { made: 'here' },
      f32: [
        'float32',
        [2, 2],
        [
          [1, -2],
          [Math.fround(1e-40), 3.5],
        ],
      ],
      f64: ['float64', [1], [Math.PI]],
      i64: ['int64', [1], [-(2 ** 60)]],
      i32: ['int32', [2], [-7, 8]],
      u8: ['uint8', [3], [0, 1, 255]],
      bool: ['bool', [2], [false, true]],
      f16: ['float16', [2], [1.5, -2]],
      none: ['float32', [0, 3], []],
      scalar: ['float32', [], 5],
    })
  })

  it('reads a checkpoint of tsrun by the names of its parameters', async () => {
    const model = shardedMLP({ layers: 2, inputs: 3, hidden: 4, outputs: 2, seed: 1 }).build()
    const optimizer = new Adam()
    const gradients = model.parameters.map(
      ({ name, shape }) => [name, tf.ones([...shape])] as const,
    )
    optimizer.step(model.parameters, new Map(gradients))
    const { path } = await saveCheckpoint(join(folder, 'run'), { model, optimizer, step: 1 })
    const program = `
import json, sys
from safetensors.numpy import load_file
print(json.dumps({name: [list(t.shape), t.tolist()] for name, t in load_file(sys.argv[1]).items()}))`
    const tensors = runPython(program, join(path, 'rank-00000-of-00001.safetensors')) as Record<
      string,
      [number[], unknown]
    >
    for (const { name, shape, value } of model.parameters) {
      expect(tensors[name]).toEqual([shape, value.arraySync()])
      expect(tensors[`optimizer/mean/${name}`]![0]).toEqual(shape)
      expect(tensors[`optimizer/steps/${name}`]).toEqual([[], 1])
    }
    expect(Object.keys(tensors)).toHaveLength(4 * 4)
  })

  it('writes files that tsrun reads, such as those of GPT-2', async () => {
    const path = join(folder, 'gpt2.safetensors')
    const program = `
import json, sys
import numpy as np
from safetensors.numpy import save_file
vocabulary, block, layers, width = 11, 8, 2, 6
random = np.random.default_rng(0)
tensors = {}
def add(name, *shape, dtype=np.float32):
    tensors["transformer." + name] = random.standard_normal(shape).astype(dtype)
add("wte.weight", vocabulary, width)
add("wpe.weight", block, width, dtype=np.float16)
for i in range(layers):
    for norm in ("ln_1", "ln_2"):
        add(f"h.{i}.{norm}.weight", width)
        add(f"h.{i}.{norm}.bias", width)
    for name, inputs, outputs in (("attn.c_attn", width, 3 * width), ("attn.c_proj", width, width),
                                  ("mlp.c_fc", width, 4 * width), ("mlp.c_proj", 4 * width, width)):
        add(f"h.{i}.{name}.weight", inputs, outputs)
        add(f"h.{i}.{name}.bias", outputs)
    tensors[f"transformer.h.{i}.attn.bias"] = np.tril(np.ones((1, 1, block, block), dtype=bool))
add("ln_f.weight", width)
add("ln_f.bias", width)
save_file(tensors, sys.argv[1], metadata={"format": "pt"})

def norm(x, name):
    mean, variance = x.mean(-1, keepdims=True), x.var(-1, keepdims=True)
    return (x - mean) / np.sqrt(variance + 1e-5) * w(name + ".weight") + w(name + ".bias")
def w(name):
    return tensors["transformer." + name].astype(np.float64)
def linear(x, name):
    return x @ w(name + ".weight") + w(name + ".bias")
def gelu(x):
    return 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x ** 3)))
tokens = [1, 2, 3, 10]
x = w("wte.weight")[tokens] + w("wpe.weight")[: len(tokens)]
heads, size = 2, width // 2
for i in range(layers):
    q, k, v = np.split(linear(norm(x, f"h.{i}.ln_1"), f"h.{i}.attn.c_attn"), 3, axis=-1)
    seen = []
    for h in range(heads):
        part = slice(h * size, (h + 1) * size)
        scores = q[:, part] @ k[:, part].T / np.sqrt(size)
        scores[np.triu_indices(len(tokens), 1)] = -np.inf
        shares = np.exp(scores - scores.max(-1, keepdims=True))
        seen.append(shares / shares.sum(-1, keepdims=True) @ v[:, part])
    x = x + linear(np.concatenate(seen, -1), f"h.{i}.attn.c_proj")
    x = x + linear(gelu(linear(norm(x, f"h.{i}.ln_2"), f"h.{i}.mlp.c_fc")), f"h.{i}.mlp.c_proj")
print(json.dumps((norm(x, "ln_f") @ w("wte.weight").T).flatten().tolist()))`
    const expected = runPython(program, path) as number[]
    const sizes = { vocabulary: 11, block: 8, layers: 2, heads: 2, width: 6 }
    const model = new GPT({ ...sizes, tied: true })
    const { unused } = await loadPretrained(path, model, gpt2Names)
    expect(unused).toEqual(['transformer.h.0.attn.bias', 'transformer.h.1.attn.bias'])
    const scores = model.forward(tf.tensor2d([[1, 2, 3, 10]], [1, 4], 'int32')).dataSync()
    const errors = expected.map((value, i) => Math.abs(value - scores[i]!) / (1 + Math.abs(value)))
    expect(Math.max(...errors)).toBeLessThan(1e-4)
    const file = openSafetensors(path)
    expect(file.metadata).toEqual({ format: 'pt' })
  })
})
