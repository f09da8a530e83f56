import { spawnSync } from 'node:child_process'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { exportPretrained, generate, gpt } from '@tsrun/models'
import { loadBackend, tf } from '@tsrun/training'
import { needing } from '../../needs.ts'

// torch takes seconds to load

const program = `
import json, sys, torch
from transformers import GPT2LMHeadModel
model = GPT2LMHeadModel.from_pretrained(sys.argv[1]).eval().double()
text = json.loads(sys.argv[2])
with torch.no_grad():
    logits = model(torch.tensor([text])).logits[0].tolist()
    for _ in range(8):
        text.append(int(model(torch.tensor([text])).logits[0, -1].argmax()))
print(json.dumps({'logits': logits, 'text': text}))`

const python = process.env['TSRUN_BENCH_PYTHON'] ?? ''
const hasTransformers =
  python !== '' && spawnSync(python, ['-c', 'import torch, transformers']).status === 0

const { it: itHere } = needing(hasTransformers, 'transformers')

itHere.each([true, false])(
  'transformers computes the same outputs as the exported GPT (tied weights: %s)',
  async (tied) => {
    await loadBackend('wasm')
    const folder = mkdtempSync(join(tmpdir(), 'tsrun-transformers-'))
    try {
      const sizes = { vocabulary: 19, block: 16, layers: 2, heads: 2, width: 8, hidden: 20 }
      const recipe = gpt({ ...sizes, tied, deviation: 0.5, epsilon: 1e-3, seed: 1 })
      const model = recipe.build()
      await exportPretrained(folder, { model, recipe })
      const prompt = [3, 1, 4, 1, 5]
      const { stdout, stderr } = spawnSync(
        python,
        ['-c', program, folder, JSON.stringify(prompt)],
        { encoding: 'utf8' },
      )
      const theirs = JSON.parse(stdout || `"${stderr}"`) as { logits: number[][]; text: number[] }
      const scores = tf.tidy(() => {
        const all = model.forward(tf.tensor2d([prompt], undefined, 'int32'))
        return (all.arraySync() as number[][][])[0]!
      })
      scores.forEach((row, i) => {
        row.forEach((score, token) => {
          expect(Math.abs(score - theirs.logits[i]![token]!)).toBeLessThan(1e-5)
        })
      })
      const tokens = await generate(model, prompt, { maxTokens: 8, temperature: 0 })
      expect([...prompt, ...tokens]).toEqual(theirs.text)
    } finally {
      rmSync(folder, { recursive: true, force: true })
    }
  },
)
