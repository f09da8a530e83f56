import { createRequire } from 'node:module'
import type { ProcessGroup } from '@tsrun/distributed'
import { compareReplicas } from '@tsrun/training/parts'

interface FitParameters {
  readonly epochs: number
  readonly initialEpoch: number | null
  readonly samples: number | null
  readonly batchSize: number | null
  readonly steps: number | null
}

/** An optimizer that all ranks of a group must use together. */
export interface SharedOptimizer {
  readonly sharedBy: ProcessGroup
}

const nothing = (): void => undefined

/** The callback that compares `fit` between ranks. tf.layers creates one for each call of `fit`. */
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
    facts.push(`${epochs - (initialEpoch ?? 0)} epochs in fit`)
    compareReplicas(await group.allGatherObject(facts), group, 'options')
  }

  // tf.layers calls these methods of every callback too.
  readonly onTrainEnd = nothing
  readonly onEpochBegin = nothing
  readonly onEpochEnd = nothing
  readonly onBatchBegin = nothing
  readonly onBatchEnd = nothing
}

const compared = new WeakSet()

/**
 * Makes `fit` of tf.layers compare numbers of examples, batches and epochs between ranks before the first
 * step, for models with a `SharedOptimizer`. If a rank had more batches than other ranks, it would wait
 * forever in its next step.
 */
export function compareFits(): void {
  for (const library of loadedLayers()) {
    if (compared.has(library)) continue
    library.registerCallbackConstructor(0, FitComparison)
    compared.add(library)
  }
}

/** The exports of tf.layers that register callbacks for all calls of `fit`. */
interface Layers {
  registerCallbackConstructor(verbosity: number, callback: new () => object): void
}

function loadedLayers(): Layers[] {
  return Object.entries(createRequire(import.meta.url).cache).flatMap(([file, loaded]) => {
    const exports = file.includes('tfjs-layers') ? (loaded?.exports as Partial<Layers>) : {}
    return typeof exports.registerCallbackConstructor === 'function' ? [exports as Layers] : []
  })
}
