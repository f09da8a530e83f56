import { createPasses } from '#passes'
import type { ProcessGroup } from '@tsrun/distributed'

/**
 * The context of a forward pass, which modules can read. `trainer` and `pipeline` set it. In a custom
 * training loop, use {@link inPass}.
 */
export interface Pass {
  /** Whether the model is being trained. `Dropout` drops values only during training. */
  readonly training: boolean
  /** The number of the training step, which seeds random masks. */
  readonly step: number
  /**
   * The index of the input's first row within the batch of all replicas and micro-batches; default 0.
   * Random masks depend on that index, so that they are the same for every mesh.
   */
  readonly row?: number
  /**
   * Whether the pass recomputes discarded activations (`recompute`). Running statistics must not count
   * its examples again. Default false.
   */
  readonly isRepeated?: boolean
  /**
   * Whether the input consists of placeholder rows, because the rank has no examples and only takes part
   * in the collectives of the pass. Default false.
   */
  readonly isEmpty?: boolean
  /**
   * The groups of ranks that run the same pass on other examples; undefined if unknown. A module that
   * communicates with all replicas uses the groups one after the other.
   */
  readonly replicas?: readonly ProcessGroup[] | undefined
}

const passes = createPasses<Pass>()

/**
 * Calls `run` with `pass` as the current pass, also for everything that `run` calls or awaits.
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
