import { fileURLToPath } from 'node:url'
import { hasFunctions, tensorflow } from '../training/backend/support/tensorflow.ts'
import { WarmProcess } from '../training/backend/support/warm.ts'
import { needing } from '../needs.ts'

const distributed = new URL('../../packages/distributed/dist/index.js', import.meta.url).href
const tokens = fileURLToPath(new URL('../training/nn/support/tokens.ts', import.meta.url))

const { describe: describeIt } = needing(
  hasFunctions,
  'TensorFlow with the binding of these sources (npx tsrun setup tensorflow)',
)

/** Returns a function that runs a script on tensorflow, which treats tensors as those of the device. */
function scriptsOn(device: 'CPU' | 'GPU') {
  const warm = new WarmProcess({ ...tensorflow }, true)
  afterAll(() => {
    warm.end()
  })
  return async (body: string) =>
    await warm.run(`
      await training.loadBackend('tensorflow')
      const { disposeModule, replaceValue, tf } = training
      const { generate } = await load('@tsrun/models')
      const { livelyGpt } = await load(${JSON.stringify(tokens)})
      const backend = tf.backend()
      backend.isUsingGpuDevice = ${device === 'GPU'}
      const options = { temperature: 1.5, topK: 6, seed: 3 }
      const prompt = [1, 7, 2]
      ${body}`)
}

describeIt.each(['CPU', 'GPU'] as const)(
  'generate on tensorflow, with tensors as on a %s',
  (device) => {
    const run = scriptsOn(device)

    it('draws the tokens of whole passes, also after the weights have changed', async () => {
      const rates = { embeddingDropout: 0.1, attentionDropout: 0.1, residualDropout: 0.1 }
      for (const [maxTokens, sizes] of [
        [160, { block: 150 }],
        [20, { block: 8 }],
        [90, { block: 80, tied: true, ...rates }],
      ] as const) {
        const { drawn, tensors } = (await run(`
        const model = livelyGpt(${JSON.stringify(sizes)})
        const before = tf.memory().numTensors
        const drawn = []
        for (const factor of [1, 0.5]) {
          for (const parameter of model.parameters) {
            replaceValue(parameter, tf.keep(tf.mul(parameter.value, factor)))
          }
          for (const cache of [true, false]) {
            drawn.push(await generate(model, prompt, { ...options, cache, maxTokens: ${maxTokens} }))
          }
        }
        const tensors = tf.memory().numTensors - before
        disposeModule(model)
        return { drawn, tensors }`)) as { drawn: number[][]; tensors: number }
        const [first, whole, second, wholeAgain] = drawn
        expect(first).toEqual(whole)
        expect(second).toEqual(wholeAgain)
        expect(second).not.toEqual(first)
        expect(tensors).toBe(0)
      }
    })

    it('calls one function for each token', async () => {
      const calls = await run(`
      const model = livelyGpt({ block: 64 })
      await generate(model, prompt, { maxTokens: 10 })
      const stock = backend.binding
      let calls = { functions: 0, operations: 0 }
      const counted = {
        executeOp(...args) {
          calls.operations++
          return stock.executeOp(...args)
        },
        functions: {
          call(...args) {
            calls.functions++
            return stock.functions.call(...args)
          },
        },
      }
      backend.binding = Object.create(stock, Object.getOwnPropertyDescriptors(counted))
      const count = async (maxTokens) => {
        calls = { functions: 0, operations: 0 }
        await generate(model, prompt, { maxTokens })
        return calls
      }
      const [few, many] = [await count(10), await count(30)]
      backend.binding = stock
      disposeModule(model)
      const [functions, operations] = ['functions', 'operations'].map((kind) => many[kind] - few[kind])
      return { functions, operations }`)
      expect(calls).toEqual({ functions: 20, operations: 0 })
    })

    it('calls and keeps a forward method that the user has replaced', async () => {
      const counts = await run(`
      const counts = []
      for (const name of ['h.0', 'wpe', undefined]) {
        const model = livelyGpt({ block: 64 })
        const part = name === undefined ? model : model.children[name]
        const forward = part.forward.bind(part)
        let calls = 0
        const replaced = (x) => {
          calls++
          return forward(x)
        }
        part.forward = replaced
        await generate(model, prompt, { maxTokens: 10 })
        counts.push([calls, part.forward === replaced])
        disposeModule(model)
      }
      return counts`)
      expect(counts).toEqual([
        [10, true],
        [10, true],
        [10, true],
      ])
    })

    it('draws new dropout masks for each token in a training pass', async () => {
      const count = await run(`
      const model = livelyGpt({ block: 64, embeddingDropout: 0.5 })
      await generate(model, prompt, { ...options, maxTokens: 10 })
      const { prototype } = training.Dropout
      const { forward } = prototype
      let count = 0
      prototype.forward = function (x) {
        count++
        return forward.call(this, x)
      }
      try {
        await training.inPass({ training: true, step: 1 }, () =>
          generate(model, prompt, { ...options, maxTokens: 10 }))
      } finally {
        prototype.forward = forward
        disposeModule(model)
      }
      return count`)
      expect(count).toBe(10)
    })

    it('forgets values that are not finite when it drops the oldest context', async () => {
      const [cached, whole] = (await run(`
      const drawn = []
      for (const cache of [true, false]) {
        const model = livelyGpt({ block: 8 })
        const { wpe, lm_head } = model.children
        model.children.lm_head = {
          parameters: lm_head.parameters,
          forward(x) {
            const scores = lm_head.forward(x)
            return tf.where(tf.isNaN(scores), tf.zerosLike(scores), scores)
          },
        }
        const intact = tf.keep(tf.clone(wpe.weight.value))
        replaceValue(wpe.weight, tf.keep(tf.mul(wpe.weight.value, NaN)))
        let count = 0
        const onToken = () => {
          // The text is now longer than the block.
          if (++count === 6) replaceValue(wpe.weight, intact)
        }
        drawn.push(await generate(model, prompt, { maxTokens: 10, temperature: 0, cache, onToken }))
        disposeModule(model)
      }
      return drawn`)) as number[][]
      expect(new Set(whole).size).toBeGreaterThan(1)
      expect(cached).toEqual(whole)
    })

    it('accepts layers that widen the batch', async () => {
      const [cached, whole] = (await run(`
      const model = livelyGpt({ block: 24 })
      const { wte, lm_head } = model.children
      model.children.wte = {
        parameters: wte.parameters,
        forward: (x) => tf.tile(wte.forward(x), [2, 1, 1]),
      }
      model.children.lm_head = {
        parameters: lm_head.parameters,
        forward: (x) => lm_head.forward(tf.mean(x, 0, true)),
      }
      const drawn = []
      for (const cache of [true, false]) {
        drawn.push(await generate(model, prompt, { ...options, cache, maxTokens: 30 }))
      }
      disposeModule(model)
      return drawn`)) as number[][]
      expect(cached).toHaveLength(30)
      expect(cached).toEqual(whole)
    })

    it('uses weights that change during a text, and refuses tokens outside the vocabulary', async () => {
      const { drawn, code } = (await run(`
      const model = livelyGpt({ block: 64 })
      model.children.wte = new training.Embedding({ name: 'wte', count: 4, width: 8 })
      const { ln_f, lm_head } = model.children
      const fill = ({ parameters }, i, values) => replaceValue(parameters[i], tf.keep(values))
      fill(ln_f, 0, tf.zeros([8]))
      fill(ln_f, 1, tf.ones([8]))
      fill(lm_head, 0, tf.zeros([11, 8]))
      const drawn = []
      const onToken = (token) => {
        if (drawn.push(token) === 6) fill(lm_head, 0, tf.pad(tf.ones([1, 8]), [[10, 0], [0, 0]]))
      }
      const code = await generate(model, [1], { maxTokens: 12, temperature: 0, onToken }).catch(({ code }) => code)
      disposeModule(model)
      return { drawn, code }`)) as { drawn: number[]; code: string }
      expect(drawn).toEqual([0, 0, 0, 0, 0, 0, 10])
      expect(code).toBe('ERR_TSR_ARGUMENT')
    })
  },
)

