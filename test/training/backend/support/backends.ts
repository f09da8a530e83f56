import { fileURLToPath } from 'node:url'
import type { Held, Trained } from './steps.ts'
import { tensorflow } from './tensorflow.ts'
import { vulkan } from './vulkan.ts'
import { WarmProcess } from './warm.ts'

const steps = fileURLToPath(new URL('./steps.ts', import.meta.url))

interface Candidate {
  readonly backend: string
  /** What its processes need in their environment; undefined where it cannot be used here. */
  readonly env: Record<string, string> | undefined
  readonly missing: string
}

const candidates: Candidate[] = [
  { backend: 'wasm', env: {}, missing: '' },
  { backend: 'tensorflow', env: tensorflow, missing: 'TensorFlow (tsrun setup tensorflow)' },
  { backend: 'webgpu', env: vulkan, missing: 'Vulkan driver' },
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
  const here = tried.filter(({ env }) => env !== undefined)

  for (const { env, missing } of tried.filter(({ env }) => env === undefined)) {
    it(`skipped: no ${missing}`, () => {
      expect(env).toBeUndefined()
    })
  }

  afterAll(() => {
    for (const warm of processes.values()) warm.end()
  })

  describe('numbers', () => {
    let reference: Trained
    beforeAll(async () => {
      reference = await on('cpu', {}, 'train(50)')
    })

    it('on the cpu backend show that the network learns', () => {
      expect(reference.losses).toHaveLength(50)
      expect(reference.losses.at(-1)).toBeLessThan(0.2 * reference.losses[0]!)
    })

    it.each(here)(
      'on $backend equal those on cpu: 50 losses and all gradients',
      async (candidate) => {
        const trained = await on<Trained>(candidate.backend, candidate.env, 'train(50)')
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
      },
    )
  })

  describe('memory', () => {
    it.each([{ backend: 'cpu', env: {} }, ...here])(
      'on $backend is the same after 1,000 steps',
      async ({ backend, env }) => {
        const what = backend === 'webgpu' ? 'scale' : 'mlp'
        const { early, late } = await on<Held>(backend, env, `hold(1000, '${what}')`)
        expect(early['numTensors']).toBeGreaterThan(0)
        expect(late).toEqual(early)
      },
    )
  })
}

/** Largest |a - b| / |b|, with |b| of at least `floor`. */
function worst(a: readonly number[], b: readonly number[], floor = 0): number {
  expect(a).toHaveLength(b.length)
  return Math.max(
    ...a.map((value, i) => Math.abs(value - b[i]!) / Math.max(Math.abs(b[i]!), floor)),
  )
}
