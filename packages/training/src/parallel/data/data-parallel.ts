import type { ProcessGroup } from '@tsrun/distributed'
import type { Tensor } from '@tensorflow/tfjs-core'
import type { GradientListener } from '../../model/recording.ts'
import { checkGroup } from '../check-group.ts'
import { labelOf, planBuckets } from './buckets.ts'
import type { JoinOptions } from './joined-loop.ts'
import {
  checkOptions,
  checkTrained,
  distinctParameters,
  trainedParameters,
  type DataParallelOptions,
  type Replicated,
} from './options.ts'
import type { Traffic } from './reducer.ts'
import { Replica } from './replica.ts'
import { markReplicated } from './replicated.ts'
import { broadcastParameters, checkFacts, describeReplica } from './replicas.ts'

/** One replica of a model; see `dataParallel`. */
export interface DataParallel<M extends Replicated = Replicated> {
  readonly module: M
  /**
   * For `backward`: takes the gradients, and sends them off as soon as a bucket is full.
   *
   * @throws ERR_TSR_GRADIENT_TWICE; ERR_TSR_ARGUMENT when one has not the shape of its parameter,
   *   and before `gradients` has ended; ERR_TSR_SYNC_READ on webgpu; ERR_TSR_REPLICA_ENDED after a
   *   step that has failed, and after `dispose`
   */
  readonly onGradient: GradientListener
  /**
   * Whether the next backward pass is the last of this step, true at first. False accumulates its
   * gradients, without communication.
   */
  synchronizes: boolean
  /** What one step sends. */
  readonly traffic: Traffic
  /**
   * Waits for the gradients of this step, the same on all ranks: for `optimizer.step`.
   *
   * @param tokens - with `reduction: 'token'`: how many this rank's loss is the sum of
   * @throws ERR_TSR_UNUSED_PARAMETERS, ERR_TSR_ARGUMENT; ERR_TSR_REPLICA_ENDED after a step that has
   *   failed, and after `dispose`
   */
  gradients(tokens?: number): Promise<Map<string, Tensor>>
  /**
   * Runs a training loop that may be shorter on some ranks than on others: a rank that is through
   * takes part in the steps of the rest, with gradients of zero. In the end all ranks get the
   * parameters, and the state of the optimizer, of the rank that has made most steps. All ranks call
   * it; in the loop there are no other collectives over this group, as those that are through do not
   * make them.
   *
   * @example
   * const loop = async () => {
   *   for (const batch of mine) optimizer.step(model.parameters, await gradientsOf(batch))
   * }
   * await replica.join(loop, { optimizer })
   *
   * @throws ERR_TSR_ARGUMENT; ERR_TSR_REPLICA_ENDED after a step that has failed, and after `dispose`
   */
  join(loop: () => Promise<void>, options: JoinOptions): Promise<void>
  /** Frees the buckets; the model stays. */
  dispose(): void
}

/**
 * Data parallel training (as torch's DistributedDataParallel; Li et al., 2020): every rank of the
 * group has the whole model and a part of each batch, and the gradients are averaged while the
 * backward pass still runs. The parameters begin with the values of rank 0.
 *
 * Gradients travel in buckets, at first in the reverse order of the parameters, from the second step
 * on in the order in which those of rank 0 have come. A pipeline's `step` averages its gradients here
 * from now on, while its backwards run.
 *
 * @example
 * const replica = await dataParallel(model, group)
 * const outputs = recordModule(model, x, { needsInputGradient: false })
 * const loss = recordLoss(crossEntropy, outputs.value, labels)
 * const dy = loss.backward(one, () => undefined)!
 * outputs.backward(dy, replica.onGradient)
 * optimizer.step(model.parameters, await replica.gradients())
 *
 * @throws ERR_TSR_REPLICA when the ranks have other parameters or options, ERR_TSR_ARGUMENT
 */
export async function dataParallel<M extends Replicated>(
  module: M,
  group: ProcessGroup,
  options: DataParallelOptions = {},
): Promise<DataParallel<M>> {
  checkGroup(group)
  const checked = checkOptions(options)
  const all = distinctParameters(module)
  const trained = trainedParameters(all, options)
  const facts = describeReplica(all, trained, {
    ...checked,
    kind: 'dataParallel',
    buckets: planBuckets([...trained].reverse(), checked.sizes).map(labelOf),
  })
  await checkFacts(facts, group)
  checkTrained(module, trained)
  await broadcastParameters(all, group, 0)
  markReplicated(all)
  const replica = new Replica(module, group, { trained, options: checked })
  module.averageBy?.({
    onGradient: replica.onGradient,
    reduction: checked.reduction,
    parameters: module.parameters,
    shard: undefined,
    gradients: (tokens) => replica.gradients(tokens),
    update: async (optimizer, gradients) => {
      await Promise.resolve()
      optimizer.step(module.parameters, gradients)
    },
    gather: () => Promise.resolve(),
    release: () => undefined,
  })
  return replica
}
