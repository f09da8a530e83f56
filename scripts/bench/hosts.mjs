// Hosts made of network namespaces, and a tsrun on each of them.
import { execFileSync } from 'node:child_process'
import { randomBytes } from 'node:crypto'
import { fileURLToPath } from 'node:url'
import { tsrunLine } from './programs.mjs'

const cluster = fileURLToPath(new URL('../netns-cluster.sh', import.meta.url))

/**
 * @typedef {object} Hosts
 * @property {(host: number, nproc: number, script: string, args?: readonly string[], flags?: readonly string[]) =>
 *   import('./programs.mjs').CommandLine & { env: NodeJS.ProcessEnv }} tsrun - the part of a job of all hosts
 * @property {(host: number) => void} cut - pulls the cable of a host
 */

/** Why there can be no hosts here; undefined if there can. */
export function whyNoHosts() {
  const isRoot = process.platform === 'linux' && process.getuid?.() === 0
  if (!isRoot) return 'no network namespaces (needs Linux and root)'
  try {
    execFileSync('ip', ['netns', 'list'], { stdio: 'ignore' })
    return undefined
  } catch {
    return 'no network namespaces (`ip netns list` fails)'
  }
}

/**
 * Makes hosts for `use`, and removes them afterwards.
 *
 * @template T
 * @param {number} count
 * @param {(hosts: Hosts) => Promise<T>} use
 * @returns {Promise<T>}
 */
export async function withHosts(count, use) {
  const name = execFileSync(cluster, ['up', String(count), String(process.pid)], {
    encoding: 'utf8',
  }).trim()
  const env = { TSRUN_TOKEN: randomBytes(32).toString('hex') }
  try {
    return await use({
      tsrun: (host, nproc, script, args = [], flags = []) => {
        const line = tsrunLine(nproc, script, args)
        const [bin = '', ...job] = line.args
        const place = ['--nnodes', String(count), '--node-rank', String(host)]
        const own = [...place, '--rdzv-endpoint', 'n0:29500', ...flags, ...job]
        return {
          command: cluster,
          args: ['run', name, String(host), line.command, bin, ...own],
          env,
        }
      },
      cut: (host) => {
        execFileSync(cluster, ['cut', name, String(host)])
      },
    })
  } finally {
    execFileSync(cluster, ['down', name])
  }
}
