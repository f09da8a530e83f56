import { existsSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { jest } from '@jest/globals'
import { announcements, untilGone } from '../launcher/support/tsrun.ts'
import { endClusters, root, token } from './support/cluster.ts'
import { isSlurmHere, onSlurm, Slurm, type SlurmJob } from './support/slurm.ts'
import { needing } from '../needs.ts'

jest.setTimeout(120_000)

const fixtures = 'test/fixtures'
const sbatch = 'deploy/slurm.sbatch'
/** The script asks for more than these hosts have. */
const small = ['--cpus-per-task=2', '--time=10']

let slurm: Slurm
let limited: SlurmJob
beforeAll(async () => {
  if (!isSlurmHere) return
  slurm = await Slurm.start(2)
  // Its time is up while the other tests run. Slurm polls every 30 seconds, and sends the signal up to 30
  // seconds early.
  limited = await submit(['--time=1', '--signal=B:USR1@15'], 'limited')
})
afterAll(async () => {
  if (isSlurmHere) await slurm.down()
  await endClusters()
})

/** A job that trains into a folder of its own. */
async function submit(flags: readonly string[], folder: string): Promise<SlurmJob> {
  const program = [`${fixtures}/training/requeued-fit.mjs`, join(slurm.folder, folder)]
  return await slurm.submit([...small, ...flags, sbatch, ...program], { TSRUN_NPROC: '1' })
}

/** What `requeued-fit.mjs` has said at the end of each run. */
function runsOf({ output }: SlurmJob): { from: number; to: number; end: string; size: number }[] {
  const lines = Array.from(output.matchAll(/^\[rank 0\] (\{.*\})$/gm), ([, line]) => line!)
  return lines.map((line) => JSON.parse(line) as ReturnType<typeof runsOf>[number])
}

/** Of both runs of a job that was queued again: the second has gone on where the first was stopped. */
async function expectContinued(job: SlurmJob, end: string): Promise<void> {
  const { JobState, ExitCode, Restarts } = await job.end(90_000)
  const { output } = job
  const facts = { JobState: 'COMPLETED', ExitCode: '0:0', Restarts: '1', output }
  expect({ JobState, ExitCode, Restarts, output }).toEqual(facts)
  const [first, second, ...more] = runsOf(job)
  expect(more).toEqual([])
  expect(first).toMatchObject({ size: 2, restarts: 0, from: 0, end })
  expect(first!.to).toBeGreaterThan(0)
  const until = first!.to + 10
  expect(second).toEqual({ size: 2, restarts: 1, from: first!.to, to: until, end: 'callback' })
}

describe('deploy/slurm.sbatch', () => {
  onSlurm('trains on two nodes with the losses of one process', async () => {
    const flags = ['--directory', join(slurm.folder, 'two'), '--steps', '12', '--every', '4']
    const job = await slurm.submit([...small, sbatch, 'examples/continue.ts', ...flags], {
      TSRUN_NPROC: '2',
    })
    const { JobState } = await job.end()
    expect({ JobState, output: job.output }).toMatchObject({ JobState: 'COMPLETED' })
    expect(job.output).toContain('node 0 n0 (10.99.0.1): ranks 0-1; node 1 n1 (10.99.0.2): ranks')
    expect(job.output).toMatch(/master-port=2\d{4} \(SLURM_JOB_ID\)/)
    const result = /^\[rank 0\] result (.*)$/m.exec(job.output)![1]!
    const { difference, ...rest } = JSON.parse(result) as Record<string, number>
    expect(rest).toMatchObject({ ranks: 4, from: 0, until: 12 })
    expect(difference).toBeLessThan(1e-5)
  })

  onSlurm('fails with the exit code of a rank, names the rank and leaves no process', async () => {
    const program = [`${fixtures}/launcher/die.mjs`, 'exit', '1']
    const job = await slurm.submit([...small, sbatch, ...program], { TSRUN_NPROC: '1' })
    const { JobState, ExitCode } = await job.end()
    const { output } = job
    expect({ JobState, ExitCode, output }).toEqual({ JobState: 'FAILED', ExitCode: '3:0', output })
    const reports = output.match(/first cause {2}rank 1 of 2 called process\.exit\(3\).*/g)
    expect({ output, reports: reports?.length }).toEqual({ output, reports: 1 })
    expect(output).toContain('the report is on node 0 (n0)')
    expect(output).toMatch(/process +\d+ on n1/)
    await untilGone(announcements(output).map(({ pid }) => pid))
  })

  onSlurm('lets ranks save after scancel, and leaves no process', async () => {
    const program = [`${fixtures}/launcher/tidy.mjs`]
    const job = await slurm.submit([...small, sbatch, ...program], { TSRUN_NPROC: '2' })
    await job.says(/(ready rank=\d[^]*){4}/)
    await slurm.run(['scancel', job.id]).finished
    const { JobState } = await job.end()
    await untilGone(announcements(job.output).map(({ pid }) => pid))
    const saved = job.output.match(/\] saved$/gm)
    expect({ JobState, saved: saved?.length }).toEqual({ JobState: 'CANCELLED', saved: 4 })
  })

  onSlurm('kills ranks that ignore scancel', async () => {
    const program = [`${fixtures}/launcher/deaf.mjs`]
    const job = await slurm.submit([...small, sbatch, ...program], { TSRUN_NPROC: '1' })
    await job.says(/(ready rank=\d[^]*){2}/)
    await slurm.run(['scancel', job.id]).finished
    expect(await job.end()).toMatchObject({ JobState: 'CANCELLED' })
    const pids = announcements(job.output).map(({ pid }) => pid)
    await untilGone(pids, 1000 * Slurm.killWait + 5000)
  })

  onSlurm('queues the job again after exit code 75, by which a retry may succeed', async () => {
    const program = ['--no-python', 'sh', '-c', '[ "$SLURM_RESTART_COUNT" ] || exit 75']
    const job = await slurm.submit([...small, sbatch, ...program], { TSRUN_NPROC: '1' })
    const { JobState, Restarts } = await job.end(90_000)
    const { output } = job
    expect({ JobState, Restarts, output }).toEqual({ JobState: 'COMPLETED', Restarts: '1', output })
  })

  onSlurm('saves when the job is requeued, and resumes', async () => {
    const job = await submit([], 'requeued')
    await job.says(/begun at step/)
    await slurm.run(['scontrol', 'requeue', job.id]).finished
    await expectContinued(job, 'SIGTERM')
  })
})

