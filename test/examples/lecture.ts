import { readFileSync } from 'node:fs'
import { resultIn, runScript } from '../launcher/support/script.ts'

/** [first, sum, norm] */
type Numbers = readonly [number, number, number]

interface Outcome {
  readonly ranks: number
  /** By rank and step. */
  readonly losses: readonly number[][]
  readonly activations: readonly Numbers[]
  /** By rank and layer. */
  readonly parameters: readonly Numbers[][]
}

interface Digest {
  readonly first: number
  readonly sum: number
  readonly norm: number
}

interface Golden {
  readonly flags: Readonly<Record<'layers' | 'width' | 'rows' | 'steps', number>>
  readonly losses: readonly number[]
  readonly rankLosses: Readonly<Record<string, readonly number[][]>>
  readonly activations: readonly Digest[]
  readonly parameters: readonly Digest[]
  readonly columns: Readonly<Record<string, readonly Digest[][]>>
}

// From PyTorch: golden.py in the same folder.
const file = new URL('../fixtures/lecture/golden.json', import.meta.url)
const golden = JSON.parse(readFileSync(file, 'utf8')) as Record<'small' | 'lecture', Golden>

async function run<T extends Outcome>(nproc: number, name: string, { flags }: Golden): Promise<T> {
  const args = Object.entries(flags).flatMap(([flag, value]) => [`--${flag}`, String(value)])
  return resultIn(await runScript(nproc, `examples/lecture/${name}.ts`, ...args)) as unknown as T
}

function expectLosses(losses: readonly number[], expected: readonly number[]): void {
  expect(losses).toHaveLength(expected.length)
  losses.forEach((loss, step) => {
    expect(Math.abs(loss / expected[step]! - 1)).toBeLessThan(1e-5)
  })
}

/** The sum is compared in units of the norm, because its terms cancel each other. */
function expectDigest([first, sum, norm]: Numbers, expected: Digest): void {
  expect(Math.abs(first - expected.first)).toBeLessThan(1e-5)
  expect(Math.abs(norm / expected.norm - 1)).toBeLessThan(1e-5)
  expect(Math.abs(sum - expected.sum) / expected.norm).toBeLessThan(1e-4)
}

/**
 * What the programs of the lecture promise.
 *
 * @param sizes - ranks of data and tensor parallel training
 * @param stages - ranks of pipelines
 */
export function describeLecture(
  name: keyof typeof golden,
  sizes: readonly number[],
  stages: readonly number[],
): void {
  describe(`the programs of the lecture (${name})`, () => {
    const expected = golden[name]
    const { layers } = expected.flags

    it.each(sizes)("data parallel on %i ranks has PyTorch's numbers", async (size) => {
      type Both = Outcome & { readonly isSame: boolean; readonly difference: number }
      const outcome = await run<Both>(size, 'data-parallel', expected)
      expect(outcome.ranks).toBe(size)
      outcome.losses.forEach((losses, rank) => {
        expectLosses(losses, expected.rankLosses[size]![rank]!)
      })
      // the ranks have different losses, and the same parameters
      expect(new Set(outcome.losses.map(([first]) => first)).size).toBe(size)
      expect(outcome.isSame).toBe(true)
      expect(outcome.difference).toBeLessThan(1e-5)
      outcome.parameters[0]!.forEach((numbers, layer) => {
        expectDigest(numbers, expected.parameters[layer]!)
      })
    })

    it.each(sizes)("tensor parallel on %i ranks has PyTorch's numbers", async (size) => {
      const outcome = await run(size, 'tensor-parallel', expected)
      expect(outcome.ranks).toBe(size)
      for (const losses of outcome.losses) expectLosses(losses, expected.losses)
      for (const numbers of outcome.activations) expectDigest(numbers, expected.activations.at(-1)!)
      outcome.parameters.forEach((ofRank, rank) => {
        expect(ofRank).toHaveLength(layers)
        ofRank.forEach((numbers, layer) => {
          expectDigest(numbers, expected.columns[size]![rank]![layer]!)
        })
      })
    })

    it.each(stages)("a pipeline of %i ranks has PyTorch's numbers", async (size) => {
      const outcome = await run(size, 'pipeline-parallel', expected)
      expect(outcome.losses.slice(0, -1).flat()).toEqual([])
      expectLosses(outcome.losses.at(-1)!, expected.losses)
      const own = layers / size
      outcome.parameters.forEach((ofRank, rank) => {
        expect(ofRank).toHaveLength(own)
        ofRank.forEach((numbers, layer) => {
          expectDigest(numbers, expected.parameters[rank * own + layer]!)
        })
        expectDigest(outcome.activations[rank]!, expected.activations[(rank + 1) * own - 1]!)
      })
    })
  })
}
