import Sequencer from '@jest/test-sequencer'

/** Tests that take a minute or more: started last, one would go on alone. */
const longest = [
  'docs/snippets',
  'parity/run',
  'e2e/distributed-failures',
  'e2e/gpt-example',
  'e2e/distributed',
  'e2e/pipeline-examples',
  'e2e/examples',
  'e2e/surviving-a-loss',
  'e2e/fsdp-example',
]

/** Jest knows how long tests take only where they have run before; a fresh clone has not. */
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
