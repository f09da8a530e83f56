// One of our ranks: tsrun-rank.mjs OUTPUT TRANSPORT ENGINE op:count:warmUps:repeats ...
import { writeFileSync } from 'node:fs'
import { initProcessGroup } from '@tsrun/distributed'
import { parseStep } from '../plan.mjs'
import { checkResult, operationOn } from './tsrun-operations.mjs'

/** The just-in-time compiler reaches its last tier, in which training runs, after some thousand calls. */
const WARM_UP_FACTOR = 30
/** Elements from which on the time of a call is that of its bytes. */
const LARGE = 262_144

const [output, transport, engine, ...steps] = process.argv.slice(2)
const group = await initProcessGroup({ transport, engine })

// The first operation needs a longer warm-up than the others, which share most of its code.
const [first] = steps
if (first !== undefined) measure(parseStep(first))

const lines = steps.map((argument) => {
  const step = parseStep(argument)
  return JSON.stringify({ op: step.op, count: step.count, us: measure(step) })
})
if (group.rank === 0) writeFileSync(output, lines.join('\n') + '\n')
await group.destroy()

/** @param {import('../plan.mjs').Step} step */
function measure({ op, count, warmUps, repeats }) {
  const operation = operationOn(group, op, count)
  const { run, free } = operation
  checkResult(group, op, operation)
  for (let i = 0; i < warmUps * (count <= LARGE ? WARM_UP_FACTOR : 1); i++) {
    group.barrierSync()
    run()
  }
  const times = group.alloc('float64', repeats)
  for (let i = 0; i < repeats; i++) {
    group.barrierSync()
    const start = performance.now()
    run()
    times[i] = (performance.now() - start) * 1e3
  }
  group.allReduceSync(times, { op: 'max' })
  const us = Array.from(times, (time) => Number(time.toFixed(3)))
  group.free(times)
  free()
  return us
}
