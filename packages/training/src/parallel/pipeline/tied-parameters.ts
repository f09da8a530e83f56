import { argumentError } from '@tsrun/core'
import type { ProcessGroup } from '@tsrun/distributed'
import { tensorFrom, writeTo } from '../../backend/host-memory.ts'
import type { Module } from '../../model/module.ts'
import type { Parameter } from '../../model/parameter.ts'
import { sizeOf } from '../../tfjs/host-arrays.ts'
import type { Tensor } from '../../tfjs/tfjs.ts'
import { broadcastParameters } from '../gradients/replicas.ts'

interface Tie {
  readonly parameter: Parameter
  readonly group: ProcessGroup
}

/**
 * Tied parameters: several stages have a parameter with the same name, such as an embedding table
 * that the output head reuses. Stages on one rank share one value. Between ranks the gradients are
 * summed, so that all ranks make the same update.
 *
 * @throws ERR_TSR_ARGUMENT when two parameters with the same name have different shapes
 */
export function tieParameters(modules: readonly Module[], group: ProcessGroup) {
  const shared = new Set<string>()
  const byName = new Map<string, Parameter>()
  const all = modules.flatMap(({ parameters }) => [...new Set(parameters)])
  for (const parameter of all) {
    const first = byName.get(parameter.name)
    if (first !== undefined) shared.add(parameter.name)
    if (first === undefined) byName.set(parameter.name, parameter)
    else if (first !== parameter) share(first, parameter)
  }
  let ties: readonly Tie[] | undefined

  return {
    /** The parameters of all stages of this rank, each once. */
    parameters: [...byName.values()] as readonly Parameter[],

    /**
     * The first call copies each shared parameter from the first rank that has it to the others. From then
     * on, only that rank counts the parameter in gradient norms. All ranks of the pipeline call it.
     */
    async tie(ranks: readonly { readonly parameters: readonly Pick<Parameter, 'name'>[] }[]) {
      if (ties !== undefined) return
      const owners = new Map<string, number[]>()
      ranks.forEach(({ parameters }, rank) => {
        for (const { name } of parameters) owners.set(name, [...(owners.get(name) ?? []), rank])
      })
      const groups = new Map<string, ProcessGroup | undefined>()
      const found: Tie[] = []
      for (const [name, set] of owners) {
        if (set.length === 1) continue
        shared.add(name)
        const key = set.join()
        if (!groups.has(key)) {
          groups.set(key, await group.split(set.includes(group.rank) ? 0 : null))
        }
        const tied = groups.get(key)
        if (tied !== undefined) found.push({ group: tied, parameter: byName.get(name)! })
      }
      ties = found
      for (const { parameter, group: tied } of ties) {
        await broadcastParameters([parameter], tied, 0)
        for (const each of all) {
          if (each.name === parameter.name) each.countedElsewhere = tied.rank > 0
        }
      }
    },

    /** Whether the name occurs in several stages. Stages of other ranks count only after `tie`. */
    isShared: (name: string) => shared.has(name),

    /** Replaces each gradient of a shared parameter by its sum over the ranks that have the parameter. */
    sumShared: async (gradients: Map<string, Tensor>) => {
      for (const { parameter, group: tied } of ties ?? []) {
        const gradient = gradients.get(parameter.name)
        const sum = await sumOver(tied, parameter, gradient)
        if (sum !== undefined) gradients.set(parameter.name, sum)
        gradient?.dispose()
      }
    },

    dispose() {
      const groups = new Set(ties?.map(({ group }) => group))
      for (const group of groups) group.destroy().catch(() => undefined)
    },
  }
}

/** Returns the sum of the tensors of all ranks; undefined if no rank has one. */
async function sumOver(
  group: ProcessGroup,
  { name, shape }: Parameter,
  tensor: Tensor | undefined,
) {
  const size = sizeOf(shape)
  // Append a number that is 1 on ranks with a tensor, so that its sum counts them.
  const buffer = group.alloc('float32', size + 1)
  try {
    const values = buffer.subarray(0, size)
    if (tensor !== undefined) {
      await writeTo(tensor, values)
      buffer[size] = 1
    }
    await group.allReduce(buffer, { deterministic: true, label: name })
    return buffer[size] === 0 ? undefined : tensorFrom(values, shape)
  } finally {
    group.free(buffer)
  }
}

/** Makes the parameter `other` use the value of the parameter `first`. */
function share(first: Parameter, other: Parameter) {
  checkTied([[first], [other]])
  other.value.dispose()
  Object.defineProperty(other, 'value', {
    get: () => first.value,
    set: (value: Tensor) => {
      first.value = value
    },
    enumerable: true,
    configurable: true,
  })
}

/** @throws ERR_TSR_ARGUMENT when two parameters with the same name have different shapes */
export function checkTied(lists: readonly (readonly Pick<Parameter, 'name' | 'shape'>[])[]): void {
  const shapes = new Map<string, string>()
  for (const { name, shape } of lists.flat()) {
    const text = `[${shape.join(', ')}]`
    const other = shapes.get(name)
    if (other !== undefined && other !== text) {
      throw argumentError(
        `the parameter ${name}`,
        `one of shape ${text} in one stage, and of ${other} in another`,
        'the same shape in both, or another name',
      )
    }
    shapes.set(name, text)
  }
}
