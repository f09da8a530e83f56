import { argumentError } from '@tsrun/core'
import type { ProcessGroup } from '@tsrun/distributed'
import { SpanRecorder } from '@tsrun/distributed/record'
import { describe } from '../../model/describe.ts'
import type { Module } from '../../model/module.ts'
import { checkRecipe, searchRecomputed, type PipelineModel } from '../recipe.ts'
import { checkGroup } from '../requirements.ts'
import { describeOptions, groupLinks, noLinks } from './links.ts'
import {
  planOf,
  readPipelineOptions,
  readWholeModelOptions,
  type PipelineOptions,
  type WholeModelOptions,
} from './options.ts'
import { Pipeline } from './pipeline.ts'
import { splitAs } from './split.ts'

/**
 * Divides a model into pipeline stages and trains it on the ranks of a group. Each rank builds only its
 * own layers. Activations are sent from stage to stage, and gradients are sent back.
 *
 * The result equals training in a single process, with any schedule and any number of micro-batches. All
 * ranks make the same calls. Parameters of several stages with the same name are one tied parameter:
 * their gradients are summed.
 *
 * @example
 * const group = await initProcessGroup()
 * const pipe = pipeline(shardedMLP({ layers: 16 }), group, { schedule: '1f1b', microbatches: 8, optimizer })
 * const { loss } = await pipe.step({ inputs, labels })
 *
 * @throws ERR_TSR_STAGES when there are more stages than layers; ERR_TSR_SCHEDULE when a custom
 *   list of actions cannot be executed; ERR_TSR_ARGUMENT
 */
export function pipeline(
  model: PipelineModel,
  group: ProcessGroup,
  options: PipelineOptions = {},
): Pipeline {
  checkRecipe(model)
  checkGroup(group)
  const checked = readPipelineOptions(options)
  const plan = planOf(checked.schedule, group.size, checked)
  const split = splitAs(checked.split, model.layers, plan.stages)
  const chunks = split.filter((_, stage) => plan.placement[stage] === group.rank)
  const modules = chunks.map(({ from, to }) => model.slice(from, to))
  const recorder =
    checked.recorder ?? group.spans ?? new SpanRecorder({ rank: group.ranks[group.rank]! })
  const links = groupLinks(group, {
    modules,
    placement: plan.placement,
    recorder,
    describe: () => ({
      options: describeOptions(plan, split, checked),
      search: model.search?.(),
      recomputed: modules.map((module) => searchRecomputed(checked.recompute, module)),
    }),
  })
  return new Pipeline({ modules, chunks, plan, links, recorder }, checked)
}

/**
 * Trains a model that is not divided into pipeline stages. It has the interface of a pipeline with
 * one stage, and exchanges no messages.
 *
 * After `dataParallel(whole, group)` or `fullyShard(whole, group)`, each rank passes its part of
 * the batch, and gradients are averaged over the group while the backward pass runs.
 *
 * @example
 * const whole = wholeModel(new ShardedMLP(), { optimizer: new SGD({ learningRate: 0.1 }) })
 * const { loss } = await whole.step({ inputs, labels })
 *
 * @throws ERR_TSR_ARGUMENT
 */
export function wholeModel(module: Module, options: WholeModelOptions = {}): Pipeline {
  if (typeof (module as Partial<Module> | undefined)?.forward !== 'function') {
    throw argumentError('module', describe(module), 'a module: its parameters, and forward(x)')
  }
  const checked = readWholeModelOptions(options)
  const plan = planOf('1f1b', 1, { microbatches: checked.accumulate, chunks: 1 })
  const parts = {
    modules: [module],
    chunks: [{ from: 0, to: module.layers?.length ?? 1 }],
    plan,
    links: noLinks(module),
    tensor: checked.tensor,
    recorder: checked.recorder,
  }
  return new Pipeline(parts, checked)
}
