import { fileURLToPath } from 'node:url'
import { tsrunLine } from '../../ranks.mjs'

const rank = fileURLToPath(new URL('../ranks/tsrun-rank.mjs', import.meta.url))

/** Of ours, each measured by itself. */
export const transports = /** @type {const} */ (['shared-memory', 'tcp', 'node'])

/**
 * Ours, one system for each transport and engine that fit together.
 *
 * @param {readonly (typeof transports)[number][]} wanted
 * @param {readonly ('worker' | 'inline')[]} engines
 * @returns {import('./system.mjs').System[]}
 */
export function tsrunSystems(wanted, engines) {
  return wanted.flatMap((transport) =>
    engines
      .filter((engine) => transport !== 'node' || engine === 'worker')
      .map((engine) => ({
        system: /** @type {const} */ ('tsrun'),
        transport,
        engine,
        commandLine: (ranks, output, steps) =>
          tsrunLine(ranks, rank, [output, transport, engine, ...steps]),
      })),
  )
}
