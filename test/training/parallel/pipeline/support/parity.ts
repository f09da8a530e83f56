import { runWorld, type ProcessGroup } from '@tsrun/distributed'
import { disposeModule, loadBackend, SGD, shardedMLP, tf, pipeline } from '@tsrun/training'
import { schedule as planned } from '@tsrun/training/planning'
import type { Configuration } from '../../support/configurations.ts'
import {
  exampleBatch,
  excess,
  parameterValues,
  singleProcessStep,
  values,
  type Snapshot,
  type Values,
} from '../../support/reference.ts'

const INPUTS = 12
const CLASSES = 4
const RATE = 0.1
const examples = (step: number, size: number) => exampleBatch(step, size, INPUTS, CLASSES)

function mlp({ layers }: Configuration): ReturnType<typeof shardedMLP> {
  return shardedMLP({ layers, inputs: INPUTS, hidden: 16, outputs: CLASSES, seed: 7 })
}

interface Trained {
  readonly initial: Values
  readonly steps: Snapshot[]
}

function trainSingle(configuration: Configuration, count: number): Trained {
  const module = mlp(configuration).build()
  const optimizer = new SGD({ learningRate: RATE })
  const initial = parameterValues(module)
  const steps = Array.from({ length: count }, (_, step) =>
    singleProcessStep(module, examples(step, configuration.batch), optimizer),
  )
  disposeModule(module)
  return { initial, steps }
}

async function trainStage(
  group: ProcessGroup,
  configuration: Configuration,
  count: number,
): Promise<Trained> {
  const { schedule, microbatches, chunks, batch: size } = configuration
  const pipe = pipeline(mlp(configuration), group, {
    schedule,
    microbatches,
    ...(chunks === undefined ? {} : { chunks }),
  })
  const optimizer = new SGD({ learningRate: RATE })
  const initial = parameterValues(pipe)
  const steps: Snapshot[] = []
  for (let step = 0; step < count; step++) {
    const { loss, gradients, peakInFlight } = await pipe.forwardBackward({
      size,
      ...examples(step, size),
    })
    const parts = Math.min(microbatches, size)
    const [held, all] = [2 * (group.size - group.rank - 1), (chunks ?? 1) * parts]
    const warmup = parts % group.size === 0 ? held + ((chunks ?? 1) - 1) * group.size : all
    const peaks = {
      naive: 1,
      gpipe: parts,
      '1f1b': Math.min(parts, group.size - group.rank),
      'zb-h1': Math.min(parts, group.size),
      interleaved: Math.min(warmup + 1, all),
      looped: all,
      // what the simulator says of these is held against torch's orders
      'interleaved-zb': undefined,
      'zb-v': undefined,
      'dualpipe-v': undefined,
    }
    const simulated = planned(schedule, {
      stages: group.size * (chunks ?? 1),
      ranks: group.size,
      microbatches: parts,
    }).simulate()
    expect(peakInFlight).toBe(peaks[schedule] ?? simulated.ranks[group.rank]!.peakInFlight)
    const snapshot = { loss, gradients: values(gradients) }
    optimizer.step(pipe.parameters, gradients)
    steps.push({ ...snapshot, parameters: parameterValues(pipe) })
  }
  pipe.dispose()
  return { initial, steps }
}

/** Holds the losses, gradients and parameters of each step of each configuration against a single process. */
export function describeParity(configurations: readonly Configuration[], steps: number): void {
  describe('a pipeline trains like a single process', () => {
    beforeAll(async () => {
      await loadBackend('wasm')
    })

    it.each(configurations)('$title', async (configuration) => {
      const before = tf.memory().numTensors
      const single = trainSingle(configuration, steps)
      const stages = await runWorld(
        { size: configuration.stages, seed: configuration.stages + configuration.microbatches },
        (group) => trainStage(group, configuration, steps),
      )
      expect(merge(stages.map(({ initial }) => initial))).toEqual(single.initial)
      single.steps.forEach((wanted, step) => {
        const ranks = stages.map(({ steps }) => steps[step]!)
        for (const { loss } of ranks)
          expect(excess(scalar(loss), scalar(wanted.loss))).toBeLessThanOrEqual(0)
        for (const part of ['gradients', 'parameters'] as const) {
          expect(excess(merge(ranks.map((rank) => rank[part])), wanted[part])).toBeLessThanOrEqual(
            0,
          )
        }
      })
      expect(single.steps.at(-1)!.loss).toBeLessThan(single.steps[0]!.loss)
      expect(tf.memory().numTensors).toBe(before)
    })
  })
}

function merge(parts: Values[]): Values {
  return Object.assign({}, ...parts) as Values
}

function scalar(value: number): Values {
  return { value: new Float32Array([value]) }
}
