import { initDeviceMesh, runWorld } from '@tsrun/distributed'
import {
  exportPretrained,
  generate,
  gpt,
  pretrainedGPT,
  type GenerateOptions,
  type Generative,
  type GPT,
} from '@tsrun/models'
import {
  contextParallel,
  disposeModule,
  fullyShard,
  generator,
  loadBackend,
  pipeline,
  tf,
  trainer,
  type Module,
} from '@tsrun/training'
import { sampleToken } from '../internals/models.ts'
import { makeFolder, removeFolders } from '../training/checkpoint/support/folder.ts'
import { failure } from '../training/parallel/support/failure.ts'
import { livelyGpt, small } from '../training/nn/support/tokens.ts'

afterEach(removeFolders)

const prompt = [1, 7, 2]

/** The tokens that a model finds by running every sequence whole, without anything of `generate`. */
function greedily(model: GPT, length: number): number[] {
  const text = [...prompt]
  for (let i = 0; i < length; i++) {
    const scores = tf.tidy(() => {
      const all = model.forward(tf.tensor2d([text], undefined, 'int32'))
      return (all.arraySync() as number[][][])[0]!.at(-1)!
    })
    text.push(scores.indexOf(Math.max(...scores)))
  }
  return text.slice(prompt.length)
}

describe.each(['wasm', 'cpu'] as const)('generate on %s', (backend) => {
  beforeAll(() => loadBackend(backend))

  it('finds the tokens with the highest scores', async () => {
    const model = livelyGpt({ block: 24 })
    const before = tf.memory().numTensors
    const wanted = greedily(model, 20)
    expect(new Set(wanted).size).toBeGreaterThan(2)
    for (const cache of [true, false]) {
      const found = await generate(model, prompt, { maxTokens: 20, temperature: 0, cache })
      expect(found).toEqual(wanted)
    }
    expect(tf.memory().numTensors).toBe(before)
    disposeModule(model)
  })

  it('draws the same tokens with and without a cache, also beyond the block', async () => {
    const model = livelyGpt({ block: 8 })
    const options = { maxTokens: 40, temperature: 1.5, topK: 6, topP: 0.95, seed: 3 }
    const found = await generate(model, prompt, options)
    expect(found).toHaveLength(40)
    expect(await generate(model, prompt, { ...options, cache: false })).toEqual(found)
    expect(await generate(model, prompt, { ...options, seed: 4 })).not.toEqual(found)
    disposeModule(model)
  })

  it('draws the same tokens with and without a cache, which grows, and frees it when a callback throws', async () => {
    const model = livelyGpt({ block: 150 })
    // The cache has room for 64 positions first.
    const long = Array.from({ length: 60 }, (_, i) => (7 * i) % 10)
    const options = { maxTokens: 10, temperature: 0 }
    const before = tf.memory().numTensors
    const found = await generate(model, long, options)
    expect(await generate(model, long, { ...options, cache: false })).toEqual(found)
    let tokens = 0
    const onToken = () => {
      if (++tokens === 8) throw new Error('enough')
    }
    await expect(generate(model, long, { ...options, onToken })).rejects.toThrow('enough')
    expect(tf.memory().numTensors).toBe(before)
    disposeModule(model)
  })

  it('rejects a second text of a model before the first one ends', async () => {
    const model = livelyGpt()
    const expected = await generate(model, prompt, { maxTokens: 4 })
    const first = generate(model, prompt, { maxTokens: 4 })
    const second = generate(model, [3], { maxTokens: 4 })
    await expect(second).rejects.toEqual(failure('ERR_TSR_ARGUMENT', /generates a text/))
    expect(await first).toEqual(expected)
    expect(await generate(model, prompt, { maxTokens: 4 })).toEqual(expected)
    disposeModule(model)
  })

  it('does not change the model', async () => {
    const model = livelyGpt()
    const scores = () =>
      tf.tidy(() => [...model.forward(tf.tensor2d([prompt], undefined, 'int32')).dataSync()])
    const before = scores()
    await generate(model, prompt, { maxTokens: 2 })
    await expect(generate(model, [99])).rejects.toEqual(failure('ERR_TSR_ARGUMENT', /99/))
    expect(scores()).toEqual(before)
    disposeModule(model)
  })
})

