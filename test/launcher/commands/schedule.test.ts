import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { tsrunHere } from '../support/in-process.ts'

async function run(...args: string[]): Promise<string> {
  const { code, stdout, stderr } = await tsrunHere(['schedule', ...args])
  expect(stderr).toBe('')
  expect(code).toBe(0)
  return stdout
}

describe('tsrun schedule', () => {
  it('draws the grid and says how long ranks are idle and why', async () => {
    const text = await run('gpipe', '--stages', '2', '-M', '2', '--activation-memory', '500MB')
    expect(text).toContain('rank 0 F0 F1 .  .  B0 B1\nrank 1 .  F0 F1 B0 B1 .\n')
    expect(text).toContain('The step takes 9; ranks are idle in 33.3 % of the time.')
    expect(text).toMatch(/^rank 0 +6 +3 +1 GB +0 +3 +0 +0 +0$/m)
    expect(text).toContain('  2 to 5: rank 0 waits for 1B0 on rank 1, to run 0B0\n')
    expect(text).toContain('The critical path: 0F0 1F0 1F1 1B0 0B0 0B1\n')
  })

  it('reads a schedule from a file, also one that it has written itself', async () => {
    const folder = mkdtempSync(join(tmpdir(), 'tsrun-schedule-'))
    try {
      const file = join(folder, 'lists.csv')
      const lists = await run('dualpipe-v', '--ranks', '2', '--csv')
      writeFileSync(file, lists)
      expect(await run('--file', file, '--csv')).toBe(lists)
    } finally {
      rmSync(folder, { recursive: true })
    }
  })

  it('prints JSON, SVG, and a trace', async () => {
    const facts = JSON.parse(await run('zb-v', '--stages', '4', '--transfer', '0.5', '--json')) as {
      placement: number[]
      idle: { reason: string }[]
    }
    expect(facts.placement).toEqual([0, 1, 1, 0])
    expect(facts.idle.map(({ reason }) => reason)).toContain('message')
    const svg = await run('1f1b', '--svg')
    expect(svg).toMatch(/^<svg [^]*<\/svg>\n$/)
    expect(svg.match(/class="slot-F"/g)).toHaveLength(4 * 8)
    const { traceEvents } = JSON.parse(await run('1f1b', '--trace')) as {
      traceEvents: { cat?: string; dur?: number }[]
    }
    const forwards = traceEvents.filter(({ cat }) => cat === 'F')
    expect(forwards).toHaveLength(4 * 8)
    expect(forwards.every(({ dur }) => dur === 1000)).toBe(true)
  })

  it.each([
    [['nope'], 'schedule is "nope"'],
    [['zb-v', '--stages', '3'], '4, two per rank'],
    [['1f1b', '--forward', 'x'], '--forward is "x"; expected a number from 0'],
    [['--file', 'no such file'], '--file no such file cannot be read'],
    [['--svg', '--json'], 'exclude each other'],
  ])('refuses %j', async (args, message) => {
    const { code, stderr } = await tsrunHere(['schedule', ...args])
    expect(code).toBe(2)
    expect(stderr).toContain(message)
  })
})

describe('tsrun plan', () => {
  const usual = ['plan', '--params', '10B', '--memory', '24GB', '--ranks', '8']

  it('lists the layouts that fit into memory, in lines of 80 characters', async () => {
    const { code, stdout } = await tsrunHere([...usual, '--sequence', '512'])
    expect(code).toBe(0)
    expect(stdout).toMatch(/^ 1 +4 +2 +- +- +5\.00 +5\.00 +10\.0 .* best$/m)
    expect(stdout).toContain('layouts fit')
    for (const line of stdout.split('\n')) expect(line.length).toBeLessThanOrEqual(80)
  })

  it('if no layout fits, says how much memory the smallest takes and exits with code 1', async () => {
    const { code, stdout } = await tsrunHere([...usual, '--sequence', '8192'])
    expect(code).toBe(1)
    expect(stdout).toMatch(/Nothing fits: the first layout takes the least, \d+\.\d GB/)
  })

  it.each([
    ['24GB', 24e9],
    ['1.5GiB', 1.5 * 2 ** 30],
    ['2e9', 2e9],
  ])('reads %s of memory', async (memory, bytes) => {
    const args = ['plan', '--params', '100M', '--memory', memory, '--ranks', '1', '--json']
    const { stdout } = await tsrunHere(args)
    const { layouts } = JSON.parse(stdout) as {
      layouts: { fits: boolean; memory: { total: number } }[]
    }
    for (const { fits, memory } of layouts) expect(fits).toBe(memory.total <= bytes)
  })

  it.each([
    [['--link', '10 parsecs'], '--link is "10 parsecs"; expected bytes in a second'],
    [['--memory', '24i'], '--memory is "24i"; expected a size'],
    [['--params', '10Ki'], '--params is "10Ki"; expected a number'],
    [['--batch', '0'], '--batch is "0"; expected a whole number from 1'],
    [['--latency', '-1'], 'latency is -1'],
    [['--latency', ''], '--latency is ""; expected a number'],
  ])('refuses %j', async (args, message) => {
    const { code, stderr } = await tsrunHere([...usual, ...args])
    expect(code).toBe(2)
    expect(stderr).toContain(message)
  })
})
