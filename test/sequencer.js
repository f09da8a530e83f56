import Sequencer from '@jest/test-sequencer'

/** Tests that take half a minute or more. If one of them started last, it would run alone at the end. */
const longest = [
  'parity/run.slow',
  'docs/snippets.slow',
  'examples/pipelines.slow',
  'examples/gpt.slow',
  'e2e/distributed-failures.slow',
  'e2e/surviving-a-loss.slow',
  'e2e/distributed.slow',
  'examples/steps.slow',
  'examples/fsdp.slow',
  'bench/measuring.slow',
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
