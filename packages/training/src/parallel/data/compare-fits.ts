import type { ProcessGroup } from '@tsrun/distributed'
import { loadedLayers } from '../../tfjs/tfjs.ts'
import { compareReplicas } from '../gradients/replicas.ts'

/** The parameters of tf.layers' callbacks that decide how many steps `fit` makes. */
interface FitParameters {
  readonly epochs: number
  readonly initialEpoch: number | null
  readonly samples: number | null
  readonly batchSize: number | null
  readonly steps: number | null
}

/** An optimizer that all ranks of a group use together. */
export interface SharedOptimizer {
  readonly sharedBy: ProcessGroup
}

const nothing = (): void => undefined

/** A callback that `fit` of tf.layers creates; see `compareFits`. */
class FitComparison {
  #parameters: FitParameters | undefined
  #optimizer: Partial<SharedOptimizer> | undefined

  setParams(parameters: FitParameters): void {
    this.#parameters = parameters
  }

  setModel({ optimizer }: { readonly optimizer?: object }): void {
    this.#optimizer = optimizer
  }

  async onTrainBegin(): Promise<void> {
    const group = this.#optimizer?.sharedBy
    if (group === undefined || group.size === 1) return
    const { epochs, initialEpoch, samples, batchSize, steps } = this.#parameters!
    const facts = Object.entries({ examples: samples, batchSize, batches: steps })
      .filter(([, value]) => typeof value === 'number')
      .map(([name, value]) => `${String(value)} ${name} in fit`)
    facts.push(`${String(epochs - (initialEpoch ?? 0))} epochs in fit`)
    compareReplicas(await group.allGatherObject(facts), group, 'options')
  }

  // Called by `fit` as well.
  readonly onTrainEnd = nothing
  readonly onEpochBegin = nothing
  readonly onEpochEnd = nothing
  readonly onBatchBegin = nothing
  readonly onBatchEnd = nothing
}

const compared = new WeakSet()

/**
 * Makes `fit` of tf.layers compare its sizes between the ranks before the first step, for models with a
 * `SharedOptimizer`. An optimizer sees only one batch after the other, and the rank with the most would
 * be left waiting after the last one.
 */
export function compareFits(): void {
  for (const library of loadedLayers()) {
    if (compared.has(library)) continue
    library.registerCallbackConstructor(0, FitComparison)
    compared.add(library)
  }
}
