import { tensorflow } from './tensorflow.ts'
import { vulkan } from './vulkan.ts'
import { WarmProcess } from './warm.ts'
import { needing } from '../../../needs.ts'

/** Backends whose tensors the host does not reach, with what a process needs for them. */
const backends = {
  tensorflow: { env: tensorflow, what: 'TensorFlow (npx tsrun setup tensorflow)' },
  webgpu: { env: vulkan, what: 'Vulkan driver' },
}

/** What a script returns that has a backend, the functions to copy tensors, and their counts. */
type Result = (script: string) => Promise<unknown>

function describeBackend(
  name: keyof typeof backends,
  title: string,
  define: (result: Result) => void,
): void {
  const { env, what } = backends[name]
  needing(env !== undefined, what).describe(`the backend ${name} (${title})`, () => {
    const warm = new WarmProcess(env)
    afterAll(() => {
      warm.end()
    })
    define((script) =>
      warm.run(`
        const { tf, writeTo, tensorFrom, copyCounts } = training
        await training.loadBackend('${name}')
        ${script}`))
  })
}

/** Arrays and tensors have each other's values. */
export function describeCopies(name: keyof typeof backends): void {
  describeBackend(name, 'values', (result) => {
    it('copies every dtype from an array to a tensor and back, also after an operation', async () => {
      const values = await result(`
      const arrays = {
        float32: Float32Array.of(1.5, -2, 0, 8),
        int32: Int32Array.of(1, -2, 0, 2 ** 31 - 1),
        bool: Uint8Array.of(1, 0, 0, 1),
      }
      const outcome = []
      for (const [dtype, array] of Object.entries(arrays)) {
        const source = array.slice()
        const tensor = tensorFrom(source, [2, 2], dtype)
        source.fill(0)
        const turned = tf.transpose(tensor)
        for (const read of [tensor, turned]) {
          await writeTo(read, source)
          outcome.push([...source])
        }
      }
      return outcome`)
      expect(values).toEqual([
        [1.5, -2, 0, 8],
        [1.5, 0, -2, 8],
        [1, -2, 0, 2 ** 31 - 1],
        [1, 0, -2, 2 ** 31 - 1],
        [1, 0, 0, 1],
        [1, 0, 0, 1],
      ])
    })

    it('moves 4 MiB in at most two copies each way', async () => {
      const counts = (await result(`
      const length = 2 ** 20
      const arena = new Float32Array(new SharedArrayBuffer(4 * length))
      const tensor = tf.mul(tf.range(0, length, 1, 'float32'), 2)
      const before = copyCounts()
      await writeTo(tensor, arena)
      const copy = tensorFrom(arena, [length])
      const after = copyCounts()
      const same = (await tf.all(tf.equal(copy, tensor)).data())[0]
      return { before, after, same, last: arena[length - 1] }`)) as {
        before: Record<string, { count: number; bytes: number }>
        after: Record<string, { count: number; bytes: number }>
      }
      expect(counts).toMatchObject({ same: 1, last: 2 * (2 ** 20 - 1) })
      for (const direction of ['toHost', 'toTensor'] as const) {
        const count = counts.after[direction]!.count - counts.before[direction]!.count
        const bytes = counts.after[direction]!.bytes - counts.before[direction]!.bytes
        expect([1, 2]).toContain(count)
        expect(bytes).toBe(count * 4 * 2 ** 20)
      }
    })

    it('copies large arrays at any alignment, and does not keep a reference to them', async () => {
      const outcomes = await result(`
      const length = 3 * 2 ** 14
      const pages = new WebAssembly.Memory({ initial: 8, maximum: 8, shared: true }).buffer
      const outcomes = []
      for (const buffer of [pages, new SharedArrayBuffer(pages.byteLength), new ArrayBuffer(pages.byteLength)]) {
        for (const offset of [0, 4, 64, 4096]) {
          const array = new Float32Array(buffer, offset, length)
          const around = new Float32Array(buffer)
          around.fill(7)
          const tensor = tf.reshape(tf.range(0, length, 1, 'float32'), [3, 2 ** 14])
          await writeTo(tensor, array)
          const isRight = array.every((value, i) => value === i)
          const outside = around.filter((value, i) => i < offset / 4 || i >= offset / 4 + length)
          const copy = tensorFrom(array, [2 ** 14, 3])
          array.fill(0)
          const [kept, own] = [await copy.data(), await tensor.data()]
          outcomes.push([
            isRight,
            outside.every((value) => value === 7),
            kept.every((value, i) => value === i) && own.every((value, i) => value === i),
          ])
          tf.dispose([copy, tensor])
        }
      }
      return outcomes`)
      expect(outcomes).toEqual(Array.from({ length: 12 }, () => [true, true, true]))
    })

    it('sums gradients, and copies them to an array, which optimizers accept', async () => {
      const outcome = await result(`
      const parameter = { name: 'w', shape: [2, 2], value: tensorFrom(new Float32Array(4), [2, 2]) }
      const array = new Float32Array(4)
      const before = tf.memory().numTensors
      const gradients = new Map()
      const add = training.sumInto(gradients)
      for (const value of [1, 2]) add(parameter, tf.fill([2, 2], value))
      await training.writeTo(gradients.get('w'), array)
      gradients.get('w').dispose()
      const left = tf.memory().numTensors - before
      new training.SGD({ learningRate: 0.5 }).step([parameter], new Map([['w', array]]))
      return { left, array: [...array], value: [...(await parameter.value.data())] }`)
      expect(outcome).toEqual({
        left: 0,
        array: [3, 3, 3, 3],
        value: [-1.5, -1.5, -1.5, -1.5],
      })
    })
  })
}

