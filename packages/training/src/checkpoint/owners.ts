import { argumentError, having, refuseUnknown } from '@tsrun/core'
import type { ProcessGroup } from '@tsrun/distributed'
import { holdTensor, type HeldValues } from '../backend/held-values.ts'
import { tensorFrom } from '../backend/host-memory.ts'
import { describe } from '../model/describe.ts'
import { buffersOf, type Buffered } from '../model/module.ts'
import { replaceValue, type Parameter } from '../model/parameter.ts'
import type { HeldState, OptimizerState, ParameterState } from '../optim/state.ts'
import {
  parseStateName,
  partOfParameter,
  stateName,
  type HeldPiece,
  type Part,
  type PieceOwner,
  type PieceValues,
} from './piece.ts'

/** Makes an owner of the parameters of a model, or of this rank's part of a model. */
export function ownerOfParameters(parameters: readonly Parameter[]): PieceOwner {
  const parts = parameters.map((parameter) => partOfParameter(parameter))
  return {
    pieces: () => parameters.map(({ value }, i) => ({ ...parts[i]!, values: holdTensor(value) })),
    parts: () => parts,
    load(pieces) {
      for (const [i, parameter] of parameters.entries()) {
        const values = pieces[i]!.values as Float32Array
        replaceValue(parameter, tensorFrom(values, parameter.shape))
      }
    },
  }
}

/** Adds buffers (see `Module.buffers`) to an owner of the parameters of the same model. */
export function withBuffers(owner: PieceOwner, buffers: readonly Parameter[]): PieceOwner {
  if (buffers.length === 0) return owner
  const own = ownerOfParameters(buffers)
  return {
    pieces: async () => [...(await owner.pieces()), ...(await own.pieces())],
    parts: (names) => [...owner.parts(names), ...own.parts(names)],
    async load(pieces) {
      const ofOwner = pieces.length - buffers.length
      await owner.load(pieces.slice(0, ofOwner))
      await own.load(pieces.slice(ofOwner))
    },
  }
}

/** An optimizer whose state can be read and loaded by parameter name. */
export interface StatefulOptimizer {
  state(): Promise<OptimizerState | HeldState>
  loadState(state: OptimizerState): void | Promise<void>
  /** Returns what `state` returns, without copying the values. */
  holdState?(): HeldState
}

const STEPS = 'steps'

/** Makes an owner of the optimizer state of these parameters. The state is sharded like the parameters. */
export function ownerOfOptimizer(
  optimizer: StatefulOptimizer,
  parameters: readonly Pick<Parameter, 'name' | 'shape' | 'shard'>[],
): PieceOwner {
  return ownerOfState(
    optimizer,
    parameters.map((parameter) => partOfParameter(parameter)),
  )
}

/** Makes an owner of the optimizer state that belongs to the given parts of parameters. */
export function ownerOfState(optimizer: StatefulOptimizer, owned: readonly Part[]): PieceOwner {
  const partOf = new Map(owned.map((part) => [part.name, part]))
  return {
    async pieces() {
      const pieces: HeldPiece[] = []
      const state: ReadonlyMap<
        string,
        ParameterState<PieceValues | HeldValues>
      > = optimizer.holdState?.() ?? (await optimizer.state())
      for (const [name, { steps, values }] of state) {
        const part = partOf.get(name)
        if (part === undefined) {
          for (const vector of Object.values(values)) if ('read' in vector) vector.release()
          continue
        }
        pieces.push({ name: stateName(name, STEPS), shape: [], values: Int32Array.of(steps) })
        for (const [kind, vector] of Object.entries(values)) {
          pieces.push({ ...part, name: stateName(name, kind), values: vector })
        }
      }
      return pieces
    },
    parts(names) {
      const parts: Part[] = []
      for (const name of names) {
        const found = parseStateName(name)
        const part = found && partOf.get(found.parameter)
        if (part === undefined) continue
        parts.push(found?.kind === STEPS ? { name, shape: [] } : { ...part, name })
      }
      return parts
    },
    load(pieces) {
      const state = new Map<string, { steps: number; values: Record<string, Float32Array> }>()
      for (const { name, values } of pieces) {
        const { parameter, kind } = parseStateName(name)!
        const kept = state.get(parameter) ?? { steps: 0, values: {} }
        if (kind === STEPS) kept.steps = values[0]!
        else kept.values[kind] = values as Float32Array
        state.set(parameter, kept)
      }
      return optimizer.loadState(state)
    },
  }
}

/** This rank's part of the state to save or load. */
export interface CheckpointState {
  /** A model, a pipeline, or an owner of shards of parameters. */
  readonly model: ({ readonly parameters: readonly Parameter[] } & Buffered) | PieceOwner
  /** An optimizer, or an owner of optimizer state. If absent, optimizer state is ignored. */
  readonly optimizer?: StatefulOptimizer | PieceOwner
}

const owner = having<PieceOwner>(['pieces', 'parts', 'load'], 'an owner of tensors')
const stateful = having<StatefulOptimizer>(
  ['state', 'loadState'],
  'an object with state() and loadState(), such as Adam',
)

/** The keys of `SavedState`. A saved state object can also be passed to `loadCheckpoint`. */
const KNOWN = ['model', 'optimizer', 'step', 'data']

/** Returns the owners of the tensors of a state: the model's, then the optimizer's. */
export function ownersOf(state: CheckpointState): PieceOwner[] {
  refuseUnknown(state, KNOWN, 'state')
  const { model, optimizer } = state
  const isOwner = owner.is(model)
  if (!isOwner) checkModule(model)
  const owners = [isOwner ? model : ownerOfParameters([...model.parameters, ...buffersOf(model)])]
  if (optimizer === undefined) return owners
  if (owner.is(optimizer)) return [...owners, optimizer]
  if (!stateful.is(optimizer)) {
    throw argumentError('optimizer', describe(optimizer), stateful.expected)
  }
  if ('parameters' in model) return [...owners, ownerOfOptimizer(optimizer, model.parameters)]
  throw argumentError(
    'optimizer',
    'an optimizer, and the model an owner',
    'an owner of the state of the optimizer, as model is one of parameters',
  )
}

/** Checks the arguments before and after the state, which untyped callers may swap. */
export function checkPlace(directory: unknown, group: unknown): void {
  if (typeof directory !== 'string') {
    throw argumentError('directory', describe(directory), 'the path of a folder')
  }
  const given = group as Partial<ProcessGroup> | null | undefined
  if (given === undefined || typeof given?.allGatherObject === 'function') return
  throw argumentError(
    'group',
    describe(group),
    'a process group, or undefined for this process alone; options come after it',
  )
}

/** @throws ERR_TSR_ARGUMENT unless `model` has parameters */
export function checkModule(model: unknown): void {
  const { parameters, build, layers } = (model ?? {}) as Record<string, unknown>
  if (Array.isArray(parameters)) return
  const invalid = (value: string, expected: string) => argumentError('model', value, expected)
  // Check for `layers` first, because a tf.layers model also has a method `build`.
  if (Array.isArray(layers))
    throw invalid('a model of tf.layers', 'ownerOfLayers(model) of @tsrun/layers')
  if (typeof build === 'function') throw invalid('a recipe', 'the result of its build()')
  throw invalid(describe(model), 'a module, a pipeline, or another object with parameters')
}
