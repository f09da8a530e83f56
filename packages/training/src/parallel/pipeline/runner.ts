import type { ProcessGroup } from '@tsrun/distributed'
import type { SpanRecorder } from '@tsrun/distributed/record'
import { recordChain } from '../../autograd/chain.ts'
import { RepeatableRecording, runForward } from '../../autograd/record.ts'
import type { Module } from '../../model/module.ts'
import { inPass } from '../../model/pass.ts'
import type { GradientListener } from '../../model/recording.ts'
import { tf, type Tensor } from '../../tfjs/tfjs.ts'
import type { Averaging } from '../gradients/averaging.ts'
import { recordSegments } from '../tensor/record-segments.ts'

type Maybe<T> = T | Promise<T>

/** A forward pass of a stage whose backward pass runs later. */
export interface StagePass {
  /** The output, which the pass owns. */
  readonly value: Tensor
  backward(dy: Tensor, onGradient: GradientListener): Maybe<Tensor | undefined>
  /** The two halves of `backward`, if the module has them. */
  backwardInput?(dy: Tensor): Tensor | undefined
  backwardParameters?(onGradient: GradientListener): void
  /** Frees what `backward` can compute again. @returns whether anything was freed */
  release(): boolean
  dispose(): void
}

/** How a stage runs its module. */
export interface Runner {
  /** @param averaging - takes the gradients of each pass */
  record(x: Tensor, needsInputGradient: boolean, averaging?: Averaging): Maybe<StagePass>
  /** Runs a forward pass without a backward pass; the caller disposes the output. */
  infer(x: Tensor): Maybe<Tensor>
}

/** A runner for one of several stages. `recompute` keeps only the input until the backward pass. */
export function stageRunner(module: Module, recompute: boolean): Runner {
  return {
    record: (x, needsInputGradient) => repeatable(module, x, { needsInputGradient }, recompute),
    infer: (x) => runForward(module, x),
  }
}

interface WholeOptions {
  readonly recompute: boolean
  /** The ranks that share the layers. */
  readonly tensor: ProcessGroup | undefined
  readonly recorder: SpanRecorder | undefined
}

/**
 * A runner for a stage that is the whole model. With `recompute`, it keeps the input of each layer: if
 * it kept only the first, the repeated pass would need as much memory as the original.
 */
export function wholeRunner(module: Module, { recompute, tensor, recorder }: WholeOptions): Runner {
  const isShared = tensor !== undefined && tensor.size > 1
  return {
    record: (x, needsInputGradient, averaging) => {
      const options = { needsInputGradient, recorder }
      const units = averaging?.recordUnits?.(x, options)
      if (units !== undefined) return inOne(units)
      const layers = module.layers ?? [module]
      if (recompute) return inOne(recordChain(layers, x, { ...options, recompute }))
      if (isShared) return inOne(recordSegments(module, x, options))
      return repeatable(module, x, options, false)
    },
    infer: async (x) => {
      if (!isShared) return runForward(module, x)
      // Record the pass, because a recording awaits its collectives while `runForward` would block.
      // Set `training` to false.
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
  options: ConstructorParameters<typeof RepeatableRecording>[2],
  recompute: boolean,
): StagePass {
  const pass = new RepeatableRecording(module, x, options)
  const hasHalves = pass.recording.backwardInput !== undefined
  return {
    get value() {
      return pass.recording.value
    },
    backward: (dy, onGradient) => pass.recording.backward(dy, onGradient),
    // A module that records its own passes may have no halves.
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

/** A pass without halves, which can free nothing before its backward pass. */
async function inOne(
  made: Promise<Pick<StagePass, 'value' | 'backward' | 'dispose'>>,
): Promise<StagePass> {
  const recording = await made
  return {
    value: recording.value,
    backward: (dy, onGradient) => recording.backward(dy, onGradient),
    release: () => false,
    dispose: () => {
      recording.dispose()
    },
  }
}
