import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { randomBytes } from 'node:crypto'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { until } from '../../launcher/support/tsrun.ts'
import { Cluster, hasHosts, onHosts } from './cluster.ts'
import { needing } from '../../needs.ts'

const folders = [...(process.env['PATH'] ?? '').split(':'), '/usr/sbin', '/usr/local/sbin']
const missing = ['slurmctld', 'slurmd', 'munged', 'sbatch'].filter(
  (name) => !folders.some((folder) => existsSync(join(folder, name))),
)
/** Whether Slurm and hosts can be had here. */
export const isSlurmHere = missing.length === 0 && hasHosts

/** A test that needs Slurm, and hosts. */
export const onSlurm =
  missing.length === 0 ? onHosts : needing(false, `Slurm (${missing.join(', ')})`).it

/** What `scontrol show job` says of a job, by key. */
export type JobFacts = Readonly<Record<string, string>>

/** A controller and a slurmd on each of some hosts, until `down`. */
export class Slurm {
  readonly cluster: Cluster
  readonly folder = mkdtempSync(join(tmpdir(), 'tsrun-slurm-'))
  /** Seconds between SIGTERM and SIGKILL when Slurm ends a job. */
  static readonly killWait = 5

  private constructor(hosts: number) {
    this.cluster = new Cluster(hosts)
  }

  static async start(hosts: number): Promise<Slurm> {
    const slurm = new Slurm(hosts)
    await slurm.#start(hosts)
    return slurm
  }

  async #start(hosts: number): Promise<void> {
    const { folder } = this
    for (const name of ['munge', 'state', 'spool', 'out']) mkdirSync(join(folder, name))
    writeFileSync(join(folder, 'munge/key'), randomBytes(128), { mode: 0o600 })
    writeFileSync(join(folder, 'slurm.conf'), configuration(folder, hosts))
    const path = ['key-file', 'socket', 'pid-file', 'log-file', 'seed-file']
    const places = path.flatMap((flag) => [`--${flag}`, join(folder, 'munge', flag.split('-')[0]!)])
    const munged = this.run(['munged', '--foreground', '--force', ...places])
    const socket = join(folder, 'munge/socket')
    await until(() => existsSync(socket), `munged listens; ${munged.stderr}`)
    const controller = this.run(['slurmctld', '-D'])
    for (let host = 0; host < hosts; host++) this.run(['slurmd', '-D', '-N', `n${host}`], {}, host)
    const deadline = Date.now() + 30_000
    for (;;) {
      const { stdout } = await this.run(['sinfo', '-h', '-o', '%D %t']).finished
      if (stdout.trim() === `${hosts} idle`) return
      if (Date.now() > deadline) throw new Error(`no idle nodes: ${stdout}${controller.stderr}`)
    }
  }

  /** Runs a command on a host, where the commands of Slurm find their configuration. */
  run(
    command: readonly string[],
    env: NodeJS.ProcessEnv = {},
    host = 0,
  ): ReturnType<Cluster['run']> {
    const own = { SLURM_CONF: join(this.folder, 'slurm.conf') }
    const path = `${process.env['PATH'] ?? ''}:/usr/sbin:/usr/local/sbin`
    return this.cluster.run(host, command, { PATH: path, ...own, ...env })
  }

  /** Submits a batch script with some arguments. */
  async submit(args: readonly string[], env: NodeJS.ProcessEnv = {}): Promise<SlurmJob> {
    const log = ['--output', join(this.folder, 'out', '%j.log')]
    const { code, stdout, stderr } = await this.run(['sbatch', '--parsable', ...log, ...args], env)
      .finished
    expect({ code, stderr }).toEqual({ code: 0, stderr: '' })
    return new SlurmJob(this, stdout.trim())
  }

  async down(): Promise<void> {
    await this.cluster.down()
    rmSync(this.folder, { recursive: true })
  }
}

/** A job of the queue. */
export class SlurmJob {
  readonly #slurm: Slurm
  readonly id: string

  constructor(slurm: Slurm, id: string) {
    this.#slurm = slurm
    this.id = id
  }

  /** What the batch script and the ranks have written so far, in all runs of the job. */
  get output(): string {
    const path = join(this.#slurm.folder, 'out', `${this.id}.log`)
    return existsSync(path) ? readFileSync(path, 'utf8') : ''
  }

  async says(pattern: RegExp, limit = 40_000): Promise<void> {
    await until(() => pattern.test(this.output), `${pattern} in\n${this.output}`, limit)
  }

  async facts(): Promise<JobFacts> {
    const { stdout } = await this.#slurm.run(['scontrol', '-o', 'show', 'job', this.id]).finished
    return Object.fromEntries(
      Array.from(stdout.matchAll(/(\S+?)=(\S*)/g), ([, key, value]) => [key!, value!]),
    )
  }

  /** Waits until the job is over: `COMPLETED`, `FAILED`, `CANCELLED`, ... */
  async end(limit = 60_000): Promise<JobFacts> {
    const deadline = Date.now() + limit
    for (;;) {
      const facts = await this.facts()
      const { JobState: state = '' } = facts
      if (!['PENDING', 'CONFIGURING', 'RUNNING', 'COMPLETING', ''].includes(state)) return facts
      if (Date.now() > deadline) throw new Error(`job ${this.id} is ${state}:\n${this.output}`)
    }
  }
}

/** One partition with all hosts. A job that was queued again starts after seconds instead of minutes. */
function configuration(folder: string, hosts: number): string {
  return [
    'ClusterName=tsrun',
    'SlurmctldHost=n0',
    'SlurmUser=root',
    'SlurmdUser=root',
    'AuthType=auth/munge',
    `AuthInfo=socket=${folder}/munge/socket,cred_expire=5`,
    'CredType=cred/munge',
    'SlurmctldPort=17000',
    'SlurmdPort=17001',
    `SlurmctldPidFile=${folder}/slurmctld.pid`,
    `SlurmdPidFile=${folder}/slurmd.%n.pid`,
    `StateSaveLocation=${folder}/state`,
    `SlurmdSpoolDir=${folder}/spool/%n`,
    'ProctrackType=proctrack/linuxproc',
    'TaskPlugin=task/none',
    'JobAcctGatherType=jobacct_gather/none',
    'AccountingStorageType=accounting_storage/none',
    'JobCompType=jobcomp/none',
    'SelectType=select/cons_tres',
    'SelectTypeParameters=CR_CPU',
    'SwitchType=switch/none',
    'MpiDefault=none',
    'ReturnToService=2',
    'SlurmdParameters=config_overrides',
    `KillWait=${Slurm.killWait}`,
    'MailProg=/bin/true',
    'SchedulerParameters=sched_interval=1,sched_min_interval=0,batch_sched_delay=0',
    'TmpFS=/dev/shm',
    `NodeName=n[0-${hosts - 1}] CPUs=16 RealMemory=1000 State=UNKNOWN`,
    'PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP',
    '',
  ].join('\n')
}
