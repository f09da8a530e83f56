import { fileURLToPath } from 'node:url'
import { tsrunLine } from '../../ranks.mjs'

const rank = fileURLToPath(new URL('../ranks/tsrun-rank.mjs', import.meta.url))

/**
 * Ours, one system for each transport and engine that fit together.
 *
 * @param {readonly ('tcp' | 'node')[]} transports
 * @param {readonly ('worker' | 'inline')[]} engines
 * @returns {import('./system.mjs').System[]}
 */
export function tsrunSystems(transports, engines) {
  return transports.flatMap((transport) =>
    engines
      .filter((engine) => transport === 'tcp' || engine === 'worker')
      .map((engine) => ({
        system: /** @type {const} */ ('tsrun'),
        transport,
        engine,
        lacks: new Set(['allToAll']),
        commandLine: (ranks, output, steps) =>
          tsrunLine(ranks, rank, [output, transport, engine, ...steps]),
      })),
  )
}
