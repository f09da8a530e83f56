import { createPasses } from '#passes'
import type { ProcessGroup } from '@tsrun/distributed'

/**
 * What a module may need to know about the pass that it runs in. `trainer` and `pipeline` set it; loops
 * written by hand use {@link inPass}.
 */
export interface Pass {
  /** Whether the model is being trained; otherwise, `Dropout` changes nothing. */
  readonly training: boolean
  /** The number of the step. Random masks differ from step to step. */
  readonly step: number
  /**
   * The place of the first row of the input in the batch of the step, the one that all replicas and
   * micro-batches share; default 0. Random masks belong to rows of that batch, so that every layout
   * draws the same ones.
   */
  readonly row?: number
  /**
   * Whether the pass computes once more what an earlier one has computed and not kept (`recompute`):
   * running statistics have seen its examples already. Default false.
   */
  readonly isRepeated?: boolean
  /**
   * Whether its rows stand for no examples: a rank without any takes part in the collectives of the
   * others' passes. Default false.
   */
  readonly isEmpty?: boolean
  /**
   * Groups of ranks that run the same pass on other examples, one after the other, for modules that
   * communicate with them. Undefined if they are not known.
   */
  readonly replicas?: readonly ProcessGroup[] | undefined
}

const passes = createPasses<Pass>()

/**
 * Runs `run` as a part of a pass. Everything that it calls or awaits sees the same one.
 *
 * @example
 * const outputs = inPass({ training: true, step }, () => recordModule(model, x, options))
 */
export function inPass<T>(pass: Pass, run: () => T): T {
  return passes.run(pass, run)
}

/** The pass that is under way; undefined outside of `inPass`. */
export function currentPass(): Pass | undefined {
  return passes.getStore()
}
