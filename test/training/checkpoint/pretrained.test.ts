import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { runWorld } from '@tsrun/distributed'
import { GPT, gpt2Names } from '@tsrun/models'
import {
  columnParallel,
  loadBackend,
  loadPretrained,
  openSafetensors,
  parallelize,
  shardedMLP,
  tf,
  writeSafetensors,
  type TensorData,
} from '@tsrun/training'
import { parameterValues } from '../parallel/support/reference.ts'
import { makeFolder, removeFolders } from './support/folder.ts'

afterEach(removeFolders)
beforeAll(async () => {
  await loadBackend('cpu')
})

const sizes = { vocabulary: 11, block: 8, layers: 2, heads: 2, width: 6 }

/** The parameters of a GPT as GPT-2's files have them. */
function asGPT2(model: GPT, prefix = 'transformer.'): Map<string, TensorData> {
  const tensors = new Map<string, TensorData>()
  for (const { name, shape, value } of model.parameters) {
    const isJoint = name.includes('c_attn')
    const joined = isJoint ? [...shape.slice(0, -2), shape.at(-2)! * shape.at(-1)!] : shape
    const key = name.startsWith('lm_head') ? name : `${prefix}${name}`
    tensors.set(key, { shape: joined, values: value.dataSync<'float32'>().slice() })
  }
  return tensors
}

function transpose({ shape, values }: TensorData): TensorData {
  const matrix = tf.tensor2d(values as Float32Array, shape as [number, number])
  const turned = tf.transpose(matrix)
  return { shape: turned.shape, values: turned.dataSync<'float32'>().slice() }
}

async function fileOf(tensors: ReadonlyMap<string, TensorData>): Promise<string> {
  const path = join(makeFolder(), 'model.safetensors')
  await writeSafetensors(path, tensors)
  return path
}

const trained = () => new GPT({ ...sizes, seed: 5 })
const tokens = () => tf.tensor2d([[1, 2, 3, 10]], [1, 4], 'int32')

