// Trains every layout on as many of the job's ranks as it takes, one after the other, and compares each
// step with that of a single process. Rank 0 writes a line of JSON for each.
import { appendFileSync } from 'node:fs'
import { initProcessGroup, newGroup } from '@tsrun/distributed'
import { loadBackend } from '@tsrun/training'
import { addStep, assemble, isSame, noErrors } from './compare.mjs'
import { ranksOf } from './configurations.mjs'
import { trainTogether } from './layouts.mjs'
import { problems } from './models.mjs'
import { trainAlone } from './reference.mjs'

/** @type {[string, string]} */
const [output, request] = /** @type {[string, string]} */ (process.argv.slice(2))
/** @type {{ runs: { configuration: import('./configurations.mjs').Configuration, model: import('./configurations.mjs').ModelName }[], steps: number }} */
const { runs, steps } = JSON.parse(request)
const world = await initProcessGroup()
await loadBackend()

/** @type {Map<number, import('@tsrun/distributed').ProcessGroup>} */
const groups = new Map([[world.size, world]])
/** @type {Map<string, import('./reference.mjs').StepResult[]>} */
const references = new Map()
/** By model and layout, on rank 0: the parameters at the end. @type {Map<string, Map<string, Float32Array>>} */
const endings = new Map()

for (const { configuration, model } of runs) {
  const size = ranksOf(configuration)
  if (world.rank < size) {
    const group = groups.get(size) ?? (await newGroup(Array.from({ length: size }, (_, i) => i)))
    groups.set(size, group)
    const wanted = references.get(model) ?? (await trainAlone(problems[model], steps))
    references.set(model, wanted)
    const errors = noErrors()
    /** @type {readonly import('@tsrun/training').Piece[]} */
    let pieces = []
    const traffic = await trainTogether(
      configuration,
      problems[model],
      group,
      steps,
      (step, found) => {
        addStep(errors, found, /** @type {import('./reference.mjs').StepResult} */ (wanted[step]))
        pieces = found.parameters
      },
    )
    const all = await group.allGatherObject({ errors, traffic, pieces })
    if (world.rank === 0) {
      const { name, bitwise } = configuration
      const ending = assemble(all.flatMap((each) => each.pieces))
      endings.set(`${model} ${name}`, ending)
      const other = bitwise === undefined ? undefined : endings.get(`${model} ${bitwise}`)
      const bits = other === undefined ? null : isSame(ending, other)
      appendFileSync(output, `${JSON.stringify({ ...summary(all), bits })}\n`)
    }
  }
  await world.barrier()
}
await world.destroy()

/** @param {readonly { errors: import('./compare.mjs').Errors, traffic: { collectives: number, bytes: number } }[]} all */
function summary(all) {
  const most = (/** @type {(each: (typeof all)[number]) => number} */ of) =>
    Math.max(...all.map(of))
  return {
    loss: most(({ errors }) => errors.loss),
    gradients: most(({ errors }) => errors.gradients),
    norm: most(({ errors }) => errors.norm),
    parameters: most(({ errors }) => errors.parameters),
    collectives: most(({ traffic }) => traffic.collectives),
    bytes: most(({ traffic }) => traffic.bytes),
  }
}
