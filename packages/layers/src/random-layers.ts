import { argumentError } from '@tsrun/core'
import { currentPass, generator, type Tensor } from '@tsrun/training'

/** The properties of a layer that are needed to repeat its random values. */
export interface RandomLayer {
  readonly name: string
  getClassName(): string
  seed?: number
  call(inputs: unknown, options: unknown): Tensor | Tensor[]
}

/** A layer that may contain other layers: a model, a wrapper, or a bidirectional layer. */
export interface Compound extends RandomLayer {
  readonly layers?: readonly Compound[]
  readonly layer?: Compound
  readonly forwardLayer?: Compound
  readonly backwardLayer?: Compound
  getConfig(): Readonly<Record<string, unknown>>
}

const DROPOUT = new Set(['Dropout', 'SpatialDropout1D'])
const NOISE = new Set(['GaussianNoise', 'GaussianDropout', 'AlphaDropout'])

/**
 * Makes a dropout layer without a seed draw the same random values on all ranks. The values depend on the
 * name of the layer and the number of the call.
 *
 * @throws ERR_TSR_ARGUMENT for a noise layer, which takes no seed
 */
export function drawAlike(layer: RandomLayer): void {
  const kind = layer.getClassName()
  if (NOISE.has(kind)) {
    throw argumentError(
      `layer ${layer.name}`,
      kind,
      'no layer of random noise, which would differ from rank to rank',
    )
  }
  if (!DROPOUT.has(kind) || typeof layer.seed === 'number') return
  drawFrom(layer, generator(layer.name, 0))
}

/**
 * Runs a model. The random values of dropout layers without a seed depend only on the step and the row of
 * the current pass, so that a recomputed pass drops the same values.
 *
 * @throws ERR_TSR_ARGUMENT in a recomputed pass, for layers that would draw different values
 */
export function drawByPass<T>(layers: readonly Compound[], run: () => T): T {
  const pass = currentPass()
  if (pass?.training !== true) return run()
  const all = layers.flatMap(partsOf)
  if (pass.isRepeated === true) refuseNoise(all)
  const unseeded = all.filter(
    (layer) => DROPOUT.has(layer.getClassName()) && typeof layer.seed !== 'number',
  )
  const restore = unseeded.map((layer, i) =>
    drawFrom(layer, generator(`dropout ${i}:${pass.step}:${pass.row ?? 0}`, 0)),
  )
  try {
    return run()
  } finally {
    for (const each of restore) each()
  }
}

/** Gives a layer another seed in each call. @returns a function that restores the layer */
function drawFrom(layer: RandomLayer, draw: () => number) {
  const own = Object.getOwnPropertyDescriptor(layer, 'call')
  const call = layer.call.bind(layer)
  layer.call = (inputs, options) => {
    // If the layer has a seed already, use that seed: a user or another replacement of `call` has set it.
    if (typeof layer.seed === 'number') return call(inputs, options)
    layer.seed = draw()
    try {
      return call(inputs, options)
    } finally {
      delete layer.seed
    }
  }
  return () => {
    if (own === undefined) Reflect.deleteProperty(layer, 'call')
    else Object.defineProperty(layer, 'call', own)
  }
}

function partsOf(layer: Compound): readonly Compound[] {
  const { layers = [], layer: wrapped, forwardLayer, backwardLayer } = layer
  const inside = [...layers, wrapped, forwardLayer, backwardLayer]
  return [layer, ...inside.flatMap((part) => (part === undefined ? [] : partsOf(part)))]
}

function refuseNoise(layers: readonly Compound[]) {
  const isRate = (rate: unknown) => typeof rate === 'number' && rate > 0
  const noisy = layers.find((layer) => {
    const { dropout, recurrentDropout } = layer.getConfig()
    return NOISE.has(layer.getClassName()) || isRate(dropout) || isRate(recurrentDropout)
  })
  if (noisy === undefined) return
  throw argumentError(
    'recompute',
    `true for the layer ${noisy.name} (${noisy.getClassName()})`,
    'false: this layer draws other random values when it computes again',
  )
}