describeIt('generate on several ranks with tensorflow', () => {
  const run = scriptsOn('CPU')

  it('draws the same tokens in a pipeline and with parameters sharded in ZeRO stage 3', async () => {
    const drawn = await run(`
      const { gpt } = await load('@tsrun/models')
      const { runWorld } = await load(${JSON.stringify(distributed)})
      const recipe = gpt({ vocabulary: 11, block: 24, layers: 4, heads: 2, width: 8, deviation: 0.4, seed: 2 })
      // In the first passes, functions are made.
      const last = async (model) => {
        for (let i = 0; i < 2; i++) await generate(model, [1], { ...options, maxTokens: 8 })
        return await generate(model, [1], { ...options, maxTokens: 40 })
      }
      const generateOn = (make) =>
        runWorld({ size: 2 }, async (group) => {
          const model = await make(group)
          const drawn = await last(model)
          model.dispose()
          return drawn
        })
      const single = await generate(recipe.build(), [1], { ...options, maxTokens: 40, cache: false })
      const staged = await generateOn((group) => training.pipeline(recipe, group, {}))
      const interleaved = await generateOn((group) =>
        training.pipeline(recipe, group, { schedule: 'interleaved', microbatches: 4 }))
      const sharded = await generateOn((group) => training.fullyShard(recipe.build(), group, { stage: 3 }))
      return [single, ...staged, ...interleaved, ...sharded]`)
    const [single] = drawn as number[][]
    expect(new Set(single).size).toBeGreaterThan(2)
    expect(drawn).toEqual(Array.from({ length: 7 }, () => single))
  })
})
