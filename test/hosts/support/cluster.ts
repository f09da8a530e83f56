import { execFileSync, spawn, type ChildProcess } from 'node:child_process'
import { once } from 'node:events'
import { readFileSync, writeFileSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import { cleanEnvironment, until, type Finished } from '../../launcher/support/tsrun.ts'
import { needing } from '../../needs.ts'

export const root = fileURLToPath(new URL('../../../', import.meta.url))
const script = `${root}scripts/netns-cluster.sh`

export const token = 'decade'.repeat(8)

/** Why hosts cannot be made here; undefined if they can. */
function whyNoHosts(): string | undefined {
  if (process.platform !== 'linux') return 'no Linux'
  if (process.getuid?.() !== 0) return 'not root'
  try {
    execFileSync('ip', ['netns', 'list'], { stdio: 'ignore' })
    for (const tool of ['nsenter', 'unshare'])
      execFileSync(tool, ['--version'], { stdio: 'ignore' })
    return undefined
  } catch {
    return 'no `ip netns`, nsenter or unshare'
  }
}

const reason = whyNoHosts()

/** Whether hosts can be made here. */
export const hasHosts = reason === undefined

/** A test that needs hosts. */
export const { it: onHosts } = needing(hasHosts, `hosts (${reason})`)

const up = new Set<Cluster>()

/** For `afterEach`. */
export async function endClusters(): Promise<void> {
  for (const cluster of [...up]) await cluster.down()
}

/** A command that runs on one of the hosts. */
export class HostRun {
  readonly child: ChildProcess
  readonly finished: Promise<Finished>
  stdout = ''
  stderr = ''

  constructor(child: ChildProcess) {
    this.child = child
    child.stdout!.setEncoding('utf8').on('data', (text: string) => (this.stdout += text))
    child.stderr!.setEncoding('utf8').on('data', (text: string) => (this.stderr += text))
    this.finished = new Promise((resolve) => {
      let at = 0
      child.once('exit', () => (at = performance.now()))
      child.once('close', (code, signal) => {
        resolve({ code, signal, stdout: this.stdout, stderr: this.stderr, at })
      })
    })
  }

  async says(pattern: RegExp, limit = 60_000): Promise<RegExpExecArray> {
    const find = (): RegExpExecArray | null => pattern.exec(this.stdout + this.stderr)
    await until(() => find() !== null, `${pattern} in\n${this.stdout}${this.stderr}`, limit)
    return find()!
  }
}

/** Hosts n0, n1, … with the addresses 10.99.0.1, 10.99.0.2, … until `down`. */
export class Cluster {
  readonly name: string
  readonly #children: ChildProcess[] = []

  constructor(hosts: number) {
    this.name = call(['up', String(hosts), String(process.pid)])
    up.add(this)
  }

  /** Runs a command on a host, in the clone of the repository. */
  run(host: number, command: readonly string[], env: NodeJS.ProcessEnv = {}): HostRun {
    const child = spawn(script, ['run', this.name, String(host), ...command], {
      cwd: root,
      env: { ...cleanEnvironment(), ...env },
      stdio: ['ignore', 'pipe', 'pipe'],
    })
    this.#children.push(child)
    return new HostRun(child)
  }

  /** `tsrun` on host `node` of `nnodes`, with the store at n0. */
  tsrun(
    node: number,
    nnodes: number,
    args: readonly string[],
    env: NodeJS.ProcessEnv = {},
  ): HostRun {
    const flags = ['--nnodes', String(nnodes), '--node-rank', String(node)]
    const bin = [process.execPath, `${root}packages/launcher/bin/tsrun.js`]
    const all = [...bin, ...flags, '--rdzv-endpoint', 'n0:29500', '--no-summary', ...args]
    return this.run(node, all, { TSRUN_TOKEN: token, ...env })
  }

  /** Gives a host, or an address, one more name, which all of them know. */
  alias(host: number | string, name: string): void {
    call(['alias', this.name, String(host), name])
  }

  /** Lets a name lead to another address. */
  rename(name: string, address: string): void {
    const file = `/run/tsrun-netns/${this.name}/hosts`
    const others = readFileSync(file, 'utf8').replaceAll(new RegExp(`^.* ${name}\\n`, 'gm'), '')
    // the same file, which is mounted on the hosts
    writeFileSync(file, `${others}${address} ${name}\n`)
  }

  /** Gives a host one more address. */
  address(host: number, address: string): void {
    call(['address', this.name, String(host), address])
  }

  /** A firewall on a host: these ports of that address never answer. */
  shut(host: number, address: string, ports: string): void {
    call(['shut', this.name, String(host), address, ports])
  }

  cut(host: number): void {
    call(['cut', this.name, String(host)])
  }

  mend(host: number): void {
    call(['mend', this.name, String(host)])
  }

  /** Sends the traffic of a host through a relay; the returned function changes its faults. */
  async relay(host: number, ...faults: string[]): Promise<(fault: string) => void> {
    const child = spawn(script, ['relay', this.name, String(host), ...faults], {
      stdio: ['pipe', 'pipe', 'inherit'],
    })
    this.#children.push(child)
    await once(child.stdout, 'data')
    return (fault) => {
      child.stdin.write(`${fault}\n`)
    }
  }

  /** Ends everything on the hosts, and removes them. */
  async down(): Promise<void> {
    up.delete(this)
    call(['down', this.name])
    const left = this.#children.filter(
      ({ exitCode, signalCode }) => exitCode === null && signalCode === null,
    )
    await Promise.all(left.map((child) => once(child, 'exit')))
  }
}

function call(args: readonly string[]): string {
  return execFileSync(script, args, { encoding: 'utf8' }).trim()
}

/** The figures of a training run, which do not depend on how fast it was. */
export function lossesOf(stdout: string): string[] {
  return Array.from(stdout.matchAll(/test accuracy \S+ %?\s+test loss \S+/g), ([line]) => line)
}