describe('generate', () => {
  beforeAll(() => loadBackend('wasm'))

  it('ends at a stop token, and reports each token', async () => {
    const model = livelyGpt({ block: 24 })
    const all = await generate(model, prompt, { maxTokens: 12, temperature: 0 })
    const stop = all.find((token, i) => i > 2 && all.indexOf(token) === i)!
    const told: number[] = []
    const found = await generate(model, prompt, {
      maxTokens: 12,
      temperature: 0,
      stop: [stop],
      onToken: (token) => told.push(token),
    })
    expect(found).toEqual(all.slice(0, all.indexOf(stop)))
    expect(told).toEqual(found)
    disposeModule(model)
  })

  it('refuses a block longer than the table of positions', async () => {
    const model = livelyGpt({ block: 8 })
    const refused = failure('ERR_TSR_ARGUMENT', /block.* 9.*at most 8/)
    await expect(generate(model, prompt, { block: 9 })).rejects.toEqual(refused)
    disposeModule(model)
  })

  it('runs a custom model on the whole text for each token, up to the block size', async () => {
    const inputs: number[][] = []
    const model: Module = {
      parameters: [],
      // the next token is the last one plus the number of tokens
      forward: (x) => {
        const tokens = [...x.dataSync()]
        inputs.push(tokens)
        return tf.oneHot(
          tf.tensor2d([tokens.map((token) => (token + tokens.length) % 10)], undefined, 'int32'),
          10,
          100,
          0,
        )
      },
    }
    expect(await generate(model, [1], { maxTokens: 4, block: 3 })).toEqual([2, 4, 7, 9])
    expect(inputs).toEqual([[1], [1, 2], [1, 2, 4], [4, 7]])
  })

  it.each<[string, ArrayLike<number>, GenerateOptions, RegExp]>([
    ['an empty prompt', [], {}, /tokens/],
    ['a token of 1.5', [1, 1.5], {}, /token 1 of the prompt is 1.5/],
    ['a token of NaN', Float32Array.of(NaN), {}, /token 0 of the prompt is NaN/],
    ['a token of 2^32 + 1', [2 ** 32 + 1], {}, /token 0 of the prompt is 4294967297/],
    ['a temperature below 0', [1], { temperature: -1 }, /temperature/],
    ['an unknown option', [1], { topk: 3 } as GenerateOptions, /topk.*topK/s],
  ])('refuses %s', async (_, tokens, options, message) => {
    const model = livelyGpt()
    await expect(generate(model, tokens, options)).rejects.toEqual(
      failure('ERR_TSR_ARGUMENT', message),
    )
    disposeModule(model)
  })

  it('refuses objects that are not models, and models whose outputs are not scores', async () => {
    const recipe = gpt(small) as unknown as Generative
    await expect(generate(recipe, [1])).rejects.toEqual(failure('ERR_TSR_ARGUMENT', /a recipe/))
    const flat: Module = { parameters: [], forward: () => tf.zeros([1, 4]) }
    await expect(generate(flat, [1])).rejects.toEqual(failure('ERR_TSR_ARGUMENT', /\[1, 4\]/))
  })
})

describe('token sampling', () => {
  /** The share of each token in many draws. */
  const shares = (
    scores: number[],
    temperature: number,
    topK: number | undefined,
    topP: number,
  ) => {
    const next = generator('shares', 1)
    const counts = scores.map(() => 0)
    for (let i = 0; i < 20_000; i++) {
      counts[sampleToken(Float32Array.from(scores), { temperature, topK, topP }, next)]!++
    }
    return counts.map((count) => count / 20_000)
  }
  const logits = [0.4, 0.1, 0.3, 0.2].map(Math.log)

  it.each<[string, number, number | undefined, number, number[]]>([
    ['all tokens', 1, undefined, 1, [0.4, 0.1, 0.3, 0.2]],
    ['a distribution with a temperature', 0.5, undefined, 1, [16 / 30, 1 / 30, 9 / 30, 4 / 30]],
    ['the two likeliest', 1, 2, 1, [4 / 7, 0, 3 / 7, 0]],
    ['the nucleus', 1, undefined, 0.75, [4 / 9, 0, 3 / 9, 2 / 9]],
    ['the nucleus of the three likeliest', 1, 3, 0.7, [4 / 7, 0, 3 / 7, 0]],
    ['the first of the highest scores', 0, undefined, 1, [1, 0, 0, 0]],
  ])('draws from %s', (_, temperature, topK, topP, wanted) => {
    shares(logits, temperature, topK, topP).forEach((share, token) => {
      if (wanted[token] === 0) expect(share).toBe(0)
      else expect(Math.abs(share - wanted[token]!)).toBeLessThan(0.015)
    })
  })

  it.each([Infinity, -Infinity])('refuses to draw if the largest score is %p', (largest) => {
    const scores = Float32Array.of(-Infinity, largest)
    const draw = (topP: number) => () =>
      sampleToken(scores, { temperature: 1, topK: undefined, topP }, generator('draw', 1))
    const refused = failure('ERR_TSR_ARGUMENT', /largest score of the model/)
    expect(draw(1)).toThrow(refused)
    expect(draw(0.9)).toThrow(refused)
  })

  it('chooses the first of several equal scores', () => {
    const next = generator('equal', 1)
    const options = { temperature: 1, topK: 2, topP: 1 }
    const scores = Float32Array.of(0, 5, 5, 5)
    const drawn = new Set(Array.from({ length: 100 }, () => sampleToken(scores, options, next)))
    expect([...drawn].sort()).toEqual([1, 2])
  })
})

