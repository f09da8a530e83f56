import { runScript } from '../../../../launcher/support/script.ts'

interface Report {
  readonly form: string
  readonly options: { readonly needsInputGradient: boolean }
  readonly isSame: boolean
  /** With three recordings at a time. */
  readonly isSameInFlight: boolean
  /** Of a forward and a backward pass. */
  readonly messages: number
  readonly isSameMessages: boolean
  /** Tensors, after all recordings and after all. */
  readonly leaked: number
  readonly left: number
  /** Buffers of the group. */
  readonly lent: number
}

/** Compares passes in segments with those in one piece, on so many ranks. */
export function describeSegments(size: number): void {
  describe('a sharded network in segments', () => {
    it(`has the bits and the messages of the model in one piece, ${size} ranks`, async () => {
      const script = 'test/training/parallel/tensor/fixtures/in-segments.mjs'
      const ranks = JSON.parse(await runScript(size, script)) as Report[][]
      expect(ranks).toHaveLength(size)
      const good = {
        ...{ isSame: true, isSameInFlight: true, isSameMessages: true },
        ...{ leaked: 0, left: 0, lent: 0 },
      }
      for (const report of ranks.flat()) expect(report).toMatchObject(good)
      const messages = ranks[0]!.map(({ form, options, messages }) => [
        `${form}${options.needsInputGradient ? ', with the input' : ''}`,
        messages,
      ])
      expect(Object.fromEntries(messages)).toMatchObject({
        'column-row': 3,
        'column-row, with the input': 4,
        gathered: 5,
        paired: 3,
        late: 2,
        whole: 0,
      })
    })
  })
}