/** What is copied and disposed is freed. */
export function describeMemory(name: keyof typeof backends): void {
  describeBackend(name, 'memory', (result) => {
    it('frees the memory of large tensors', async () => {
      const growth = await result(`
      const { buffer } = new WebAssembly.Memory({ initial: 64, maximum: 64, shared: true })
      const array = new Float32Array(buffer)
      const trip = async () => {
        const tensor = tensorFrom(array, [1024, 1024])
        const next = tf.mul(tensor, 1)
        await writeTo(next, array)
        tf.dispose([tensor, next])
      }
      const { setFlagsFromString } = await import('node:v8')
      const { runInNewContext } = await import('node:vm')
      setFlagsFromString('--expose-gc')
      const collect = runInNewContext('gc')
      // What tensorflow hands to JavaScript is freed by garbage collection, at an unknown time.
      const used = async () => {
        for (let i = 0; i < 2; i++) {
          collect()
          await new Promise((resolve) => setTimeout(resolve, 20))
        }
        return process.memoryUsage().rss
      }
      for (let i = 0; i < 20; i++) await trip()
      const before = await used()
      for (let i = 0; i < 200; i++) await trip()
      return ((await used()) - before) / array.byteLength`)
      // of 200 times two tensors
      expect(growth).toBeLessThan(100)
    })

    it('leaks nothing in 1,000 round trips', async () => {
      const { start, ...later } = (await result(`
      const array = new Float32Array(1000).fill(1)
      const trip = async () => {
        const tensor = tensorFrom(array, [10, 100])
        const next = tf.mul(tensor, 1)
        await writeTo(next, array)
        tensor.dispose()
        next.dispose()
      }
      const look = () => ({ tensors: tf.memory().numTensors, bytes: tf.memory().numBytes })
      const start = look()
      await trip()
      const before = look()
      for (let i = 0; i < 1000; i++) await trip()
      return { start, before, after: look(), whole: array.every((value) => value === 1) }`)) as Record<
        string,
        unknown
      >
      expect(later).toEqual({ before: start, after: start, whole: true })
    })
  })
}
