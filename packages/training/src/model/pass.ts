import { createPasses } from '#passes'
import type { ProcessGroup } from '@tsrun/distributed'

/**
 * Facts about a pass for the modules that run in it. `trainer` and `pipeline` set it; hand-written loops
 * use {@link inPass}.
 */
export interface Pass {
  /** Whether the model is being trained; otherwise, `Dropout` changes nothing. */
  readonly training: boolean
  /** The number of the step. Random masks differ from step to step. */
  readonly step: number
  /**
   * The index of the input's first row in the batch of the step, which all replicas and micro-batches
   * share; default 0. Random masks belong to rows of that batch, so that every layout draws the same
   * masks.
   */
  readonly row?: number
  /**
   * Whether the pass recomputes activations that an earlier pass discarded (`recompute`): running
   * statistics must not count its examples again. Default false.
   */
  readonly isRepeated?: boolean
  /**
   * Whether its rows are placeholders: a rank without examples only takes part in the collectives of the
   * pass. Default false.
   */
  readonly isEmpty?: boolean
  /**
   * Groups of ranks that run the same pass on other examples. Modules that communicate with all replicas
   * use one group after the other. Undefined if unknown.
   */
  readonly replicas?: readonly ProcessGroup[] | undefined
}

const passes = createPasses<Pass>()

/**
 * Runs `run` inside a pass. Everything that it calls or awaits sees this pass.
 *
 * @example
 * const outputs = inPass({ training: true, step }, () => recordModule(model, x, options))
 */
export function inPass<T>(pass: Pass, run: () => T): T {
  return passes.run(pass, run)
}

/** Returns the current pass; undefined outside of `inPass`. */
export function currentPass(): Pass | undefined {
  return passes.getStore()
}
