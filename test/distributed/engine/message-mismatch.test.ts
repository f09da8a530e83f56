import { runWorld } from '@tsrun/distributed'
import { failureOf } from '../support/failing-call.ts'
import { errorOf } from '../support/outcome.ts'
import { newArray } from '../support/values.ts'

describe('a send and a receive that differ', () => {
  const lengths = [3, 4, 50_000, 50_001]
  const pairs = lengths.flatMap((sent) =>
    lengths.filter((received) => received !== sent).map((received) => ({ sent, received })),
  )

  it.each(pairs)(
    'fail on both ranks if $sent elements are sent and $received expected',
    async ({ sent, received }) => {
      for (let seed = 0; seed < 6; seed++) {
        const errors = await runWorld({ size: 3, seed }, async (group) => {
          if (group.rank === 2) return await errorOf(() => group.barrier())
          return await failureOf(group, () =>
            group.rank === 0
              ? group.send(newArray('float32', sent), 1)
              : group.recv(newArray('float32', received), 0),
          )
        })
        for (const error of errors.slice(0, 2)) {
          expect(error?.message).toContain(`float32[${sent}]`)
          expect(error?.message).toContain(`float32[${received}]`)
          expect(error).toMatchObject({ code: 'ERR_TSR_MISMATCH' })
        }
        expect(errors[2]).toMatchObject({
          code: expect.stringMatching(/GROUP_FAILED|MISMATCH|PEER_FAILED/),
        })
      }
    },
  )

  it('fail on both ranks if only the dtype differs', async () => {
    const errors = await runWorld({ size: 2 }, async (group) =>
      failureOf(group, () =>
        group.rank === 0
          ? group.send(newArray('float32', 4), 1)
          : group.recv(newArray('int32', 4), 0),
      ),
    )
    for (const error of errors) {
      expect(error?.message).toMatch(
        /send\/recv (float32|int32)\[4\].*send\/recv (float32|int32)\[4\]/,
      )
    }
  })
})
