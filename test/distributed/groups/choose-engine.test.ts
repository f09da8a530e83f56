import { describe, expect, it } from '@jest/globals'
import { chooseEngine } from '../../../packages/distributed/src/groups/join/options.ts'

const job = (worldSize: number, localWorldSize: number) => ({ worldSize, localWorldSize })

describe('the engine that `auto` takes', () => {
  it.each([
    ['two ranks on two cores', job(2, 2), 'tcp', 2, 'inline'],
    ['four ranks on two cores', job(4, 4), 'tcp', 2, 'inline'],
    ['three ranks on four cores: one has no second', job(3, 3), 'tcp', 4, 'inline'],
    ['a second core for each', job(2, 2), 'tcp', 4, 'worker'],
    ['a rank alone on one core', job(1, 1), 'tcp', 1, 'inline'],
    ['two hosts, whose messages a computing rank would hold up', job(4, 2), 'tcp', 2, 'worker'],
    ['node:net, which cannot block', job(2, 2), 'node', 2, 'worker'],
    ['ranks of mpirun', job(2, 2), 'mpi', 2, 'worker'],
    ['no launcher that says who is on this host', undefined, 'tcp', 2, 'worker'],
  ] as const)('%s', (_, environment, transport, cores, expected) => {
    expect(chooseEngine({ environment, transport, cores })).toBe(expected)
  })
})
