import {
  describeBreaking,
  describeDamage,
  describeDeaths,
  describeDelay,
  inject,
  otherDamages,
  otherDeaths,
} from './support/chaos.ts'

describeDeaths(otherDeaths)
describeBreaking(['half-close'])
describeDamage(otherDamages)
describeDelay(['inline'])

it('--chaos chooses the same rank for the same seed', async () => {
  const runs = [1, 2].map(() => inject([{ kind: 'exit', step: 1 }]))
  const [first, second] = (await Promise.all(runs)).map(
    ({ stderr }) => /chaos: (rank \d)/.exec(stderr)![1],
  )
  expect(first).toBe(second)
})
