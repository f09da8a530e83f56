import { findOpenMpi } from './systems/openmpi.mjs'
import { findTorch } from './systems/torch.mjs'

export const peerNames = /** @type {const} */ (['torch', 'openmpi'])

/** @typedef {(typeof peerNames)[number]} PeerName */

/**
 * The peers that are installed; a word on stderr about those that are not.
 *
 * @param {readonly PeerName[]} names
 * @param {string} folder - for what they compile
 */
export async function findPeers(names, folder) {
  const found = await Promise.all(
    names.map((name) => (name === 'torch' ? findTorch() : findOpenMpi(folder))),
  )
  for (const { skipped } of found) {
    if (skipped !== undefined) console.error(`skipped: ${skipped}`)
  }
  return {
    systems: found.flatMap(({ systems }) => systems),
    versions: Object.fromEntries(
      found.flatMap(({ version }, i) => (version === undefined ? [] : [[names[i], version]])),
    ),
    skipped: names.filter((_, i) => found[i]?.skipped !== undefined),
  }
}
