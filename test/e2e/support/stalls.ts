import { fileURLToPath } from 'node:url'
import { tsrun } from '../../launcher/support/tsrun.ts'

const cwd = fileURLToPath(new URL('../../fixtures/ranks/', import.meta.url))

/** The engine, where rank 2 is, and what the warning says about it. */
export type Stall = readonly [engine: string, elsewhere: string, place: RegExp]

export const usualStalls: readonly Stall[] = [
  [
    'worker',
    'loop',
    /for rank 2 \(in no operation; its last was allReduce\(sum\) .+ #4 of group world, \d+\.\d s ago\)/,
  ],
  [
    'inline',
    'receive',
    /for rank 2 \(now in recv float32\[1024\] from rank 0, tag 7 of group world\)/,
  ],
]

export const otherStalls: readonly Stall[] = [
  ['inline', 'loop', /for rank 2 \(no answer: it computes with the inline engine, or is stopped\)/],
]

export function describeStalls(stalls: readonly Stall[]): void {
  it.each(stalls)(
    'with the %s engine and rank 2 in a %s, the waiting ranks print a warning',
    async (engine, elsewhere, place) => {
      const env = {
        ...{ TSRUN_ENGINE: engine, ELSEWHERE: elsewhere },
        ...{ TSRUN_STALL_WARNING: '0.3', TIMEOUT: '2500' },
      }
      const args = ['--nproc', '4', '--grace', '0.3', 'never-enters.mjs']
      const { stderr } = await tsrun(args, { cwd, env })
      const warnings = stderr.split('\n').filter((line) => line.includes('WARN distributed'))
      const own = warnings.filter((line) => line.includes('ddp bucket 3: layer4.weight'))
      expect(own.filter((line) => place.test(line)).length).toBeGreaterThan(0)
      expect(own[0]).toMatch(/allReduce\(sum\) .+ #5 \(.+\) of group world has waited \d/)
    },
  )
}