describe('a GPT-2 file', () => {
  it.each(['transformer.', ''])('is loaded if its names begin with "%s"', async (prefix) => {
    const tensors = asGPT2(trained(), prefix)
    tensors.set(`${prefix}h.0.attn.bias`, { shape: [1], values: Float32Array.of(1) })
    const model = new GPT(sizes)
    const report = await loadPretrained(await fileOf(tensors), model, gpt2Names)
    expect(report).toEqual({
      loaded: model.parameters.length,
      unused: [`${prefix}h.0.attn.bias`],
    })
    expect(parameterValues(model)).toEqual(parameterValues(trained()))
    expect(model.forward(tokens()).dataSync()).toEqual(trained().forward(tokens()).dataSync())
  })

  it('with a tied head is loaded into tied and untied models', async () => {
    const source = new GPT({ ...sizes, seed: 5, tied: true })
    const path = await fileOf(asGPT2(source))
    for (const tied of [true, false]) {
      const model = new GPT({ ...sizes, tied })
      await loadPretrained(path, model, gpt2Names)
      expect(model.forward(tokens()).dataSync()).toEqual(source.forward(tokens()).dataSync())
    }
  })

  it('is loaded if it has the transposed weights of torch’s Linear', async () => {
    const tensors = asGPT2(trained())
    for (const [name, tensor] of tensors) {
      if (/c_\w+\.weight/.test(name)) tensors.set(name, transpose(tensor))
    }
    const path = await fileOf(tensors)
    const model = new GPT(sizes)
    await loadPretrained(path, model, (name, names) => ({
      ...gpt2Names(name, names),
      transpose: /c_\w+\.weight/.test(name),
    }))
    expect(parameterValues(model)).toEqual(parameterValues(trained()))
    await expect(loadPretrained(path, model, gpt2Names)).rejects.toMatchObject({
      code: 'ERR_TSR_CHECKPOINT_SHAPE',
      facts: {
        tensor: 'h.0.attn.c_attn.weight',
        has: 'transformer.h.0.attn.c_attn.weight [18, 6]',
        wants: '[6, 3, 6]',
      },
    })
  })

  it('is loaded for one stage from several files in float16', async () => {
    const folder = makeFolder()
    const half = (name: string): TensorData => ({
      shape: asGPT2(trained()).get(name)!.shape,
      // 1.5
      values: new Uint16Array(asGPT2(trained()).get(name)!.values.length).fill(0x3e00),
      dtype: 'F16',
    })
    const names = [...asGPT2(trained()).keys()]
    const parts = [names.slice(0, 5), names.slice(5)]
    const weightMap: Record<string, string> = {}
    for (const [i, part] of parts.entries()) {
      const file = `model-0000${String(i + 1)}-of-00002.safetensors`
      await writeSafetensors(join(folder, file), new Map(part.map((name) => [name, half(name)])))
      for (const name of part) weightMap[name] = file
    }
    const index = join(folder, 'model.safetensors.index.json')
    writeFileSync(index, JSON.stringify({ metadata: {}, weight_map: weightMap }))
    const stage = new GPT({ ...sizes, range: [1, 2] })
    const { loaded } = await loadPretrained(folder, stage, gpt2Names)
    expect(loaded).toBe(stage.parameters.length)
    for (const { value } of stage.parameters)
      expect(new Set(value.dataSync())).toEqual(new Set([1.5]))
    writeFileSync(index, JSON.stringify({ weight_map: { x: '../x.safetensors' } }))
    await expect(loadPretrained(folder, stage, gpt2Names)).rejects.toMatchObject({
      code: 'ERR_TSR_SAFETENSORS',
    })
  })

  it.each([
    ...['null', '{', '[]', '{"weight_map": null}', '{"weight_map": "model"}'],
    ...['"../a"', '".."', '"/etc/passwd"', 'null', '7', '{"a": 1}', '["a"]', '"a\\u0000b"'].map(
      (name) => `{"weight_map": {"a": ${name}}}`,
    ),
  ])('is refused if its index is %s', async (text) => {
    const folder = makeFolder()
    writeFileSync(join(folder, 'model.safetensors.index.json'), text)
    const model = new GPT(sizes)
    await expect(loadPretrained(folder, model)).rejects.toMatchObject({
      code: 'ERR_TSR_SAFETENSORS',
    })
  })

  it('changes no parameter if a tensor is missing or has the wrong size', async () => {
    const tensors = asGPT2(trained())
    tensors.delete('transformer.ln_f.bias')
    const model = new GPT(sizes)
    const before = parameterValues(model)
    await expect(loadPretrained(await fileOf(tensors), model, gpt2Names)).rejects.toMatchObject({
      code: 'ERR_TSR_SAFETENSORS_TENSOR',
      facts: { tensor: 'ln_f.bias' },
    })
    const wider = asGPT2(new GPT({ ...sizes, width: 8 }))
    await expect(loadPretrained(await fileOf(wider), model, gpt2Names)).rejects.toMatchObject({
      code: 'ERR_TSR_CHECKPOINT_SHAPE',
    })
    expect(parameterValues(model)).toEqual(before)
  })
})

it('other work of the process runs while pretrained weights are read', async () => {
  let hasRun = false
  await loadPretrained(await fileOf(asGPT2(trained())), new GPT(sizes), (tensor, names) => {
    setImmediate(() => (hasRun = true))
    return gpt2Names(tensor, names)
  })
  expect(hasRun).toBe(true)
})

it('a tensor parallel rank loads its part of a pretrained layer', async () => {
  const whole = shardedMLP({ layers: 1, inputs: 3, outputs: 4, seed: 2 }).build()
  const tensors = new Map(
    whole.parameters.map(({ name, shape, value }) => [
      name,
      { shape, values: value.dataSync<'float32'>().slice() },
    ]),
  )
  const path = await fileOf(tensors)
  const weights = [...parameterValues(whole)['layers.0.weight']!]
  await runWorld({ size: 2, seed: 1 }, async (world) => {
    const other = shardedMLP({ layers: 1, inputs: 3, outputs: 4 }).build()
    const model = parallelize(other, { 'layers.0': columnParallel() }, world)
    await loadPretrained(path, model)
    const mine = weights.filter((_, i) => Math.floor((i % 4) / 2) === world.rank)
    expect([...parameterValues(model)['layers.0.weight']!]).toEqual(mine)
  })
  const file = openSafetensors(path)
  expect(file.entry('layers.0.bias').dtype).toBe('F32')
})