describe('ranks that srun starts without tsrun', () => {
  const program = [process.execPath, `${root}${fixtures}/distributed/launched.mjs`]

  onSlurm('find each other on two nodes', async () => {
    const run = slurm.run(['srun', '-N2', '-n3', ...program], { TSRUN_TOKEN: token })
    const { code, stdout, stderr } = await run.finished
    expect({ code, stderr: withoutWaiting(stderr) }).toEqual({ code: 0, stderr: '' })
    const met = saidBy(stdout)
    expect(met.map(({ rank, size, sum }) => [rank, size, sum])).toEqual(
      [0, 1, 2].map((rank) => [rank, 3, 3]),
    )
    const [first, , last] = met
    const places = { MASTER_ADDR: 'n0', WORLD_SIZE: '3' }
    expect(first).toMatchObject({ ...places, RANK: '0', LOCAL_RANK: '0', LOCAL_WORLD_SIZE: '2' })
    expect(last).toMatchObject({ ...places, RANK: '2', LOCAL_RANK: '0', LOCAL_WORLD_SIZE: '1' })
  })

  onSlurm('find each other if the first node resolves its own name to loopback', async () => {
    // What Debian's installer writes into /etc/hosts.
    const hosts = 'if [ $(hostname) = n0 ]; then umount /etc/hosts; '
    const write =
      'printf "127.0.1.1 n0\\n127.0.0.1 localhost\\n" > $0; mount --bind $0 /etc/hosts; fi; '
    const wrapped = ['unshare', '--mount', 'bash', '-c', `${hosts}${write}exec "$@"`]
    const command = ['srun', '-N2', '-n2', ...wrapped, join(slurm.folder, 'hosts'), ...program]
    const { code, stdout, stderr } = await slurm.run(command, { TSRUN_TOKEN: token }).finished
    expect({ code, stderr: withoutWaiting(stderr) }).toEqual({ code: 0, stderr: '' })
    expect(saidBy(stdout)).toHaveLength(2)
  })

  onSlurm('fail without a token, and say how to make one', async () => {
    const { code, stderr } = await slurm.run(['srun', '-N2', '-n2', ...program]).finished
    expect(code).toBe(1)
    expect(stderr).toContain('export TSRUN_TOKEN=$(openssl rand -hex 32) before srun')
  })

  onSlurm('end when one of them fails', async () => {
    const run = slurm.run(['srun', '-N2', '-n3', ...program, '2'], { TSRUN_TOKEN: token })
    const { code, stdout, stderr } = await run.finished
    expect(code).toBe(1)
    expect(stderr).toContain('Error: bad luck')
    expect(stderr).toContain('ERR_TSR_PEER_LOST')
    await untilGone(saidBy(stdout).map(({ pid }) => pid))
  })

  const hasMpi = ['/usr/bin', '/usr/local/bin'].some((folder) =>
    existsSync(`${folder}/mpirun.openmpi`),
  )
  const onMpi = hasMpi ? onSlurm : needing(false, 'mpirun').it

  onMpi('find each other over MPI, as do the ranks of mpirun with and without tsrun', async () => {
    const script = join(slurm.folder, 'mpi.sbatch')
    const mpirun = 'mpirun.openmpi --bind-to none -x TSRUN_TOKEN'
    const tsrun = 'node_modules/.bin/tsrun --nproc 1'
    const lines = [
      ...['#!/bin/bash', 'set -e'],
      `${mpirun} ${program.join(' ')}`,
      `${mpirun} --map-by ppr:1:node ${tsrun} --log-format raw ${program[1]}`,
      `TSRUN_TRANSPORT=mpi srun --mpi=pmix ${program.join(' ')}`,
    ]
    writeFileSync(script, `${lines.join('\n')}\n`)
    const root = { OMPI_ALLOW_RUN_AS_ROOT: '1', OMPI_ALLOW_RUN_AS_ROOT_CONFIRM: '1' }
    const flags = ['--nodes=2', '--ntasks-per-node=2']
    const job = await slurm.submit([...flags, script], { ...root, TSRUN_TOKEN: token })
    const { JobState } = await job.end()
    if (JobState !== 'COMPLETED') throw new Error(`the job is ${JobState}:\n${job.output}`)
    const sizes = saidBy(job.output).map(({ size }) => size)
    expect(sizes.sort()).toEqual([...Array(2).fill(2), ...Array(8).fill(4)])
  })
})

describe('the time limit of deploy/slurm.sbatch', () => {
  onSlurm('makes a job save before the limit, requeue itself and resume', async () => {
    await expectContinued(limited, 'SIGTERM')
  })
})

interface Met {
  readonly rank: number
  readonly size: number
  readonly sum: number
  readonly pid: number
}

/** What the ranks of `launched.mjs` have said, in their order. */
function saidBy(output: string): Met[] {
  const lines = Array.from(output.matchAll(/^\{"word":"met".*\}$/gm), ([line]) => line)
  return lines.map((line) => JSON.parse(line) as Met).sort((a, b) => a.rank - b.rank)
}

/** Without what srun says where the nodes of the job before are not free yet. */
function withoutWaiting(stderr: string): string {
  const waiting = /^srun: job \d+ (queued and waiting for|has been allocated) resources\n/gm
  return stderr.replaceAll(waiting, '')
}
