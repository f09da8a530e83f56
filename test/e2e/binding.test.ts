import { readFileSync } from 'node:fs'
import { availableParallelism } from 'node:os'
import { isAvailable } from '@tsrun/native'
import { fixtures, killLeftovers, tsrun } from '../launcher/support/tsrun.ts'
import { needing } from '../needs.ts'

afterEach(killLeftovers)

const native = isAvailable()
const isPossible = native.available && availableParallelism() >= 2
const { describe: describeCores } = needing(isPossible, 'koffi, or a single core')

/** The cores of this process, as /proc has them: `0-1`. */
const own = /^Cpus_allowed_list:\s*(\S+)$/m.exec(readFileSync('/proc/self/status', 'utf8'))![1]!

/** The cores of all threads of each rank. */
async function coresOf(...flags: string[]): Promise<string[]> {
  const args = ['--nproc', '2', '--no-summary', ...flags, '../ranks/cores.mjs']
  const { code, stdout, stderr } = await tsrun(args, { cwd: fixtures })
  expect({ code, stderr }).toEqual({ code: 0, stderr: '' })
  const lines = [...stdout.matchAll(/rank=(\d) cores=(.*)$/gm)]
  return lines.sort(([, a], [, b]) => Number(a) - Number(b)).map(([, , cores]) => cores!)
}

describeCores('--bind', () => {
  it('core binds each rank and its engine thread to separate cores', async () => {
    const [first, second, ...others] = await coresOf('--bind', 'core')
    expect(others).toEqual([])
    // One list for all threads, and nothing in common.
    expect(`${first!} ${second!}`).toMatch(/^[\d,-]+ [\d,-]+$/)
    const [one, other] = [first!, second!].map(numbers)
    expect(one!.filter((core) => other!.includes(core))).toEqual([])
    expect([...one!, ...other!].sort((a, b) => a - b)).toEqual(numbers(own))
  })

  it('numa does the same as --numa-binding node', async () => {
    expect(await coresOf('--bind', 'numa')).toEqual(await coresOf('--numa-binding', 'node'))
  })

  it('none binds ranks to no cores', async () => {
    expect(await coresOf('--bind', 'none')).toEqual([own, own])
  })

  it('core refuses more ranks than cores before anything starts', async () => {
    const count = numbers(own).length
    const nproc = String(count + 1)
    const run = await tsrun(['--nproc', nproc, '--bind', 'core', 'hello.mjs'])
    expect(run).toMatchObject({ code: 2, stdout: '' })
    expect(run.stderr).toContain(`each of ${nproc} ranks a core of its own`)
    expect(run.stderr).toContain(`use at most --nproc ${count}, or --bind none`)
  })
})

/** `0-3,8` as 0, 1, 2, 3 and 8. */
function numbers(list: string): number[] {
  return list.split(',').flatMap((part) => {
    const [first, last = first] = part.split('-').map(Number)
    return Array.from({ length: last! - first! + 1 }, (_, i) => first! + i)
  })
}
