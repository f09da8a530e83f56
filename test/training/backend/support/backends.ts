import { fileURLToPath } from 'node:url'
import type { Held, Trained } from './steps.ts'
import { tensorflow } from './tensorflow.ts'
import { vulkan } from './vulkan.ts'
import { WarmProcess } from './warm.ts'
import { needing } from '../../../needs.ts'

const steps = fileURLToPath(new URL('./steps.ts', import.meta.url))

interface Candidate {
  readonly backend: string
  /** What its processes need in their environment; undefined where it cannot be used here. */
  readonly env: Record<string, string> | undefined
  readonly what: string
}

const candidates: Candidate[] = [
  { backend: 'wasm', env: {}, what: '' },
  { backend: 'tensorflow', env: tensorflow, what: 'TensorFlow (npx tsrun setup tensorflow)' },
  { backend: 'webgpu', env: vulkan, what: 'Vulkan driver' },
]

/** By backend: the processes that train. */
const processes = new Map<string, WarmProcess>()

/** What `call` of support/steps.ts returns in the process of a backend. */
async function on<Result>(backend: string, env: Candidate['env'], call: string): Promise<Result> {
  const warm = processes.get(backend) ?? new WarmProcess({ ...env, TSRUN_BACKEND: backend }, true)
  processes.set(backend, warm)
  return (await warm.run(`
    const steps = await load(${JSON.stringify(steps)})
    return await steps.${call}`)) as Result
}

/** Holds backends against cpu: losses, gradients, and memory after 1,000 steps. */
export function describeBackends(...names: readonly string[]): void {
  const tried = candidates.filter(({ backend }) => names.includes(backend))

  afterAll(() => {
    for (const warm of processes.values()) warm.end()
  })

  describe('training', () => {
    let reference: Trained
    beforeAll(async () => {
      reference = await on('cpu', {}, 'train(50)')
    })

    it('on the cpu backend reduces the loss', () => {
      expect(reference.losses).toHaveLength(50)
      expect(reference.losses.at(-1)).toBeLessThan(0.2 * reference.losses[0]!)
    })

    for (const { backend, env, what } of tried) {
      const { it } = needing(env !== undefined, what)
      it(`on ${backend} has the 50 losses and all gradients of cpu`, async () => {
        const trained = await on<Trained>(backend, env, 'train(50)')
        expect(worst(trained.losses, reference.losses)).toBeLessThan(1e-4)
        expect(trained.tensors[1]).toBe(trained.tensors[0])
        for (const way of ['own', 'taped'] as const) {
          const [found, expected] = [trained.gradients[way], reference.gradients[way]]
          expect(Object.keys(found).sort()).toEqual(Object.keys(expected).sort())
          for (const name of Object.keys(expected)) {
            const scale = Math.max(...expected[name]!.map(Math.abs))
            expect(worst(found[name]!, expected[name]!, 0.1 * scale)).toBeLessThan(1e-4)
          }
        }
      })
    }
  })

  describe('memory use', () => {
    for (const { backend, env, what } of [{ backend: 'cpu', env: {}, what: '' }, ...tried]) {
      const { it } = needing(env !== undefined, what)
      it(`on ${backend} is the same after 1,000 steps`, async () => {
        const work = backend === 'webgpu' ? 'scale' : 'mlp'
        const { early, late } = await on<Held>(backend, env, `hold(1000, '${work}')`)
        expect(early['numTensors']).toBeGreaterThan(0)
        expect(late).toEqual(early)
      })
    }
  })
}

/** Largest |a - b| / |b|, with |b| of at least `floor`. */
function worst(a: readonly number[], b: readonly number[], floor = 0): number {
  expect(a).toHaveLength(b.length)
  return Math.max(
    ...a.map((value, i) => Math.abs(value - b[i]!) / Math.max(Math.abs(b[i]!), floor)),
  )
}
