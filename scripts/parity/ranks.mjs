// Trains in one layout after the other, each on as many ranks of the job as it needs, and compares every
// step with that of a single process. Rank 0 writes one line of JSON for each layout.
// ranks.mjs OUTPUT REQUEST, where REQUEST is JSON
import { appendFileSync } from 'node:fs'
import { initProcessGroup, newGroup } from '@tsrun/distributed'
import { loadBackend } from '@tsrun/training'
import { addStep, assemble, covers, isSame, noErrors } from './compare.mjs'
import { ranksOf } from './configurations.mjs'
import { trainTogether } from './layouts.mjs'
import { problemOf } from './models.mjs'
import { trainAlone } from './reference.mjs'
import { trainByTrainer } from './trainers.mjs'

/** @type {[string, string]} */
const [output, request] = /** @type {[string, string]} */ (process.argv.slice(2))
/** @type {{ runs: { configuration: import('./configurations.mjs').Configuration, model: import('./configurations.mjs').ModelName }[], steps: number, through: 'verbs' | 'trainer', math: import('./configurations.mjs').MathMode }} */
const { runs, steps, through, math } = JSON.parse(request)
const trainIn = through === 'trainer' ? trainByTrainer : trainTogether
const world = await initProcessGroup()
const { blas = null } = await loadBackend()

/** @type {Map<number, import('@tsrun/distributed').ProcessGroup>} */
const groups = new Map([[world.size, world]])
/** @type {Map<string, import('./reference.mjs').StepResult[]>} */
const references = new Map()
/** On rank 0, the final parameters by model and layout. @type {Map<string, Map<string, Float32Array>>} */
const endings = new Map()

for (const { configuration, model } of runs) {
  const size = ranksOf(configuration)
  if (world.rank < size) {
    const group = groups.get(size) ?? (await newGroup(Array.from({ length: size }, (_, i) => i)))
    groups.set(size, group)
    const problem = problemOf(model, configuration.tied)
    const key = `${model} ${configuration.tied === true}`
    const wanted = references.get(key) ?? (await trainAlone(problem, steps))
    references.set(key, wanted)
    const errors = noErrors()
    /** @type {readonly import('@tsrun/training').Piece[][]} */
    let parts = [[], []]
    const layout = { ...configuration, deterministic: math !== 'fast' }
    const counts = await trainIn(layout, problem, group, steps, (step, found) => {
      addStep(errors, found, /** @type {import('./reference.mjs').StepResult} */ (wanted[step]))
      parts = [[...found.parameters], [...found.gradients]]
    })
    const all = await group.allGatherObject({ errors, ...counts, parts })
    if (world.rank === 0) {
      const { name, bitwise } = configuration
      const [parameters, gradients] = [0, 1].map((i) => all.flatMap((each) => each.parts[i] ?? []))
      const ending = assemble(parameters ?? [])
      const last = /** @type {import('./reference.mjs').StepResult} */ (wanted.at(-1))
      const covered =
        covers(parameters ?? [], last.parameters) &&
        // A trainer keeps its gradients to itself.
        (through === 'trainer' || covers(gradients ?? [], last.gradients))
      endings.set(`${model} ${name}`, ending)
      // A BLAS does not promise equal bits for products of other sizes.
      const other =
        bitwise === undefined || math === 'fast' ? undefined : endings.get(`${model} ${bitwise}`)
      const bits = other === undefined ? null : isSame(ending, other)
      appendFileSync(output, `${JSON.stringify({ ...summary(all), covered, bits, blas })}\n`)
    }
  }
  await world.barrier()
}
await world.destroy()

/** @param {readonly { errors: import('./compare.mjs').Errors, traffic: import('./traffic.mjs').Traffic, miscounts: string[] }[]} all */
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
    messages: most(({ traffic }) => traffic.messages),
    sent: most(({ traffic }) => traffic.sent),
    miscounts: all.flatMap(({ miscounts }) => miscounts),
  }
}
