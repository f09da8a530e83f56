import type { ProcessGroup } from '@tsrun/distributed'
import type { SpanRecorder } from '@tsrun/distributed/record'
import { recordChain } from '../../autograd/chain.ts'
import { RepeatableRecording, runForward } from '../../autograd/record.ts'
import { chainOf, type Module } from '../../model/module.ts'
import { inPass } from '../../model/pass.ts'
import type { GradientListener, RecordOptions } from '../../model/recording.ts'
import { tf, type Tensor } from '../../tfjs/tfjs.ts'
import type { Averaging } from '../gradients/averaging.ts'
import { recomputedLayers, searchRecomputed, type Recompute } from '../recipe.ts'
import { recordSegments } from '../tensor/record-segments.ts'

/** A forward pass of a stage. The backward pass may run any time later. */
export interface StagePass {
  /** The output of the forward pass; disposed with the pass. */
  readonly value: Tensor
  backward(
    dy: Tensor,
    onGradient: GradientListener,
  ): Tensor | undefined | Promise<Tensor | undefined>
  /**
   * Two halves of `backward`, for input gradients and parameter gradients; present if the module
   * supports them.
   */
  backwardInput?(dy: Tensor): Tensor | undefined
  backwardParameters?(onGradient: GradientListener): void
  /**
   * Frees all tensors that `backward` can recompute; absent if it frees none.
   *
   * @returns whether anything was freed
   */
  release?(): boolean
  dispose(): void
}

/** Runs the forward and backward passes of a stage's module. */
export type Runner = ReturnType<typeof stageRunner>

interface RunnerOptions {
  readonly recompute: Recompute
  /** The tensor parallel group, whose ranks share the layers. */
  readonly tensor?: ProcessGroup | undefined
  /** Records each pass as a span. */
  readonly recorder?: SpanRecorder | undefined
}

/**
 * Returns the runner of a stage. If all layers are recomputed, one of several stages keeps only its input
 * until the backward pass. The whole model keeps the input of each layer: if it kept only the first, the
 * repeated forward pass would need as much memory as the original.
 *
 * @throws ERR_TSR_ARGUMENT for a pattern of `recompute` that matches no layer of the whole model
 */
export function stageRunner(
  module: Module,
  isWhole: boolean,
  { recompute, tensor, recorder }: RunnerOptions,
) {
  const isShared = tensor !== undefined && tensor.size > 1
  const keepsInput = !isWhole && recompute === true
  const chosen = isWhole
    ? recomputedLayers(recompute, module)
    : searchRecomputed(!keepsInput && recompute, module).chosen
  return {
    /**
     * Runs and records a forward pass.
     *
     * @param averaging - for a whole model: averages the gradients of each pass
     */
    record(
      x: Tensor,
      needsInputGradient: boolean,
      averaging?: Averaging,
    ): StagePass | Promise<StagePass> {
      const options = { needsInputGradient, recorder }
      const units = averaging?.recordUnits?.(x, options)
      if (units !== undefined) return units
      if (chosen.includes(true)) {
        return recordChain(chainOf(module), x, { ...options, recompute: chosen })
      }
      return isShared
        ? recordSegments(module, x, options)
        : repeatable(module, x, options, keepsInput)
    },
    /** Runs a forward pass without a backward pass; the caller disposes the output. */
    async infer(x: Tensor) {
      if (!isShared) return runForward(module, x)
      // Record the pass although no backward pass follows: a recording awaits its collectives,
      // while `runForward` would block. `training` is false.
      const recording = await inPass({ training: false, step: 0, row: 0 }, () =>
        recordSegments(module, x, { needsInputGradient: false }),
      )
      const outputs = tf.keep(tf.clone(recording.value))
      recording.dispose()
      return outputs
    },
  }
}

function repeatable(
  module: Module,
  x: Tensor,
  options: RecordOptions,
  recompute: boolean,
): StagePass {
  const pass = new RepeatableRecording(module, x, options)
  const hasHalves = pass.recording.backwardInput !== undefined
  return {
    get value() {
      return pass.recording.value
    },
    backward: (dy, onGradient) => pass.recording.backward(dy, onGradient),
    // A module with its own `record` may not support halves.
    ...(hasHalves && {
      backwardInput: (dy: Tensor) => pass.recording.backwardInput!(dy),
      backwardParameters: (onGradient: GradientListener) => {
        pass.recording.backwardParameters?.(onGradient)
      },
    }),
    release: () => {
      if (recompute) pass.free()
      return recompute
    },
    dispose: () => {
      pass.free()
    },
  }
}
