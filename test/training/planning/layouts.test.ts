import { planLayouts, planTable, schedule } from '@tsrun/training/planning'
import { stateBytes } from '@tsrun/training'

const options = { parameters: 10e9, memory: 24e9, ranks: 8, sequence: 512 }

describe('planLayouts', () => {
  const { layouts, best, model } = planLayouts(options)

  it('finds every division of the ranks once per ZeRO stage, with and without recomputation', () => {
    const keys = layouts.map(({ dp, tp, pp, zero, recompute }) =>
      [dp, tp, pp, zero, recompute].join(),
    )
    expect(new Set(keys).size).toBe(keys.length)
    expect(layouts.every(({ dp, tp, pp }) => dp * tp * pp === 8)).toBe(true)
    expect(keys).toContain('8,1,1,3,false')
    expect(keys).toContain('1,1,8,0,true')
  })

  it('counts the state as stateBytes does', () => {
    for (const { dp, tp, pp, zero, memory } of layouts) {
      const parameters = model.parameters / (tp * pp)
      const gathered = zero === 3 ? model.parameters / (tp * model.layers) : 0
      const state = memory.weights + memory.gradients + memory.optimizer
      expect(state / stateBytes(zero, { parameters, ranks: dp, gathered })).toBeCloseTo(1, 9)
    }
  })

  it('counts 16 bytes of state per parameter with Adam', () => {
    const single = planLayouts({ ...options, ranks: 1 }).layouts[0]!
    const { weights, gradients, optimizer } = single.memory
    expect(weights + gradients + optimizer).toBeCloseTo(160e9, -3)
  })

  it('lists layouts that fit, sorted by time, and then larger layouts, sorted by size', () => {
    const fitting = layouts.filter(({ fits }) => fits)
    expect(layouts.slice(0, fitting.length)).toEqual(fitting)
    expect(fitting.map(({ step }) => step)).toEqual(
      fitting.map(({ step }) => step).toSorted((a, b) => a - b),
    )
    expect(best).toBe(fitting[0])
    expect(fitting.every(({ memory }) => memory.total <= 24e9)).toBe(true)
  })

  it('predicts the bubble of 1F1B if messages cost nothing', () => {
    const free = planLayouts({ ...options, link: 1e30, latency: 0, batch: 32 }).layouts
    for (const { dp, pp, bubble, step, recompute } of free) {
      expect(bubble).toBeCloseTo((pp - 1) / (32 / dp + pp - 1), 9)
      if (pp > 1 || recompute) continue
      const { parameters, layers, width, sequence } = model
      const forward = 2 * parameters * sequence + 4 * layers * width * sequence ** 2
      expect(step).toBeCloseTo((32 * 3 * forward) / 8 / 1e13, 6)
    }
  })

  it('predicts the time of the simulator, also with many micro-batches and slow links', () => {
    const slow = planLayouts({ ...options, link: 1e8, batch: 64 })
    const { parameters, layers, width, sequence } = slow.model
    const found = slow.layouts.find(({ pp, recompute }) => pp === 8 && !recompute)!
    const forward = (2 * parameters * sequence + 4 * layers * width * sequence ** 2) / 8 / 1e13
    const durations = {
      forward,
      backward: 2 * forward,
      transfer: 1e-5 + (sequence * width * 4) / 1e8,
    }
    const { makespan } = schedule('1f1b', { stages: 8, microbatches: 64 }).simulate(durations)
    expect(found.step / makespan).toBeCloseTo(1, 9)
  })

  it('counts the activations of one micro-batch per later stage', () => {
    const find = (pp: number) =>
      layouts.find((each) => each.pp === pp && each.tp === 1 && !each.recompute)!
    expect(find(8).inFlight).toBe(8)
    expect(find(1).inFlight).toBe(1)
  })

  it('refuses objects that are not models', () => {
    expect(() => planLayouts({ ...options, width: 100, heads: 3 })).toThrow(
      'a divisor of the width',
    )
    expect(() => planLayouts({ ...options, parameters: -1 })).toThrow('parameters is -1')
  })

  it('prints a table with a row per layout', () => {
    const table = planTable(planLayouts(options), 3)
    expect(table).toHaveLength(4)
    expect(table[1]!.at(-1)).toBe('best')
  })
})
