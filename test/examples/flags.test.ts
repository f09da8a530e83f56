import { describe, expect, it } from '@jest/globals'
import { choice, count, given, integer, joinOptions, positive } from '../../examples/lib/flags.ts'
import { meshProblem } from '../../examples/lib/gpt-run.ts'

describe('flags of the examples', () => {
  it.each([
    ['count', count(8), { '1': 1, '60000': 60_000 }, ['0', '-1', '1.5', 'many', '', '1e3']],
    ['integer', integer(0), { '0': 0, '7': 7 }, ['-1', '1.5', 'many', '']],
    [
      'positive',
      positive(1),
      { '0.003': 0.003, '1e-3': 0.001 },
      ['0', '-1', 'NaN', 'Infinity', ''],
    ],
    ['choice', choice(['naive', 'gpipe'], 'naive'), { gpipe: 'gpipe' }, ['zigzag', '', 'GPIPE']],
  ] as const)('%s accepts valid texts and refuses others', (_, flag, good, bad) => {
    for (const [text, value] of Object.entries(good)) expect(flag.read(text)).toBe(value)
    for (const text of bad) expect(flag.read(text)).toBeUndefined()
  })

  it('leave to the environment what the command line does not set', () => {
    const job = { transport: 'environment', engine: 'inline', device: 'environment' } as const
    expect(given(job)).toEqual({ engine: 'inline' })
  })

  it.each([
    ['on', 'worker'],
    ['off', 'inline'],
    ['auto', 'auto'],
  ] as const)('take the engine from --overlap %s: %s', (overlap, engine) => {
    const job = { transport: 'environment', engine: 'auto', overlap } as const
    expect(joinOptions(job)).toEqual({ engine })
  })
})

describe('the sizes of gpt.ts', () => {
  const mesh = { dp: 1, pp: 1, tp: 1, cp: 1, between: 'replicated' as const }
  const sizes = { ...mesh, batch: 8, block: 64, layers: 4, heads: 4, width: 64 }

  it.each([
    [1, { block: 31 }],
    [4, { dp: 4 }],
    [8, { dp: 2, pp: 2, tp: 2, between: 'sequence' as const }],
    [2, { cp: 2, block: 32 }],
  ])('fit a mesh of %i ranks: %j', (ranks, some) => {
    expect(meshProblem({ ...sizes, ...some }, ranks)).toBeUndefined()
  })

  it.each([
    [3, { tp: 2 }, 'dp 1, pp 1, cp 1 and tp 2 has 2 places, but the job has 3 ranks'],
    [2, { dp: 2, batch: 7 }, '--batch 7 does not divide by 2 replicas'],
    [8, { pp: 8 }, '--layers 4 are too few for --pp 8 stages'],
    [1, { width: 30 }, '--width 30 does not divide by --heads 4'],
    [2, { tp: 2, heads: 1 }, '--heads 1 do not divide by --tp 2'],
    [2, { cp: 2, block: 30 }, '--block 30 does not divide by 4'],
    [2, { tp: 2, block: 31, between: 'sequence' as const }, '31 positions per rank do not divide'],
  ])('do not fit a mesh of %i ranks: %j', (ranks, some, problem) => {
    expect(meshProblem({ ...sizes, ...some }, ranks)).toContain(problem)
  })
})
