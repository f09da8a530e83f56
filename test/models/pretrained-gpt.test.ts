import { cpSync, readdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { runWorld } from '@tsrun/distributed'
import { exportPretrained, generate, gpt, pretrainedGPT, type ExportedState } from '@tsrun/models'
import {
  createParameter,
  disposeModule,
  fullyShard,
  init,
  inPass,
  loadBackend,
  openSafetensors,
  pipeline,
  tf,
} from '@tsrun/training'
import { makeFolder, removeFolders } from '../training/checkpoint/support/folder.ts'
import { failure } from '../training/parallel/support/failure.ts'
import { parameterValues } from '../training/parallel/support/reference.ts'

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

describe.each(['cpu', 'wasm'] as const)('a GPT-2 of the library transformers on %s', (backend) => {
  beforeAll(() => loadBackend(backend))

  it('has the scores and the greedy tokens of PyTorch', async () => {
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

/** A copy of the folder, with other values in config.json. */
function copyWith(values: object): string {
  const copy = makeFolder()
  cpSync(folder, copy, { recursive: true })
  const path = join(copy, 'config.json')
  const config = JSON.parse(readFileSync(path, 'utf8')) as object
  writeFileSync(path, JSON.stringify({ ...config, ...values }))
  return copy
}

describe('a pretrained GPT', () => {
  beforeAll(() => loadBackend('wasm'))

  it.each([
    [{ attn_pdrop: 0.1, resid_pdrop: 0.2 }, [0.1, 0, 0.2]],
    // the defaults of transformers
    [{ attn_pdrop: undefined, embd_pdrop: undefined, resid_pdrop: undefined }, [0.1, 0.1, 0.1]],
    [{}, [0, 0, 0]],
  ])(
    'drops values at the rates of its configuration in training, and exports %j',
    async (rates, wanted) => {
      const recipe = await pretrainedGPT(copyWith(rates))
      const { attentionDropout, embeddingDropout, residualDropout } = recipe.options
      expect([attentionDropout, embeddingDropout, residualDropout]).toEqual(wanted)
      const model = recipe.build()
      const scores = (training: boolean) =>
        tf.tidy(() =>
          inPass({ training, step: 0 }, () => [
            ...model.forward(tf.tensor2d([golden.prompt], undefined, 'int32')).dataSync(),
          ]),
        )
      const isDropping = wanted.some((rate) => rate > 0)
      if (isDropping) expect(scores(true)).not.toEqual(scores(false))
      else expect(scores(true)).toEqual(scores(false))
      expect(await generate(model, golden.prompt, greedy)).toEqual(golden.greedy)
      const exported = makeFolder()
      await exportPretrained(exported, { model, recipe })
      const config = JSON.parse(readFileSync(join(exported, 'config.json'), 'utf8')) as object
      const [attn_pdrop, embd_pdrop, resid_pdrop] = wanted
      expect(config).toMatchObject({ attn_pdrop, embd_pdrop, resid_pdrop })
      disposeModule(model)
    },
  )

  it('is read by each stage of a pipeline, and exported from there as one file', async () => {
    const exported = makeFolder()
    const found = await runWorld({ size: 2 }, async (group) => {
      const recipe = await pretrainedGPT(folder)
      const pipe = pipeline(recipe, group)
      await exportPretrained(exported, { model: pipe, recipe }, group)
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
    const file = openSafetensors(join(exported, 'model.safetensors'))
    expect(file.metadata).toEqual({ format: 'pt' })
    expect([...file.entries.keys()]).toContain('transformer.h.1.attn.c_attn.weight')
    expect([...file.entries.keys()]).not.toContain('lm_head.weight')
    expect(file.entry('transformer.h.1.attn.c_attn.weight').shape).toEqual([16, 48])
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

  it('is exported from ranks that shard its parameters', async () => {
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
    ['one with a dropout rate of 1', { attn_pdrop: 1 }, /attn_pdrop is 1/],
    ['one with a text as a rate', { resid_pdrop: '0.1' }, /resid_pdrop is 0.1, not from 0/],
    [
      'one with other attention scores',
      { scale_attn_by_inverse_layer_idx: true },
      /inverse_layer_idx/,
    ],
  ])('is refused if it is %s', async (_, change, message) => {
    const other = makeFolder()
    const config = JSON.parse(readFileSync(join(folder, 'config.json'), 'utf8')) as object
    writeFileSync(join(other, 'config.json'), JSON.stringify({ ...config, ...change }))
    await expect(pretrainedGPT(other)).rejects.toEqual(failure('ERR_TSR_PRETRAINED', message))
  })

  it.each(['null', '[]', '5'])('is refused if its config.json is %s', async (json) => {
    const other = makeFolder()
    writeFileSync(join(other, 'config.json'), json)
    const refused = failure('ERR_TSR_PRETRAINED', /config\.json.*it is not an object/)
    await expect(pretrainedGPT(other)).rejects.toEqual(refused)
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

  it('is exported completely or not at all', async () => {
    const exported = makeFolder()
    const recipe = gpt({ vocabulary: 7, block: 4, layers: 2, heads: 2, width: 6 })
    await runWorld({ size: 2 }, async (group) => {
      const pipe = pipeline(recipe, group)
      const sharded = await fullyShard(recipe.build(), group, { stage: 3 })
      for (const model of [pipe, sharded]) {
        const refused = failure('ERR_TSR_CHECKPOINT_PIECES')
        await expect(exportPretrained(exported, { model, recipe })).rejects.toEqual(refused)
      }
      const problem = failure('ERR_TSR_CHECKPOINT_PIECES', /no rank has it.*the group of all ranks/)
      await expect(exportPretrained(exported, { model: pipe, recipe })).rejects.toEqual(problem)
      sharded.dispose()
      pipe.dispose()
    })
    expect(readdirSync(exported)).toEqual([])
  })

  it('exports the begin and end tokens of its configuration, or those of GPT-2', async () => {
    const ends = (path: string): unknown[] => {
      const config = JSON.parse(readFileSync(join(path, 'config.json'), 'utf8')) as object
      const { bos_token_id: begin, eos_token_id: end } = config as Record<string, unknown>
      return [begin, end]
    }
    const sizes = { block: 4, layers: 1, heads: 1, width: 2 }
    const small = gpt({ ...sizes, vocabulary: 7 })
    const large = gpt({ ...sizes, vocabulary: 50_257 })
    const first = makeFolder()
    for (const [recipe, wanted] of [
      [small, [null, null]],
      [large, [50_256, 50_256]],
    ] as const) {
      const model = recipe.build()
      await exportPretrained(first, { model, recipe })
      disposeModule(model)
      expect(ends(first)).toEqual(wanted)
    }
    const config = JSON.parse(readFileSync(join(first, 'config.json'), 'utf8')) as object
    const changed = { ...config, bos_token_id: 3, eos_token_id: [4, 5] }
    writeFileSync(join(first, 'config.json'), JSON.stringify(changed))
    const [recipe, second] = [await pretrainedGPT(first), makeFolder()]
    const model = recipe.build()
    await exportPretrained(second, { model, recipe })
    expect(ends(second)).toEqual([3, [4, 5]])
    disposeModule(model)
  })

  it('refuses a text in place of tokens, with advice', async () => {
    const model = gpt({ vocabulary: 256, block: 4, layers: 1, heads: 1, width: 2 }).build()
    const text = 'hello' as unknown as number[]
    const refused = failure('ERR_TSR_ARGUMENT', /loadTokenizer\(\)\.encode/)
    await expect(generate(model, text)).rejects.toEqual(refused)
    disposeModule(model)
  })

  it('cannot be exported with adapters that are not merged', async () => {
    const recipe = await pretrainedGPT(folder)
    const model = recipe.build()
    const adapter = createParameter('h.0.attn.lora', [2], init.ones)
    const state = { model: { parameters: [...model.parameters, adapter] }, recipe }
    await expect(exportPretrained(makeFolder(), state)).rejects.toEqual(
      failure('ERR_TSR_ARGUMENT', /model is one with h\.0\.attn\.lora; expected .*merge adapters/),
    )
    adapter.value.dispose()
    disposeModule(model)
  })

  it('cannot be exported without its recipe', async () => {
    const model = (await pretrainedGPT(folder)).build()
    const state = { model } as unknown as ExportedState
    const refused = failure('ERR_TSR_ARGUMENT', /recipe/)
    await expect(exportPretrained(makeFolder(), state)).rejects.toEqual(refused)
    disposeModule(model)
  })
})
