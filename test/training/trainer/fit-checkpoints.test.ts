import { mkdirSync, mkdtempSync, readdirSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { jest } from '@jest/globals'
import {
  createParameter,
  init,
  latestCheckpoint,
  loadBackend,
  moduleOf,
  SGD,
  tf,
  trainer,
  type FitOptions,
  type Tensor,
} from '@tsrun/training'
import { failure } from '../parallel/support/failure.ts'
import { fitOn } from './support/fit-on.ts'
import { alone, batchAt, dataset, FEATURES, recipe, quiet } from './support/small-training.ts'

let folder: string
beforeAll(() => loadBackend('wasm'))
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'tsrun-fit-'))
})
afterEach(() => {
  rmSync(folder, { recursive: true })
})

describe('fit with checkpoints', () => {
  it('resumes from a checkpoint with the same bits, also in the middle of an epoch', async () => {
    const whole = await fitOn(2, { steps: 17 })
    const save = { directory: folder, every: 4, keep: 2 }
    await fitOn(2, { steps: 10, save, resume: 'auto' })
    const rest = await fitOn(2, { steps: 17, save, resume: 'auto' })
    expect(rest.results[0]!.losses).toEqual(whole.results[0]!.losses.slice(10))
    expect(rest.values).toEqual(whole.values)
  })

  it('resumes on another number of ranks, with sharded state', async () => {
    const whole = await fitOn(1, { steps: 12 })
    const save = { directory: folder }
    await fitOn(2, { steps: 7, save }, { zero: 3 })
    const rest = await fitOn(4, { steps: 12, save, resume: 'auto' }, { zero: 2 })
    rest.results[0]!.losses.forEach((loss, i) => {
      expect(Math.abs(loss - whole.results[0]!.losses[7 + i]!)).toBeLessThan(1e-5)
    })
  })

  it('stops at a loss that is not a number, and keeps the checkpoints before it', async () => {
    const optimizer = new SGD({ learningRate: 0.1 })
    const run = await trainer(recipe, { optimizer, mesh: await alone() })
    const save = { directory: folder, every: 1 }
    const batch = (step: number) => {
      const { inputs, ...others } = batchAt(step)
      return { ...others, inputs: step < 2 ? inputs : new Float32Array(8 * FEATURES).fill(NaN) }
    }
    await expect(run.fit(batch, { steps: 9, save, ...quiet })).rejects.toMatchObject({
      code: 'ERR_TSR_LOSS_NAN',
      facts: { step: 3 },
    })
    run.dispose()
    expect(await latestCheckpoint(folder)).toMatchObject({ step: 2 })
  })

  it('logs where it resumes, how much is left, and what stopped it', async () => {
    const written = jest.spyOn(process.stdout, 'write').mockReturnValue(true)
    try {
      const save = { directory: folder, every: 4 }
      const stop = { onStep: ({ step }: { step: number }) => (step === 8 ? 'stop' : undefined) }
      const train = async (options: FitOptions) => {
        await fitOn(1, { save, resume: 'auto', progress: true, ...options })
      }
      await train({ steps: 4 })
      await train({ epochs: 2, callbacks: [stop] })
      // a job that was killed while it saved
      const cut = join(folder, '.step-00000012.unfinished')
      mkdirSync(cut)
      await train({ steps: 8 })
      const text = written.mock.calls.map(([chunk]) => String(chunk)).join('')
      const path = join(folder, 'step-00000004')
      expect(text).toContain(`resumes after step 4 from ${path}\n`)
      expect(text).toContain('stopped by a callback after step 8\n')
      // two epochs of seven batches
      expect(text).toMatch(/step 8\/14 /)
      expect(text).toContain(
        `step-00000008, where nothing is left to train; ${cut} cannot be used: its save has not ended\n`,
      )
    } finally {
      written.mockRestore()
    }
  })

  it('notifies callbacks of each complete checkpoint once', async () => {
    const saved: [number, boolean][] = []
    const callback = {
      onSave: ({ step, path }: { step: number; path: string }) => {
        saved.push([step, readdirSync(path).length > 0])
      },
    }
    await fitOn(1, { steps: 9, save: { directory: folder, every: 4 }, callbacks: [callback] })
    expect(saved).toEqual([
      [4, true],
      [8, true],
      [9, true],
    ])
  })

  it('starts over in a folder with checkpoints of later steps only if resume is false', async () => {
    const save = { directory: folder, every: 4 }
    await fitOn(1, { steps: 8, save })
    await expect(fitOn(1, { steps: 4, save })).rejects.toThrow("'auto' to resume from it, false to")
    const { results } = await fitOn(1, { steps: 4, save, resume: false })
    expect(results[0]!.losses).toHaveLength(4)
  })

  it.each<[string, FitOptions]>([
    ['epochs', { epochs: 2 }],
    ['steps', { steps: 10 }],
  ])('counts %s of a resumed second call from the beginning of that call', async (_, how) => {
    const stopped = { onStep: ({ step }: { step: number }) => (step === 13 ? 'stop' : undefined) }
    const train = async (options: FitOptions) => {
      const optimizer = new SGD({ learningRate: 0.1 })
      const run = await trainer(recipe, { optimizer, mesh: await alone() })
      const common = { batch: 10, ...quiet }
      const first = { ...common, steps: 7, save: { directory: join(folder, 'first') } }
      const second = { ...common, ...how, save: { directory: join(folder, 'second') } }
      const results = [
        await run.fit(dataset, { ...first, resume: 'auto' }),
        await run.fit(dataset, { ...second, ...options, resume: 'auto' }),
      ]
      run.dispose()
      return results.map(({ losses, steps }) => [losses.length, steps])
    }
    expect(await train({ callbacks: [stopped] })).toEqual([
      [7, 7],
      [6, 13],
    ])
    expect(await train({})).toEqual([
      [0, 7],
      [4, 17],
    ])
    expect(await train({})).toEqual([
      [0, 7],
      [0, 17],
    ])
  })

  /** The loss is finite in every step; the gradient is infinite where `w` is 0. */
  const infinite = () =>
    moduleOf({ w: createParameter('w', [1], init.zeros) }, (x, { w }) =>
      tf.add(tf.mul(x, 0), tf.sqrt(w)),
    )
  const difference = (outputs: Tensor, labels: Tensor): Tensor => tf.mean(tf.sub(outputs, labels))
  const ones = { size: 2, inputs: Float32Array.of(1, 1), labels: Float32Array.of(1, 1) }

  it('keeps the last good checkpoint if the loss is finite but gradients are infinite', async () => {
    const run = await trainer(infinite(), {
      optimizer: new SGD({ learningRate: 0.1 }),
      loss: difference,
      mesh: await alone(),
    })
    await run.save(folder)
    const save = { directory: folder, every: 1, keep: 1 }
    const refused = failure('ERR_TSR_NOT_FINITE', /^w is not finite: it has the value -?Infinity/)
    const options = { steps: 1, save, resume: false, ...quiet } as const
    await expect(run.fit(() => ones, options)).rejects.toEqual(refused)
    expect(await latestCheckpoint(folder)).toMatchObject({ step: 0 })
    await expect(run.save(folder)).rejects.toEqual(refused)
    const { done } = await run.save(folder, { background: true })
    await expect(done).rejects.toEqual(refused)
    expect(readdirSync(folder)).toHaveLength(1)
    await run.save(folder, { finite: false })
    expect(await latestCheckpoint(folder)).toMatchObject({ step: 1 })
    run.dispose()
  })

  it.each([
    [{}, /^w is not finite/],
    [{ clip: 1 }, /^the norm of the gradients of step 1 is not finite/],
  ])('refuses infinite gradients even if it saves no checkpoint: %p', async (how, message) => {
    const optimizer = new SGD({ learningRate: 0.1 })
    const options = { optimizer, loss: difference, mesh: await alone(), ...how }
    const run = await trainer(infinite(), options)
    const refused = failure('ERR_TSR_NOT_FINITE', message)
    await expect(run.fit(() => ones, { steps: 1, ...quiet })).rejects.toEqual(refused)
    run.dispose()
  })

  it('remembers the best evaluation when it resumes', async () => {
    const save = { directory: folder, best: true }
    const train = async (steps: number) => {
      const isBest: boolean[] = []
      const seen = { onEvaluate: (info: { isBest: boolean }) => void isBest.push(info.isBest) }
      // Far too large from the second call on, so that nothing becomes better.
      const learningRate = (step: number) => (step < 7 ? 0.1 : 1e3)
      const evaluate = { data: dataset, every: 7 }
      const options = { steps, save, evaluate, resume: 'auto', callbacks: [seen] } as const
      await fitOn(1, options, { learningRate })
      return isBest
    }
    expect(await train(7)).toEqual([true])
    expect(await train(14)).toEqual([false])
    expect(await latestCheckpoint(join(folder, 'best'))).toMatchObject({ step: 7 })
  })

  it('saves and stops at SIGTERM, on all ranks after the same step', async () => {
    const code = process.exitCode
    const { results } = await fitOn(2, {
      steps: 100,
      save: { directory: folder },
      callbacks: [
        {
          onStep: ({ step }) => {
            if (step === 3) process.emit('SIGTERM', 'SIGTERM')
          },
        },
      ],
    })
    expect(process.exitCode).toBe(143)
    process.exitCode = code
    expect(results[0]!.end).toBe('SIGTERM')
    expect(results[0]!.steps).toBeLessThan(10)
    const rest = await fitOn(2, { steps: 12, save: { directory: folder }, resume: 'auto' })
    expect(rest.results[0]!.losses).toHaveLength(12 - results[0]!.steps)
  })
})
