import {
  dataParallel,
  tf,
  type DataParallel,
  type DataParallelOptions,
  type Module,
  type Parameter,
  type Tensor,
} from '@tsrun/training'
import type { ProcessGroup } from '@tsrun/distributed'

/** A model of single numbers, whose gradients a test gives. */
export class Points implements Module {
  readonly parameters: readonly Parameter[]

  constructor(...names: string[]) {
    this.parameters = names.map((name) => ({
      name,
      shape: [1],
      value: tf.keep(tf.tensor1d([0])),
    }))
  }

  forward(x: Tensor): Tensor {
    return x
  }

  /** By name. */
  get values(): Record<string, number> {
    return Object.fromEntries(
      this.parameters.map(({ name, value }) => [name, value.dataSync()[0]!]),
    )
  }

  dispose(): void {
    for (const { value } of this.parameters) value.dispose()
  }
}

/** Hands over the gradient of one number. */
export function give(
  { module, onGradient }: Pick<DataParallel<Points>, 'module' | 'onGradient'>,
  name: string,
  gradient: number,
): void {
  const parameter = module.parameters.find((it) => it.name === name)!
  onGradient(parameter, tf.keep(tf.tensor1d([gradient])))
}

/** The numbers of gradients; the tensors are disposed. */
export function numbersOf(
  gradients: ReadonlyMap<string, Tensor | Float32Array>,
): Record<string, number> {
  const numbers: Record<string, number> = {}
  for (const [name, gradient] of gradients) {
    numbers[name] = ('dataSync' in gradient ? gradient.dataSync() : gradient)[0]!
    if ('dataSync' in gradient) gradient.dispose()
  }
  return numbers
}

/** Runs something on a replica of points. */
export async function onPoints<T>(
  group: ProcessGroup,
  names: readonly string[],
  options: DataParallelOptions,
  run: (replica: DataParallel<Points>) => Promise<T>,
): Promise<T> {
  const module = new Points(...names)
  const replica = await dataParallel(module, group, options)
  try {
    return await run(replica)
  } finally {
    replica.dispose()
    module.dispose()
  }
}
