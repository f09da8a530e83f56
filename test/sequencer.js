import Sequencer from '@jest/test-sequencer'

/**
 * Tests that take a quarter of a minute or more. If one of them started last, it would run alone at the
 * end.
 */
const longest = [
  'docs/snippets.slow',
  'live/page.slow',
  'examples/fsdp.slow',
  'models/generate-devices.slow',
  'e2e/chaos.slow',
  'launcher/nodes/rendezvous.slow',
  'e2e/dashboard.slow',
  'launcher/nodes/elastic.slow',
  'e2e/one-rank',
  'distributed/runners/calling-thread-messages.slow',
  'e2e/launcher-output',
  'examples/cnn.nightly',
  'parity/run.slow',
  'parity/run.nightly',
  'e2e/distributed.slow',
  'e2e/distributed-failures.nightly',
  'examples/pipelines.nightly',
  'examples/gpt.slow',
  'bench/measuring.nightly',
  'examples/steps.slow',
  'training/backend/parity.nightly',
  'distributed/kernels/kernels.nightly',
  'e2e/gpu-check.slow',
  'examples/webgpu.nightly',
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
