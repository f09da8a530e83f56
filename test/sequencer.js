import Sequencer from '@jest/test-sequencer'

/**
 * Tests that take a quarter of a minute or more. If one of them started last, it would run alone at the
 * end.
 */
const longest = [
  'live/page',
  'tensorflow/padding',
  'e2e/chaos',
  'launcher/nodes/rendezvous',
  'e2e/dashboard',
  'launcher/nodes/elastic',
  'e2e/one-rank',
  'distributed/runners/calling-thread-messages',
  'e2e/launcher-output',
  'docs/snippets.slow',
  'examples/cnn.slow',
  'parity/run.slow',
  'e2e/distributed.slow',
  'e2e/distributed-failures.slow',
  'examples/pipelines.slow',
  'examples/gpt.slow',
  'bench/measuring.slow',
  'examples/steps.slow',
  'training/backend/parity.slow',
  'distributed/kernels/kernels.slow',
  'distributed/algorithms/collectives.slow',
  'e2e/gpu-check.slow',
  'examples/webgpu.slow',
]

/** Starts the longest tests first. Jest knows how long tests take only where they have run before. */
export default class LongestFirst extends Sequencer {
  /** @param {Parameters<Sequencer['sort']>[0]} tests */
  sort(tests) {
    const usual = super.sort(tests)
    const places = new Map(longest.map((name, place) => [name, place]))
    /** @param {{ readonly path: string }} test */
    const placeOf = ({ path }) => {
      const [, name = ''] = /test\/(.*)\.test\.ts$/.exec(path.replaceAll('\\', '/')) ?? []
      return places.get(name) ?? longest.length
    }
    return usual.toSorted((a, b) => placeOf(a) - placeOf(b))
  }
}
