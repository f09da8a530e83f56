import { readFileSync } from 'node:fs'
import { schedule, type ScheduleName } from '@tsrun/training/planning'

const page = readFileSync(new URL('../../../../../docs/pipeline.md', import.meta.url), 'utf8')

describe('docs/pipeline.md', () => {
  it.each<[ScheduleName, number]>([
    ['naive', 2],
    ['gpipe', 8],
    ['1f1b', 8],
    ['zb-v', 4],
  ])('draws %s as the simulator does', (name, microbatches) => {
    const drawings = Array.from(page.matchAll(/^```text\n([^]*?)^```$/gm), ([, text]) => text)
    expect(drawings).toContain(
      `${schedule(name, { stages: 4, microbatches }).grid({ width: 120 })}\n`,
    )
  })

  it('lists the values of the simulator', () => {
    const [, table] = /^Some values[^]*?\n((?:\|.*\n)+)/m.exec(page)!
    const rows = table!.trim().split('\n').slice(2)
    expect(rows.length).toBeGreaterThan(3)
    for (const row of rows) {
      const cells = row.split('|').map((cell) => cell.trim())
      const [stages, microbatches] = [Number(cells[1]), Number(cells[2])]
      const simulate = (name: ScheduleName) =>
        schedule(name, { stages, microbatches }).simulate({ forward: 1, backward: 2 })
      const value = (name: ScheduleName): string => {
        const { makespan, bubble } = simulate(name)
        return `${makespan} (${(100 * bubble).toFixed(1)} %)`
      }
      const held = simulate('1f1b').ranks.map(({ peakInFlight }) => peakInFlight)
      const wanted = [value('naive'), value('gpipe'), value('1f1b'), held.join(', ')]
      expect(cells.slice(3, 7)).toEqual(wanted)
    }
  })
})