describe('generate on several ranks', () => {
  const sizes = { ...small, block: 8, layers: 4, deviation: 0.4, seed: 2 }
  const options = { maxTokens: 12, temperature: 0.9, topK: 8, seed: 5 }
  let wanted: number[]
  beforeAll(async () => {
    await loadBackend('wasm')
    const model = gpt(sizes).build()
    wanted = await generate(model, prompt, options)
    disposeModule(model)
    expect(new Set(wanted).size).toBeGreaterThan(2)
  })

  it.each([
    { size: 2, schedule: '1f1b' as const },
    { size: 2, schedule: 'interleaved' as const },
    { size: 4, schedule: 'gpipe' as const },
  ])(
    'gives the tokens of one process in a pipeline: $size stages, $schedule',
    async ({ size, schedule }) => {
      const before = tf.memory().numTensors
      const found = await runWorld({ size }, async (group) => {
        const pipe = pipeline(gpt(sizes), group, { schedule, microbatches: 4 })
        const tokens = await generate(pipe, prompt, options)
        pipe.dispose()
        return tokens
      })
      expect(found).toEqual(Array.from({ length: size }, () => wanted))
      expect(tf.memory().numTensors).toBe(before)
    },
  )

  it('gives the tokens of one process on ranks that share a sequence', async () => {
    const found = await runWorld({ size: 2 }, async (group) => {
      const model = contextParallel(gpt(sizes).build(), group)
      return await generate(model, prompt, options)
    })
    expect(found).toEqual([wanted, wanted])
  })

  it.each([2, 3] as const)(
    'gives the tokens of one process with parameters sharded in ZeRO stage %d',
    async (stage) => {
      const found = await runWorld({ size: 2 }, async (group) => {
        const sharded = await fullyShard(gpt(sizes).build(), group, { stage })
        const tokens = await generate(sharded, prompt, options)
        sharded.dispose()
        return tokens
      })
      expect(found).toEqual([wanted, wanted])
    },
  )

  it.each([
    { size: 1, mesh: { dp: 1, pp: 1 }, zero: 0 },
    { size: 2, mesh: { dp: 2, pp: 1 }, zero: 0 },
    { size: 2, mesh: { dp: 1, pp: 2 }, zero: 0 },
    { size: 2, mesh: { dp: 2, pp: 1 }, zero: 3 },
    { size: 4, mesh: { dp: 2, pp: 2 }, zero: 2 },
  ] as const)(
    'gives the tokens of one process in a trainer: $size ranks, $mesh, zero $zero',
    async ({ size, mesh, zero }) => {
      const exported = makeFolder()
      const found = await runWorld({ size }, async (group) => {
        const recipe = gpt(sizes)
        const shape: Readonly<Record<string, number>> = mesh
        const run = await trainer(recipe, { mesh: await initDeviceMesh(shape, group), zero })
        const tokens = await generate(run, prompt, options)
        await exportPretrained(exported, { model: run, recipe })
        run.dispose()
        return tokens
      })
      expect(found).toEqual(Array.from({ length: size }, () => wanted))
      const again = (await pretrainedGPT(exported)).build()
      expect(await generate(again, prompt, options)).toEqual(wanted)
      disposeModule(again)
    },
  )
})
