import type { ProcessGroup } from '@tsrun/distributed'
import { replaceValue, tensorFrom, viewOf, type Module, type Parameter } from '@tsrun/training'

type Share = Pick<Parameter, 'name' | 'shape' | 'shard'> & { readonly values: Float32Array }

/**
 * Gives the whole model on rank 0 of a group the values that the ranks have: each sends its layers and
 * its parts of layers, which say by themselves where they belong.
 *
 * @param model - on rank 0 only
 */
export async function fillWholeModel(
  model: Module | undefined,
  held: readonly Parameter[],
  group: ProcessGroup,
): Promise<void> {
  const own = held.map(({ name, shape, shard, value }): Share => ({
    name,
    shape,
    ...(shard === undefined ? {} : { shard }),
    values: Float32Array.from(viewOf(value)),
  }))
  const all = await group.gatherObject<Share[]>(own, 0)
  if (model === undefined || all === undefined) return
  const shares = all.flat()
  for (const parameter of model.parameters) {
    const { name, shape, value } = parameter
    const values = new Float32Array(value.size)
    for (const share of shares) if (share.name === name) put(values, share)
    replaceValue(parameter, tensorFrom(values, shape))
  }
}

/** Writes a part where it belongs in the whole. */
function put(whole: Float32Array, { shape, shard, values }: Share): void {
  if (shard === undefined) {
    whole.set(values)
    return
  }
  const inner = shard.shape.slice(shard.axis + 1).reduce((product, length) => product * length, 1)
  const run = shape[shard.axis]! * inner
  const stride = shard.shape[shard.axis]! * inner
  for (let i = 0; i * run < values.length; i++) {
    whole.set(values.subarray(i * run, (i + 1) * run), i * stride + shard.offset * inner)
  }
}
