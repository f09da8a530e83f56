import { tsrError } from '@tsrun/core'
import type { ProcessGroup } from '@tsrun/distributed'
import { tensorFrom, writeTo } from '../../backend/host-memory.ts'
import { replaceValue, type Parameter } from '../../nn/parameter.ts'

/**
 * Compares names and shapes of the parameters with those of rank 0, before anything else can hang.
 *
 * @throws ERR_TSR_REPLICA naming the first difference, on every rank
 */
export async function checkReplicas(
  parameters: readonly Pick<Parameter, 'name' | 'shape'>[],
  group: ProcessGroup,
): Promise<void> {
  compareReplicas(await group.allGatherObject(describeParameters(parameters)))
}

/** Names and shapes, for `compareReplicas`. */
export function describeParameters(
  parameters: readonly Pick<Parameter, 'name' | 'shape'>[],
): string[] {
  return parameters.map(({ name, shape }) => `${name} [${shape.join(', ')}]`)
}

/**
 * @param all - what each rank has
 * @throws ERR_TSR_REPLICA naming the first difference from rank 0
 */
export function compareReplicas(all: readonly (readonly string[])[]): void {
  const [first] = all
  for (const [rank, other] of all.entries()) {
    const length = Math.max(first!.length, other.length)
    for (let i = 0; i < length; i++) {
      if (other[i] === first![i]) continue
      throw tsrError('ERR_TSR_REPLICA', {
        rank,
        has: other[i] ?? 'no more parameters',
        wanted: first![i] ?? 'no more parameters',
        index: i,
      })
    }
  }
}

/** Gives the parameters of all ranks the values of `root`. */
export async function broadcastParameters(
  parameters: readonly Parameter[],
  group: ProcessGroup,
  root: number,
): Promise<void> {
  for (const parameter of parameters) {
    const { name, shape, value } = parameter
    const buffer = group.alloc('float32', value.size)
    try {
      if (group.rank === root) await writeTo(value, buffer)
      await group.broadcast(buffer, root, { label: `parameter ${name}` })
      if (group.rank !== root) {
        replaceValue(parameter, tensorFrom(buffer, shape))
      }
    } finally {
      group.free(buffer)
    }
  }
}
