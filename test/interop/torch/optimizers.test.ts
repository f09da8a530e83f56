import { spawnSync } from 'node:child_process'
import {
  Adam,
  AdamW,
  clipGradients,
  loadBackend,
  SGD,
  tf,
  type Optimizer,
  type Parameter,
} from '@tsrun/training'
import { needing } from '../../needs.ts'

// torch takes seconds to load

const STEPS = 10

/** Ten steps of each optimizer, and a clipped gradient, as JSON. */
const program = `
import json, sys, torch
gradients = [torch.tensor(row) for row in json.load(sys.stdin)]
def train(make):
    a, b = [torch.nn.Parameter(torch.ones(4)) for _ in range(2)]
    optimizer = make(a, b)
    for gradient in gradients:
        a.grad, b.grad = gradient.clone(), gradient.clone()
        optimizer.step()
    return [a.tolist(), b.tolist()]
def clip():
    a = torch.nn.Parameter(torch.ones(4))
    a.grad = gradients[0].clone()
    norm = torch.nn.utils.clip_grad_norm_([a], 0.5)
    return [[norm.item()], a.grad.tolist()]
print(json.dumps({
    'sgd': train(lambda a, b: torch.optim.SGD([a, b], lr=0.1, momentum=0.9)),
    'nesterov': train(lambda a, b: torch.optim.SGD(
        [a, b], lr=0.1, momentum=0.9, weight_decay=0.2, nesterov=True)),
    'sgd decay': train(lambda a, b: torch.optim.SGD([a, b], lr=0.1, weight_decay=0.2)),
    'adam': train(lambda a, b: torch.optim.Adam([a, b])),
    'adam decay': train(lambda a, b: torch.optim.Adam([a, b], lr=0.01, weight_decay=0.2)),
    'adamw': train(lambda a, b: torch.optim.AdamW([a, b])),
    'groups': train(lambda a, b: torch.optim.AdamW(
        [{'params': [a]}, {'params': [b], 'weight_decay': 0}], lr=0.05, weight_decay=0.3)),
    'clip': clip(),
}))`

const python = process.env['TSRUN_BENCH_PYTHON'] ?? ''
const hasTorch = python !== '' && spawnSync(python, ['-c', 'import torch']).status === 0

const gradients = Array.from({ length: STEPS }, (_, step) =>
  Float32Array.from({ length: 4 }, (__, i) => Math.sin(3 * step + i)),
)

function train(optimizer: Optimizer): number[][] {
  const parameters = ['a', 'b'].map((name): Parameter => {
    return { name, shape: [4], value: tf.ones([4]) }
  })
  for (const gradient of gradients) {
    optimizer.step(parameters, new Map(parameters.map(({ name }) => [name, gradient])))
  }
  return parameters.map(({ value }) => [...value.dataSync()])
}

async function clip(): Promise<number[][]> {
  const gradient = gradients[0]!.slice()
  const parameters = [{ name: 'a', shape: [4] }]
  const total = await clipGradients(parameters, new Map([['a', gradient]]), { maxNorm: 0.5 })
  return [[total], [...gradient]]
}

const { it: itHere } = needing(hasTorch, 'torch')

itHere('optimizers and gradient clipping give the same results as torch', async () => {
  await loadBackend('wasm')
  const input = JSON.stringify(gradients.map((gradient) => [...gradient]))
  const { stdout } = spawnSync(python, ['-c', program], { input, encoding: 'utf8' })
  const theirs = JSON.parse(stdout) as Record<string, number[][]>
  const ours = {
    sgd: train(new SGD({ learningRate: 0.1, momentum: 0.9 })),
    nesterov: train(
      new SGD({ learningRate: 0.1, momentum: 0.9, weightDecay: 0.2, nesterov: true }),
    ),
    'sgd decay': train(new SGD({ learningRate: 0.1, weightDecay: 0.2 })),
    adam: train(new Adam()),
    'adam decay': train(new Adam({ learningRate: 0.01, weightDecay: 0.2 })),
    adamw: train(new AdamW()),
    groups: train(new AdamW({ learningRate: 0.05, weightDecay: 0.3, withoutDecay: 'b' })),
    clip: await clip(),
  }
  expect(Object.keys(theirs)).toEqual(Object.keys(ours))
  for (const [name, tensors] of Object.entries(ours)) {
    tensors.flat().forEach((value, i) => {
      expect(Math.abs(value - theirs[name]!.flat()[i]!)).toBeLessThan(1e-6)
    })
  }
})
