// One rank: tune-rank.mjs OUTPUT transport engine op:count:warmUps:repeats:algorithm,... ...
import { writeFileSync } from 'node:fs'
import { initProcessGroup } from '@tsrun/distributed'
import { checkResult, operationOn } from '../collectives/ranks/tsrun-operations.mjs'
import { median, percentile } from '../figures.mjs'

const [output, transport, engine, ...steps] = process.argv.slice(2)
const group = await initProcessGroup({ transport, engine })

const lines = steps.flatMap((step) => {
  const [op, count, warmUps, repeats, algorithms] = step.split(':')
  return measure(op, Number(count), Number(warmUps), Number(repeats), algorithms.split(','))
})
if (group.rank === 0) writeFileSync(output, lines.map((line) => JSON.stringify(line)).join('\n'))
await group.destroy()

/**
 * Runs the algorithms in turn, so that a change in the load of the machine affects all of them.
 *
 * @param {string} op
 * @param {number} count
 * @param {number} warmUps
 * @param {number} repeats
 * @param {readonly string[]} algorithms
 */
function measure(op, count, warmUps, repeats, algorithms) {
  const rows = algorithms.map((algorithm) => ({
    algorithm,
    operation: operationOn(group, op, count, { algorithm }),
    times: group.alloc('float64', repeats),
  }))
  for (const { operation } of rows) checkResult(group, op, operation)
  for (let i = -warmUps; i < repeats; i++) {
    for (const { operation, times } of rows) {
      group.barrierSync()
      const start = performance.now()
      operation.run()
      if (i >= 0) times[i] = (performance.now() - start) * 1e3
    }
  }
  return rows.map(({ algorithm, operation, times }) => {
    group.allReduceSync(times, { op: 'max' })
    const [us, lowUs] = [median(times), percentile(times, 0.1)]
    group.free(times)
    operation.free()
    return { op, bytes: count * 4, algorithm, us, lowUs }
  })
}
