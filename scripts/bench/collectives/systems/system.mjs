import { runRanks } from '../../ranks.mjs'

/**
 * Something that can be measured: ours, or a peer over one of its transports.
 *
 * @typedef {object} System
 * @property {'tsrun' | 'torch' | 'openmpi'} system
 * @property {'tcp' | 'node' | 'shared-memory' | 'gloo'} transport
 * @property {'worker' | 'inline' | null} engine - null where there is no such choice
 * @property {(ranks: number, output: string, steps: readonly string[]) => CommandLine} commandLine
 *
 * @typedef {import('../../ranks.mjs').CommandLine} CommandLine
 *
 * @typedef {object} Found
 * @property {System[]} systems
 * @property {string} [skipped] - says why there are none
 * @property {string} [version]
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
 * @throws ERR_BENCH_RUN
 */
export async function measure(system, ranks, steps) {
  const text = await runRanks(nameOf(system), (output) => system.commandLine(ranks, output, steps))
  const lines = text.trimEnd().split('\n')
  return lines.map((line) => /** @type {Sample} */ (JSON.parse(line)))
}
