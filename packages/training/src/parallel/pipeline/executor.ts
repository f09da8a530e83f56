import { host, monotonicNow } from '@tsrun/core'
import type { SpanRecorder } from '@tsrun/distributed/record'
import { addTallies, noTally } from '../../nn/part-loss.ts'
import type { Tensor } from '../../tfjs/tfjs.ts'
import type { Message, StageMessages } from './activations.ts'
import { firstRow, type Microbatches } from './microbatches.ts'
import { peakInFlight, type Action } from './schedule/actions.ts'
import type { GradientPlan, PipelineStage } from './stage.ts'

/**
 * Executes the actions of a rank. For each action it receives the input, computes, and sends the result.
 *
 * @param stages - the stages of this rank by stage number
 * @param last - the number of the pipeline's last stage
 * @param messages - undefined for a whole model
 * @param recorder - undefined if the stage records its own passes
 */
export function stageWorker(
  stages: ReadonlyMap<number, PipelineStage>,
  last: number,
  messages: StageMessages | undefined,
  recorder: SpanRecorder | undefined,
) {
  /** Records an action as a span, including the time to unpack its input and to pack its output. */
  const timed = async (
    { kind, stage, microbatch }: Action,
    compute: () => void | Promise<void>,
  ) => {
    // The span includes the system calls that read the CPU time. They take as long as a message,
    // and on a busy machine the kernel often preempts the rank there.
    const start = monotonicNow()
    const before = recorder?.wantsCpu ? host.cpuTime() : undefined
    await compute()
    const cpu = before === undefined ? undefined : (host.cpuTime() ?? NaN) - before
    recorder?.record(kind, start, monotonicNow(), { stage, microbatch, cpu })
  }
  /** The message that an action needs; undefined if the rank already has the input. */
  const comingTo = ({ kind, stage, microbatch }: Action): Message | undefined => {
    if (kind === 'F') return stage === 0 ? undefined : { direction: 'forward', stage, microbatch }
    const isWaiting = kind !== 'W' && stage < last
    return isWaiting ? { direction: 'backward', stage, microbatch } : undefined
  }
  const arriveFor = async (action: Action) => {
    const coming = comingTo(action)
    if (coming !== undefined) await messages?.arrive(coming)
  }
  const begin = (batch: Microbatches, actions: readonly Action[]) =>
    messages?.begin(
      batch,
      actions.flatMap((action) => comingTo(action) ?? []),
    )

  /** Returns the input of a stage for a micro-batch. @param labels - disposed if the function throws */
  const inputOf = (action: Action, batch: Microbatches, labels?: Tensor) => {
    try {
      const coming = comingTo(action)
      return coming === undefined ? batch.inputs(action.microbatch) : messages!.take(coming)
    } catch (error) {
      labels?.dispose()
      throw error
    }
  }
  const sendForward = ({ stage, microbatch }: Action, output: Tensor) => {
    const learns = stages.get(stage)!.parameters.length > 0
    const needsGradient = learns || messages!.needsGradient(stage)
    const message = { direction: 'forward', stage: stage + 1, microbatch } as const
    return messages!.send(message, output, needsGradient)
  }
  const forward = async (action: Action, batch: Microbatches, next: Action | undefined) => {
    const { stage: index, microbatch } = action
    const stage = stages.get(index)!
    await arriveFor(action)
    await timed(action, async () => {
      const labels = index === last ? batch.labels(microbatch) : undefined
      const output = await stage.forward(microbatch, {
        input: inputOf(action, batch, labels),
        labels,
        needsInputGradient: messages?.needsGradient(index) === true,
        row: firstRow(batch.rows, microbatch),
        isEmpty: batch.rows[microbatch] === 0,
      })
      if (index < last) await sendForward(action, output)
      // Keep the activations if the backward pass follows at once: recomputing them would save no memory.
      const isNext = next?.stage === index && next.microbatch === microbatch
      if (!isNext) stage.release(microbatch)
    })
  }
  const backward = async (action: Action, isLast: boolean) => {
    const { kind, stage: index, microbatch } = action
    const stage = stages.get(index)!
    // Compute no gradient if neither this stage nor an earlier one has parameters.
    const isIdle = index < last && !messages!.needsGradient(index + 1)
    if (!isIdle) await arriveFor(action)
    await timed(action, async () => {
      if (isIdle) {
        if (kind !== 'I') stage.free(microbatch)
        return
      }
      const coming = comingTo(action)
      const inputGradient = await stage.backward(action, coming && messages!.take(coming), isLast)
      if (inputGradient === undefined) return
      try {
        const message = { direction: 'backward', stage: index - 1, microbatch } as const
        await messages?.send(message, inputGradient)
      } finally {
        inputGradient.dispose()
      }
    })
  }
  /** Runs only forward passes. @param take - called with each output of the last stage; must not keep it */
  const infer = async (
    batch: Microbatches,
    take: (stage: PipelineStage, output: Tensor, microbatch: number) => Promise<void>,
  ) => {
    const visits = [...stages.keys()].flatMap((stage) =>
      [...batch.rows.keys()].map((microbatch): Action => ({ kind: 'F', stage, microbatch })),
    )
    await begin(batch, visits)
    for (const action of visits) {
      const stage = stages.get(action.stage)!
      await arriveFor(action)
      const output = await stage.infer(inputOf(action, batch))
      try {
        if (action.stage === last) await take(stage, output, action.microbatch)
        else await sendForward(action, output)
      } finally {
        output.dispose()
      }
    }
    await messages?.end()
  }

  /** The gradients of the batch in progress, or of a batch that failed, by parameter name. */
  let gradients = new Map<string, Tensor>()
  /** Frees the activations and gradients of a batch that failed. */
  const abandon = () => {
    for (const stage of stages.values()) stage.reset()
    for (const gradient of gradients.values()) gradient.dispose()
    gradients = new Map()
  }

  return {
    infer,

    /**
     * Runs the forward and backward passes of a batch.
     *
     * @returns the summed loss on the rank of the last stage, 0 on other ranks; the gradients that were not
     *   passed to `GradientPlan.onGradient`, which the caller disposes; and the largest number of
     *   micro-batches whose activations this rank held at one time
     */
    async train(actions: readonly Action[], batch: Microbatches, plan: GradientPlan) {
      abandon()
      for (const stage of stages.values()) stage.begin(plan, gradients)
      await begin(batch, actions)
      const ends = new Map<number, Action>()
      for (const action of actions) if ('BW'.includes(action.kind)) ends.set(action.stage, action)
      for (const [at, action] of actions.entries()) {
        if (action.kind === 'F') await forward(action, batch, actions[at + 1])
        else await backward(action, ends.get(action.stage) === action)
      }
      await messages?.end()
      const loss = (await stages.get(last)?.summedLoss()) ?? 0
      const taken = gradients
      gradients = new Map()
      return { loss, peakInFlight: peakInFlight(actions), gradients: taken }
    },

    /** Runs only forward passes. @returns the sums over the batch, on the rank of the last stage */
    async evaluate(batch: Microbatches) {
      let sums = noTally
      await infer(batch, async (stage, output, microbatch) => {
        sums = addTallies(sums, await stage.tally(output, batch.labels(microbatch)))
      })
      return sums
    },

    abandon,

    dispose() {
      abandon()
      messages?.dispose()
    },
  }
}
