// Draws pictures of docs/images from the code's own data:
// npm run build && node --import tsx --conditions @tsrun/source scripts/pictures.mjs
import { writeFileSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import { drawCollectives } from './pictures/collectives.mjs'
import { drawMemory } from './pictures/memory.mjs'
import { drawParallel } from './pictures/parallel.mjs'
import { drawSteps } from './pictures/steps.mjs'
import { drawTimeline } from './pictures/timeline.mjs'

const HOSTS = [0, 0, 1, 1]
const FOUR_SEGMENTS = 2 ** 20

/** @type {Record<string, () => string | Promise<string>>} by name of the file */
export const pictures = {
  'collectives.svg': drawCollectives,
  'timeline.svg': drawTimeline,
  'memory.svg': drawMemory,
  'parallel.svg': drawParallel,
  'steps-ring.svg': () =>
    drawSteps('ring', [{ name: 'allReduce' }, { name: 'reduceScatter' }, { name: 'allGather' }]),
  'steps-binomial-tree.svg': () =>
    drawSteps(
      'binomial-tree',
      ['broadcast', 'reduce', 'scatter', 'gather'].map((name) => ({ name, oneAtATime: true })),
    ),
  'steps-recursive-doubling.svg': () => drawSteps('recursive-doubling', [{ name: 'allReduce' }]),
  'steps-halving-doubling.svg': () => drawSteps('halving-doubling', [{ name: 'allReduce' }]),
  'steps-recursive-halving.svg': () => drawSteps('recursive-halving', [{ name: 'reduceScatter' }]),
  'steps-direct.svg': () =>
    drawSteps('direct', [{ name: 'allReduce' }, { name: 'reduce' }, { name: 'broadcast' }]),
  'steps-pairwise.svg': () => drawSteps('pairwise', [{ name: 'allToAll', oneAtATime: true }]),
  'steps-bruck.svg': () => drawSteps('bruck', [{ name: 'allGather' }]),
  'steps-chain.svg': () =>
    drawSteps('chain', [{ name: 'broadcast', bytes: FOUR_SEGMENTS, oneAtATime: true }]),
  'steps-linear.svg': () => drawSteps('linear', [{ name: 'scatter' }]),
  'steps-hierarchical.svg': () =>
    drawSteps('hierarchical', [{ name: 'allReduce', hosts: HOSTS }], 'hosts {0, 1} and {2, 3}'),
  'steps-dissemination.svg': () => drawSteps('dissemination', [{ name: 'barrier' }]),
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  for (const [name, draw] of Object.entries(pictures)) {
    writeFileSync(new URL(`../docs/images/${name}`, import.meta.url), await draw())
  }
}
