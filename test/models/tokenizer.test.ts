import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { loadTokenizer } from '@tsrun/models'
import { loadBackend, textBatch } from '@tsrun/training'
import { failure } from '../training/parallel/support/failure.ts'

/** Made by test/models/fixtures/make.py. */
const folder = fileURLToPath(new URL('fixtures/tokenizer', import.meta.url))
const golden = JSON.parse(readFileSync(join(folder, 'golden.json'), 'utf8')) as {
  readonly text: string
  readonly tokens: number[]
  readonly vocabulary: number
}

describe('a tokenizer', () => {
  it('gives the tokens of the Python tokenizers library, and restores the text', async () => {
    const tokenizer = await loadTokenizer(folder)
    expect(tokenizer.vocabulary).toBe(golden.vocabulary)
    expect(tokenizer.encode(golden.text)).toEqual(golden.tokens)
    expect(tokenizer.decode(golden.tokens)).toBe(golden.text)
  })

  it('creates a text with token ids above 255', async () => {
    await loadBackend('cpu')
    const tokenizer = await loadTokenizer(folder)
    const text = tokenizer.tokenize(golden.text.repeat(3))
    expect(text.vocabulary).toBe(golden.vocabulary)
    expect(text.tokens).toBeInstanceOf(Uint16Array)
    expect(Math.max(...text.tokens)).toBeGreaterThan(255)
    const inputs = textBatch(text, 0, { batch: 2, block: 4 }).inputs()
    expect(inputs.shape).toEqual([2, 4])
    inputs.dispose()
  })

  it('is refused if its file is missing', async () => {
    await expect(loadTokenizer('nowhere')).rejects.toEqual(
      failure('ERR_TSR_DATASET', /tokenizer\.json.*ENOENT/),
    )
  })
})
