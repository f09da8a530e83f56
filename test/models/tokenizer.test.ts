import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { loadTokenizer, trainTokenizer } from '@tsrun/models'
import { loadBackend, textBatch } from '@tsrun/training'
import { makeFolder, removeFolders } from '../training/checkpoint/support/folder.ts'
import { failure } from '../training/parallel/support/failure.ts'

/** Made by test/models/fixtures/make.py. */
const folder = fileURLToPath(new URL('fixtures/tokenizer', import.meta.url))
const golden = JSON.parse(readFileSync(join(folder, 'golden.json'), 'utf8')) as {
  readonly text: string
  readonly tokens: number[]
  readonly vocabulary: number
}

afterEach(removeFolders)

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

  it('trained on a text equals one that the Python tokenizers library trained', async () => {
    const sentence = "The whale swims. The whales swim in the cold sea, the whale's own sea.\n"
    const trained = makeFolder()
    const tokenizer = await trainTokenizer(sentence.repeat(4), trained, { vocabulary: 300 })
    const modelIn = (path: string) =>
      (
        JSON.parse(readFileSync(join(path, 'tokenizer.json'), 'utf8')) as {
          readonly model: { readonly vocab: object; readonly merges: string[][] }
        }
      ).model
    const [ours, theirs] = [modelIn(trained), modelIn(folder)]
    expect(ours.merges).toEqual(theirs.merges)
    expect(ours.vocab).toEqual(theirs.vocab)
    expect(tokenizer.encode(golden.text)).toEqual(golden.tokens)
    await expect(trainTokenizer('', trained, { vocabulary: 200 })).rejects.toEqual(
      failure('ERR_TSR_ARGUMENT', /vocabulary/),
    )
  })
})
