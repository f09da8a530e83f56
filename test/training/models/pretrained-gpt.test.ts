import { readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { runWorld } from '@tsrun/distributed'
import {
  disposeModule,
  exportPretrained,
  fullyShard,
  generate,
  gpt,
  loadBackend,
  openSafetensors,
  pipeline,
  pretrainedGPT,
  tf,
  type ExportedState,
} from '@tsrun/training'
import { makeFolder, removeFolders } from '../checkpoint/support/folder.ts'
import { failure } from '../parallel/support/failure.ts'
import { parameterValues } from '../parallel/support/reference.ts'

/** Made by test/interop/torch/make-gpt2.py. */
const folder = fileURLToPath(new URL('fixtures/gpt2', import.meta.url))
const golden = JSON.parse(readFileSync(join(folder, 'golden.json'), 'utf8')) as {
  readonly prompt: number[]
  /** [prompt, vocabulary], in double precision. */
  readonly logits: number[][]
  readonly greedy: number[]
}
const greedy = { maxTokens: golden.greedy.length, temperature: 0 }

afterEach(removeFolders)

describe.each(['cpu', 'wasm'] as const)('a GPT-2 of transformers on %s', (backend) => {
  beforeAll(() => loadBackend(backend))

  it('gives PyTorch’s scores and its greedy tokens', async () => {
    const model = (await pretrainedGPT(folder)).build()
    const scores = tf.tidy(() => {
      const all = model.forward(tf.tensor2d([golden.prompt], undefined, 'int32'))
      return (all.arraySync() as number[][][])[0]!
    })
    const differences = scores.flatMap((row, i) =>
      row.map((score, token) => Math.abs(score - golden.logits[i]![token]!)),
    )
    expect(differences).toHaveLength(5 * 23)
    expect(Math.max(...differences)).toBeLessThan(1e-5)
    expect(await generate(model, golden.prompt, greedy)).toEqual(golden.greedy)
    disposeModule(model)
  })
})

describe('a pretrained GPT', () => {
  beforeAll(() => loadBackend('wasm'))

  it('is read by each stage of a pipeline, and exported from there as one file', async () => {
    const exported = makeFolder()
    const found = await runWorld({ size: 2 }, async (group) => {
      const recipe = await pretrainedGPT(folder)
      const pipe = pipeline(recipe, group)
      await exportPretrained(exported, { model: pipe, recipe, tokenizer: folder }, group)
      const tokens = await generate(pipe, golden.prompt, greedy)
      pipe.dispose()
      return tokens
    })
    expect(found).toEqual([golden.greedy, golden.greedy])
    const [model, again] = [
      (await pretrainedGPT(folder)).build(),
      (await pretrainedGPT(exported)).build(),
    ]
    expect(parameterValues(again)).toEqual(parameterValues(model))
    for (const each of [model, again]) disposeModule(each)
    const file = await openSafetensors(join(exported, 'model.safetensors'))
    expect(file.metadata).toEqual({ format: 'pt' })
    expect([...file.entries.keys()]).toContain('transformer.h.1.attn.c_attn.weight')
    expect([...file.entries.keys()]).not.toContain('lm_head.weight')
    expect(file.entry('transformer.h.1.attn.c_attn.weight').shape).toEqual([16, 48])
    await file.close()
    const config = (path: string) =>
      JSON.parse(readFileSync(join(path, 'config.json'), 'utf8')) as Record<string, unknown>
    const ours = config(exported)
    const theirs = config(folder)
    for (const name of Object.keys(ours).filter(
      (key) => key in theirs && key !== 'initializer_range',
    )) {
      expect([name, ours[name]]).toEqual([name, theirs[name]])
    }
  })

  it('is exported from ranks that share its parameters', async () => {
    const exported = makeFolder()
    const recipe = gpt({ vocabulary: 7, block: 4, layers: 1, heads: 2, width: 6, hidden: 10 })
    await runWorld({ size: 3 }, async (group) => {
      const sharded = await fullyShard(recipe.build(), group, { stage: 3 })
      await exportPretrained(exported, { model: sharded, recipe }, group)
      sharded.dispose()
    })
    const [model, again] = [recipe.build(), (await pretrainedGPT(exported)).build()]
    expect(parameterValues(again)).toEqual(parameterValues(model))
    for (const each of [model, again]) disposeModule(each)
  })

  it.each<[string, object, RegExp]>([
    ['another model', { model_type: 'llama' }, /model_type is llama/],
    ['another activation', { activation_function: 'relu' }, /activation_function is relu/],
    ['other scores', { scale_attn_by_inverse_layer_idx: true }, /inverse_layer_idx/],
  ])('is refused if it is %s', async (_, change, message) => {
    const other = makeFolder()
    const config = JSON.parse(readFileSync(join(folder, 'config.json'), 'utf8')) as object
    writeFileSync(join(other, 'config.json'), JSON.stringify({ ...config, ...change }))
    await expect(pretrainedGPT(other)).rejects.toEqual(failure('ERR_TSR_PRETRAINED', message))
  })

  it('is refused without a config, without weights, or with weights of another size', async () => {
    const other = makeFolder()
    await expect(pretrainedGPT(other)).rejects.toEqual(failure('ERR_TSR_PRETRAINED', /ENOENT/))
    const config = JSON.parse(readFileSync(join(folder, 'config.json'), 'utf8')) as object
    writeFileSync(join(other, 'config.json'), JSON.stringify({ ...config, n_embd: 8 }))
    const missing = /neither model\.safetensors/
    await expect(pretrainedGPT(other)).rejects.toEqual(failure('ERR_TSR_SAFETENSORS', missing))
    const model = (await pretrainedGPT(folder)).build()
    const wide = { model, recipe: await pretrainedGPT(folder) }
    await exportPretrained(other, wide)
    disposeModule(model)
    writeFileSync(join(other, 'config.json'), JSON.stringify({ ...config, n_embd: 8 }))
    const recipe = await pretrainedGPT(other)
    expect(() => recipe.build()).toThrow(/wte\.weight/)
  })

  it('is exported with its recipe only', async () => {
    const model = (await pretrainedGPT(folder)).build()
    const state = { model } as unknown as ExportedState
    const refused = failure('ERR_TSR_ARGUMENT', /recipe/)
    await expect(exportPretrained(makeFolder(), state)).rejects.toEqual(refused)
    disposeModule(model)
  })
})
