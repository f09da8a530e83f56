import { mkdtemp, readFile, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { runToEnd } from '../../child.mjs'

/**
 * Something that can be measured: ours, or a peer over one of its transports.
 *
 * @typedef {object} System
 * @property {'tsrun' | 'torch' | 'openmpi'} system
 * @property {'tcp' | 'node' | 'shared-memory' | 'gloo'} transport
 * @property {'worker' | 'inline' | null} engine - null where there is no such choice
 * @property {ReadonlySet<string>} lacks - operations that it does not have
 * @property {(ranks: number, output: string, steps: readonly string[]) => CommandLine} commandLine
 *
 * @typedef {{ command: string, args: string[], env?: NodeJS.ProcessEnv }} CommandLine
 *
 * @typedef {{ systems: System[], skipped?: string }} Found - `skipped` says why there are none
 *
 * @typedef {object} Sample
 * @property {import('../operations.mjs').Operation} op
 * @property {number} count
 * @property {number[]} us - one time for each repetition, the maximum over the ranks
 */

/** @param {Pick<System, 'system' | 'transport' | 'engine'>} system */
export function nameOf({ system, transport, engine }) {
  return [system, transport, engine].filter((part) => part !== null).join(' ')
}

/**
 * Starts the ranks of a system and reads what its rank 0 measured.
 *
 * @param {System} system
 * @param {number} ranks
 * @param {readonly string[]} steps - in the form of `stepArgument`
 * @returns {Promise<Sample[]>}
 * @throws when the ranks fail, with the end of their output
 */
export async function measure(system, ranks, steps) {
  const folder = await mkdtemp(join(tmpdir(), 'tsrun-bench-'))
  try {
    const output = join(folder, 'samples.jsonl')
    const { command, args, env } = system.commandLine(ranks, output, steps)
    const outcome = await runToEnd(command, args, { env: { ...process.env, ...env } })
    if (!outcome.ok) {
      const last = outcome.output.trimEnd().split('\n').slice(-20).join('\n')
      throw new Error(`${nameOf(system)} failed (${outcome.reason})\n${last}`)
    }
    const lines = (await readFile(output, 'utf8')).trimEnd().split('\n')
    return lines.map((line) => /** @type {Sample} */ (JSON.parse(line)))
  } finally {
    await rm(folder, { recursive: true, force: true })
  }
}
