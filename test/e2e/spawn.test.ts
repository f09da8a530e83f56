import { execFile } from 'node:child_process'
import { fileURLToPath } from 'node:url'
import { runInThisContext } from 'node:vm'
import { isTsrError, type TsrError } from '@tsrun/core'
import { spawn, type OutputLine } from '@tsrun/launcher'
import {
  announcements,
  cleanEnvironment,
  fixtures,
  until,
  untilGone,
} from '../launcher/support/tsrun.ts'

const quiet = { output: 'ignore' } as const
const caller = `${fixtures}spawn-caller.mjs`
const module = new URL('../fixtures/launcher/spawned-module.ts', import.meta.url)

const forever = async (): Promise<void> => {
  console.log(process.pid)
  await new Promise(() => setInterval(() => undefined, 1000))
}

class PropertyList extends Map<string, string> {}

async function refusal(run: Promise<unknown>): Promise<TsrError> {
  const error: unknown = await run.then(
    () => undefined,
    (reason: unknown) => reason,
  )
  expect(isTsrError(error)).toBe(true)
  return error as TsrError
}

/** As Vitest compiles a function of a test. */
const compiled = (body: string) =>
  runInThisContext(`(async (rank) => { ${body} })`) as (rank: number) => Promise<unknown>

describe('spawn', () => {
  it('runs functions compiled by Vite, unless they use imports of their module', async () => {
    const own = compiled(
      "const os = await __vite_ssr_dynamic_import__('node:os'); return [rank, os.EOL]",
    )
    expect(await spawn(own, { ...quiet, nproc: 2 })).toEqual([
      [0, '\n'],
      [1, '\n'],
    ])
    for (const foreign of ['__vi_import_0__.sum(rank)', '__vite_ssr_import_meta__.url']) {
      const refused = await refusal(spawn(compiled(`return ${foreign}`), quiet))
      expect(refused.code).toBe('ERR_TSR_ARGUMENT')
      expect(refused.message).toContain("spawn(new URL('./work.ts', import.meta.url)")
    }
  })

  it('runs functions that Istanbul has compiled to count what is covered', async () => {
    const counted = compiled(
      'cov_1x2y().f[0]++; cov_1x2y().s[1]++; return rank || (cov_1x2y().b[0][1]++, 7)',
    )
    expect(await spawn(counted, { ...quiet, nproc: 2 })).toEqual([7, 1])
  })

  it.each(['below the root of Vite', 'elsewhere'])(
    'imports a file that Vite names: %s',
    async (at) => {
      const path = fileURLToPath(module)
      const name = at === 'elsewhere' ? `/@fs${path}` : path.slice(process.cwd().length)
      expect(name).toMatch(/^\/(@fs|test)\//)
      const own = compiled(
        `return Object.keys(await __vite_ssr_dynamic_import__(${JSON.stringify(name)}))`,
      )
      const [names] = await spawn(own, { ...quiet, nproc: 1, base: module.href })
      expect(names).toContain('sum')
    },
  )

  it('returns the values of all ranks in order, including typed arrays, Maps and bigints', async () => {
    const values = await spawn(
      async (rank: number, base: number, numbers: Float32Array) => {
        // the last one is the first to end
        await new Promise((resolve) => setTimeout(resolve, rank === 0 ? 200 : 0))
        const size = Number(process.env['WORLD_SIZE'])
        return { sum: base + rank, size, numbers, map: new Map([[rank, 10n]]) }
      },
      { ...quiet, nproc: 3, args: [100, Float32Array.of(0.5, 1.5)] },
    )
    const rest = { size: 3, numbers: Float32Array.of(0.5, 1.5) }
    expect(values).toEqual([
      { sum: 100, ...rest, map: new Map([[0, 10n]]) },
      { sum: 101, ...rest, map: new Map([[1, 10n]]) },
      { sum: 102, ...rest, map: new Map([[2, 10n]]) },
    ])
  })

  it('calls an export of a TypeScript module, whose ranks form one process group', async () => {
    const options = { ...quiet, nproc: 2 }
    const sums = await spawn<Float64Array>(module, {
      ...options,
      export: 'sum',
      args: [Float64Array.of(1, 2)],
    })
    expect(sums).toEqual([Float64Array.of(3, 6), Float64Array.of(3, 6)])
    const greetings = await spawn(fileURLToPath(module), { ...options, args: ['rank'] })
    expect(greetings).toEqual(['rank 0', 'rank 1'])
  })

  it('returns the errors and keys of a rank as data, whatever their names are', async () => {
    const [value] = await spawn(
      () => ({
        error: Object.assign(new Error('__proto__'), { name: '__lookupGetter__' }),
        keys: Object.fromEntries([['__proto__', 1]]),
      }),
      { ...quiet, nproc: 1 },
    )
    expect([value!.error.name, value!.error.message]).toEqual(['__lookupGetter__', '__proto__'])
    expect(Object.entries(value!.keys)).toEqual([['__proto__', 1]])
  })

  it('transfers values above the size limit of the store', async () => {
    const [bytes] = await spawn(
      (_rank: number, given: Uint8Array) => given.map((byte) => byte + 1),
      { ...quiet, args: [new Uint8Array(20_000_000).fill(6)] },
    )
    expect(bytes!.length).toBe(20_000_000)
    expect(bytes!.every((byte) => byte === 7)).toBe(true)
  })

  it('sets the environment of the ranks and passes on their output lines', async () => {
    const lines: OutputLine[] = []
    await spawn(
      (rank: number) => {
        console.log(`out ${process.env['COLOUR'] ?? ''}`)
        if (rank === 1) console.error('err')
      },
      { nproc: 2, env: { COLOUR: 'red' }, output: (line) => lines.push(line) },
    )
    expect(lines).toHaveLength(3)
    expect(lines).toEqual(
      expect.arrayContaining([
        { rank: 0, stream: 'stdout', text: 'out red' },
        { rank: 1, stream: 'stdout', text: 'out red' },
        { rank: 1, stream: 'stderr', text: 'err' },
      ]),
    )
  })

  it('fails with the first cause, its stack and the report', async () => {
    const error = await refusal(
      spawn(
        async (rank: number) => {
          if (rank === 1) throw new RangeError('too far')
          await new Promise(() => setInterval(() => undefined, 1000))
        },
        { ...quiet, nproc: 3, base: import.meta.url },
      ),
    )
    expect(error).toMatchObject({
      code: 'ERR_TSR_RANK_FAILED',
      facts: { rank: 1, worldSize: 3, exitCode: 1 },
    })
    expect(error.message).toContain('Rank 1 of 3 died of an uncaught error (exit code 1)')
    expect(error.message).toContain('RangeError: too far')
    expect((error.cause as Error).stack).toMatch(/RangeError: too far\n.*spawn\.test\.ts#function/)
    expect(error.facts['report']).toMatch(/ranks 0, 2: stopped by tsrun/)
  })

  it('explains that a function cannot use variables from outside', async () => {
    const error = await refusal(spawn(() => quiet.output, quiet))
    expect(error.message).toMatch(/quiet is not defined: .* sent as its source/)
  })

  it('fails if a rank exits before its function returns, or if its value cannot be sent', async () => {
    const left = await refusal(spawn(() => process.exit(0), quiet))
    expect(left.code).toBe('ERR_TSR_RANK_FAILED')
    expect(left.message).toContain(
      'Rank 0 of 1 ended with exit code 0 before its function returned',
    )
    const symbol = await refusal(spawn(() => Symbol('none'), quiet))
    expect(symbol.message).toContain('not encodable')
    expect(symbol.cause).toMatchObject({ code: 'ERR_TSR_ARGUMENT' })
    const missing = await refusal(spawn(module, { ...quiet, export: 'sums' }))
    expect(missing.message).toContain('exports no function sums (functions: default, sum)')
  })

  it('stops all ranks on an abort and on a time-out', async () => {
    const pids: number[] = []
    const controller = new AbortController()
    const options = {
      nproc: 2,
      grace: 1000,
      output: ({ text }: OutputLine) => {
        pids.push(Number(text))
        if (pids.length === 2) controller.abort('enough')
      },
    }
    const aborted = await refusal(spawn(forever, { ...options, signal: controller.signal }))
    expect(aborted).toMatchObject({ code: 'ERR_TSR_ABORTED', cause: 'enough' })
    await untilGone(pids)
    const early = await refusal(spawn(forever, { ...options, signal: AbortSignal.abort() }))
    expect(early.code).toBe('ERR_TSR_ABORTED')
    const late = await refusal(spawn(forever, { ...quiet, grace: 1000, timeout: 300 }))
    expect(late).toMatchObject({ code: 'ERR_TSR_TIMEOUT', facts: { milliseconds: 300 } })
  })

  it('stops the ranks at the end of the block of `await using`, and waits until they have ended', async () => {
    const pids: number[] = []
    const output = ({ text }: OutputLine): void => void pids.push(Number(text))
    const jobs: Promise<unknown>[] = []
    const fails = async (): Promise<void> => {
      await using job = spawn(forever, { nproc: 2, grace: 1000, output })
      jobs.push(job)
      await until(() => pids.length === 2, 'both ranks run')
      throw new Error('of the block')
    }
    await expect(fails()).rejects.toThrow('of the block')
    for (const pid of pids) expect(() => process.kill(pid, 0)).toThrow('ESRCH')
    expect((await refusal(jobs[0]!)).code).toBe('ERR_TSR_ABORTED')
  })

  it('leaves the values of a job that has ended when `await using` disposes of it', async () => {
    const sums = async (): Promise<number[]> => {
      await using job = spawn((rank: number) => rank + 1, { ...quiet, nproc: 2 })
      return await job
    }
    expect(await sums()).toEqual([1, 2])
    await spawn(() => 1, { nproc: 0 })[Symbol.asyncDispose]()
  })

  it.each([
    [{ nproc: 0 }, 'nproc is 0'],
    [{ nproc: 1.5 }, 'nproc is 1.5'],
    [{ timeout: -1 }, 'timeout is -1'],
    [{ args: 'all' as never }, 'args is "all"'],
    [{ output: 'pipe' as never }, 'output is "pipe"'],
    [
      { nprocs: 4 } as never,
      'options is an object with the unknown key "nprocs"; expected only nproc, ',
    ],
    [{ export: 'work' }, 'export is "work"; expected none with a function'],
    [{ env: 5 as never }, 'env is 5; expected an object of texts'],
    [{ env: { DEPTH: 5 as never } }, 'env is an object with DEPTH; expected an object of texts'],
  ])('refuses %j', async (options, message) => {
    const error = await refusal(spawn(() => 1, options))
    expect(error.code).toBe('ERR_TSR_ARGUMENT')
    expect(error.message).toContain(message)
  })

  it.each([
    [fileURLToPath.bind(null), 'program is a function bound fileURLToPath'],
    [RangeError, 'program is a function RangeError'],
    [PropertyList, 'program is a class PropertyList'],
    [Math.sqrt, 'program is a function sqrt'],
    [7, 'program is 7'],
    ['https://example.org/a.ts', 'program is "https://example.org/a.ts"'],
    ['/nowhere/at-all.ts', 'Cannot run /nowhere/at-all.ts'],
  ])('refuses to run %p', async (program, message) => {
    expect((await refusal(spawn(program as never, quiet))).message).toContain(message)
  })
})

describe('a program that spawns', () => {
  it('shows the lines of its ranks and continues with their values', async () => {
    const { stdout, stderr } = await run([caller])
    expect(stderr).toBe('')
    expect(stdout).toMatch(/^\[rank 0\] ready rank=0 /m)
    expect(stdout.trimEnd().split('\n').at(-1)).toBe('[0,10]')
  })

  it('may have no file', async () => {
    const program = `import { spawn } from '@tsrun/launcher'
      console.log(await spawn((rank) => 10 * rank, { nproc: 2 }))`
    const args = ['--input-type=module', '--eval', program]
    expect(await run(args)).toEqual({ stdout: '[ 0, 10 ]\n', stderr: '' })
  })

  it('leaves no rank behind when it is killed', async () => {
    let stdout = ''
    const child = execFile(process.execPath, [caller, 'die'], { env: cleanEnvironment() })
    const ended = new Promise((resolve) => child.once('exit', resolve))
    child.stdout!.on('data', (text: string) => (stdout += text))
    await until(() => announcements(stdout).length === 2, 'both ranks are there')
    child.kill('SIGKILL')
    await ended
    await untilGone(announcements(stdout).map(({ pid }) => pid))
  })
})

function run(args: readonly string[]): Promise<{ stdout: string; stderr: string }> {
  return new Promise((resolve) => {
    execFile(process.execPath, args, { env: cleanEnvironment() }, (_, stdout, stderr) => {
      resolve({ stdout, stderr })
    })
  })
}

it('spawn injects faults into its ranks on request, and refuses plans without effect', async () => {
  const forever = async (): Promise<void> => {
    await new Promise((resolve) => setTimeout(resolve, 60_000))
  }
  const faults = [{ kind: 'kill', rank: 1, seconds: 0.2 }] as const
  await expect(
    spawn(forever, { nproc: 2, grace: 100, output: 'ignore', chaos: { faults } }),
  ).rejects.toMatchObject({ code: 'ERR_TSR_RANK_FAILED', facts: { rank: 1 } })
  await expect(spawn(forever, { nproc: 1, chaos: { faults } })).rejects.toMatchObject({
    code: 'ERR_TSR_ARGUMENT',
    message: expect.stringContaining('rank is 1; the job has 1 ranks') as string,
  })
})
