import { schedule, type Action, type ScheduleName } from '@tsrun/training/planning'
import { runScript } from '../launcher/support/script.ts'
import { killLeftovers } from '../launcher/support/tsrun.ts'

afterEach(killLeftovers)

/** Memory in units of one activation of a micro-batch. */
interface Run {
  readonly schedule: ScheduleName
  readonly chunks: number
  readonly recompute: boolean
  /** Of all tensors over those before, at most. */
  readonly peak: number
  readonly peakInFlight: number
  /** What the pass has left, the gradients among them. */
  readonly left: number
  readonly sums: readonly number[]
}

interface Report {
  readonly microbatches: number
  readonly ranks: readonly (readonly Run[])[]
}

/** Scalars, gradients of scalars, labels. */
const SLACK = 0.1

/** x of each micro-batch between forward and backward; with the pass, two more. */
const [INPUT, REST] = [1, 2]

/** Most units held when a rank keeps the inputs alone and runs forwards again. */
function recomputePeak(list: readonly Action[], last: number): number {
  let [held, peak] = [0, 0]
  const whole = new Set<string>()
  const see = (more: number): void => {
    peak = Math.max(peak, held + more)
  }
  list.forEach(({ kind, stage, microbatch }, at) => {
    const key = `${stage} ${microbatch}`
    const next = list[at + 1]
    const outputGradient = stage === last ? 0 : 1
    if (kind === 'F') {
      held += INPUT
      see(REST)
      if (next?.stage !== stage || next.microbatch !== microbatch) return
      whole.add(key)
      held += REST
    } else if (kind === 'W') {
      held -= INPUT + REST + 1
    } else {
      if (!whole.has(key)) {
        held += REST
        see(outputGradient)
      }
      held += kind === 'B' ? -INPUT - REST : 1
      see(0)
    }
  })
  return peak
}

describe('the activations that a rank holds', () => {
  it.each([2, 3])('equal the prediction of the schedule on %i ranks', async (nproc) => {
    const stdout = await runScript(nproc, 'test/fixtures/training/pipeline-memory.mjs')
    const { microbatches, ranks } = JSON.parse(stdout) as Report
    const names: ScheduleName[] = ['naive', 'gpipe', '1f1b', 'interleaved', 'looped', 'zb-h1']
    expect(ranks).toHaveLength(nproc)
    ranks.forEach((runs, rank) => {
      expect(runs.map((run) => run.schedule)).toEqual([...names, ...names])
      for (const { schedule: name, chunks, recompute, peak, peakInFlight, left } of runs) {
        const stages = nproc * chunks
        const made = schedule(name, { stages, ranks: nproc, microbatches })
        const promised = made.simulate().ranks[rank]!.peakInFlight
        const list = made.actions[rank]!
        const wanted = recompute
          ? recomputePeak(list, stages - 1)
          : (INPUT + REST) * promised + keptGradients(list)
        const facts = { name, recompute, rank }
        expect({ ...facts, peakInFlight }).toEqual({ ...facts, peakInFlight: promised })
        expect({ ...facts, peak: Math.abs(peak - wanted) < SLACK ? wanted : peak }).toEqual({
          ...facts,
          peak: wanted,
        })
        expect(left).toBeLessThan(SLACK)
      }
      // a forward that runs again gives the same bits
      const sums = runs.map((run) => run.sums)
      expect(sums.slice(names.length)).toEqual(sums.slice(0, names.length))
    })
  })
})

/** Between the halves of a backward, one more: how many when most micro-batches are held. */
function keptGradients(list: readonly Action[]): number {
  let [inFlight, halved] = [0, 0]
  let [peak, kept] = [0, 0]
  for (const { kind } of list) {
    inFlight += { F: 1, B: -1, I: 0, W: -1 }[kind]
    halved += { F: 0, B: 0, I: 1, W: -1 }[kind]
    const units = (INPUT + REST) * inFlight + halved
    if (units > peak) [peak, kept] = [units, units - (INPUT + REST) * inFlight]
  }
  return kept
}
