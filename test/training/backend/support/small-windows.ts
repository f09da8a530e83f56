import { tf, type Tensor } from '@tsrun/training'
import type { SmallCase } from './small-cases.ts'

export * from './small-cases.ts'

type Images = ReturnType<typeof tf.tensor4d>
type Pair = [number, number]
type Pad = 'same' | 'valid' | [Pair, Pair, Pair, Pair]

/** The type that an operation asks for. The shapes are known here. */
// eslint-disable-next-line @typescript-eslint/no-unnecessary-type-parameters
const as = <T extends Tensor>(x: Tensor): T => x as T
const span = (window: number, dilation: number): number => (window - 1) * dilation + 1

interface Place {
  readonly image: Pair
  readonly kernel: Pair
  readonly strides: Pair
  readonly pad: Pad
  readonly where: string
}

/** Images of up to four rows and columns, with kernels, strides and paddings. */
function* places(pads: readonly Pad[]): Generator<Place> {
  const kernels: Pair[] = [
    [1, 1],
    [2, 2],
    [3, 1],
    [2, 3],
  ]
  const steps: Pair[] = [
    [1, 1],
    [2, 2],
    [3, 3],
    [1, 4],
  ]
  for (const height of [1, 2, 3, 4]) {
    for (const width of [1, 2, 3, 4]) {
      for (const kernel of kernels) {
        for (const strides of steps) {
          for (const pad of pads) {
            const [around, beside] = typeof pad === 'string' ? [0, 0] : [pad[1], pad[2]].map(sum)
            const isTooLarge = kernel[0] > height + around! || kernel[1] > width + beside!
            if (pad !== 'same' && isTooLarge) continue
            const where = JSON.stringify({ image: [height, width], kernel, strides, pad })
            yield { image: [height, width], kernel, strides, pad, where }
          }
        }
      }
    }
  }
}

const sum = ([a, b]: Pair): number => a + b
const uneven: Pad = [
  [0, 0],
  [1, 0],
  [0, 1],
  [0, 0],
]

const activations = ['relu6', 'sigmoid', 'leakyrelu', 'prelu'] as const

export function* convolutions(): Generator<SmallCase> {
  let place = 0
  for (const { image, kernel, strides, pad, where } of places(['same', 'valid', uneven])) {
    const x = [1, ...image, 2]
    const linear = [0, 1]
    for (const channels of [1, 2]) {
      yield {
        title: `conv2d ${where}, ${channels} channels`,
        inputs: [
          [2, ...image, channels],
          [...kernel, channels, 2],
        ],
        compute: (a, w) => tf.conv2d(as(a), as(w), strides, pad),
        linear,
      }
    }
    yield {
      title: `fused.conv2d ${where}`,
      inputs: [x, [...kernel, 2, 2], [2]],
      compute: (a, filter, bias) =>
        tf.fused.conv2d({ x: as(a), filter: as(filter), bias, strides, pad }),
      linear: [],
    }
    const activation = activations[place++ % activations.length]!
    yield {
      title: `fused.conv2d with ${activation} ${where}`,
      inputs: [x, [...kernel, 2, 2], [2], [2]],
      compute: (a, filter, bias, slopes) =>
        tf.fused.conv2d({
          ...{ x: as(a), filter: as(filter), bias, strides, pad, activation, leakyreluAlpha: 0.2 },
          ...(activation === 'prelu' && { preluActivationWeights: slopes }),
        }),
      linear: [],
      differentiable: false,
    }
    for (const multiplier of [1, 2]) {
      yield {
        title: `depthwiseConv2d ${where}, multiplier ${multiplier}`,
        inputs: [x, [...kernel, 2, multiplier]],
        compute: (a, w) => tf.depthwiseConv2d(as(a), as(w), strides, pad),
        linear,
      }
    }
    yield {
      title: `fused.depthwiseConv2d ${where}`,
      inputs: [x, [...kernel, 2, 1], [2]],
      compute: (a, filter, bias) =>
        tf.fused.depthwiseConv2d({
          x: as(a),
          filter: as(filter),
          bias,
          strides,
          pad: pad as 'same',
        }),
      linear: [],
    }
    if (pad !== 'same') continue
    const output = image.map((size, axis) => size * strides[axis]!)
    yield {
      title: `conv2dTranspose ${where}`,
      inputs: [x, [...kernel, 3, 2]],
      compute: (a, w) =>
        tf.conv2dTranspose(as(a), as(w), [1, output[0]!, output[1]!, 3], strides, pad),
      linear,
    }
  }
}

export function* poolings(): Generator<SmallCase> {
  for (const { image, kernel, strides, pad, where } of places(['same', 'valid', uneven])) {
    const inputs = [[2, ...image, 2]]
    const hasEmptyWindows = typeof pad !== 'string' && (kernel[0] === 1 || kernel[1] === 1)
    yield {
      title: `maxPool ${where}`,
      inputs,
      compute: (x) => tf.maxPool(as(x), kernel, strides, pad),
      linear: [],
      selects: true,
    }
    yield {
      title: `avgPool ${where}`,
      inputs,
      compute: (x) => tf.avgPool(as(x), kernel, strides, pad),
      // a window that lies wholly outside has no mean
      linear: hasEmptyWindows ? [] : [0],
    }
    if (typeof pad !== 'string') continue
    yield {
      title: `dilation2d ${where}`,
      inputs: [...inputs, [...kernel, 2]],
      compute: (x, w) => tf.dilation2d(as(x), as(w), strides, pad),
      linear: [],
    }
  }
}

/** Numeric paddings whose last window is partly outside of the image, unless sizes are rounded down. */
export function* rounded(): Generator<SmallCase> {
  for (const { image, kernel, strides, pad, where } of places([uneven])) {
    for (const mode of ['ceil', 'round'] as const) {
      const isEmpty = image.some((size, axis) => {
        const before = axis === 0 ? 1 : 0
        const last = Math[mode]((size + 1 - kernel[axis]!) / strides[axis]!) * strides[axis]!
        return before >= kernel[axis]! || last - before >= size
      })
      if (isEmpty) continue
      const title = (name: string) => `${name} ${where}, ${mode}`
      const images = [1, ...image, 2]
      yield {
        title: title('maxPool'),
        inputs: [images],
        compute: (x) => tf.maxPool(as(x), kernel, strides, pad, mode),
        linear: [],
        selects: true,
      }
      yield {
        title: title('avgPool'),
        inputs: [images],
        compute: (x) => tf.avgPool(as(x), kernel, strides, pad, mode),
        linear: [0],
      }
      yield {
        title: title('conv2d'),
        inputs: [images, [...kernel, 2, 2]],
        compute: (x, w) => tf.conv2d(as(x), as(w), strides, pad, 'NHWC', 1, mode),
        linear: [0, 1],
      }
      yield {
        title: title('depthwiseConv2d'),
        inputs: [images, [...kernel, 2, 2]],
        compute: (x, w) => tf.depthwiseConv2d(as(x), as(w), strides, pad, 'NHWC', 1, mode),
        linear: [0, 1],
      }
    }
  }
}

export function* poolingsWithPlaces(): Generator<SmallCase> {
  for (const { image, kernel, strides, pad, where } of places(['same', 'valid'])) {
    if (typeof pad !== 'string') continue
    const argmax = (x: Tensor) => tf.maxPoolWithArgmax(as<Images>(x), kernel, strides, pad, true)
    for (const part of ['result', 'indexes'] as const) {
      yield {
        title: `maxPoolWithArgmax ${part} ${where}`,
        inputs: [[2, ...image, 2]],
        compute: (x) => argmax(x)[part]!,
        linear: [],
        differentiable: false,
      }
    }
  }
}

/** Windows with gaps, for which TensorFlow.js has no gradients. */
export function* dilated(): Generator<SmallCase> {
  for (const { image, kernel, strides, pad, where } of places(['same', 'valid'])) {
    const isTooLarge = image.some((size, axis) => span(kernel[axis]!, strides[axis]!) > size)
    if (pad === 'valid' && isTooLarge) continue
    const common = { linear: [], differentiable: false }
    const x = [1, ...image, 2]
    for (const channels of [1, 2]) {
      yield {
        ...common,
        title: `conv2d, dilations for strides, ${where}, ${channels} channels`,
        inputs: [
          [1, ...image, channels],
          [...kernel, channels, 2],
        ],
        compute: (a, w) => tf.conv2d(as(a), as(w), 1, pad, 'NHWC', strides),
      }
    }
    yield {
      ...common,
      title: `depthwiseConv2d, dilations for strides, ${where}`,
      inputs: [x, [...kernel, 2, 2]],
      compute: (a, w) => tf.depthwiseConv2d(as(a), as(w), 1, pad, 'NHWC', strides),
    }
    for (const kind of ['max', 'avg'] as const) {
      yield {
        ...common,
        title: `pool ${kind}, dilations for strides, ${where}`,
        inputs: [x],
        compute: (a) => tf.pool(as(a), kernel, kind, pad, strides, 1),
      }
    }
  }
}

export function* volumes(): Generator<SmallCase> {
  type Triple = [number, number, number]
  const kernels: Triple[] = [
    [1, 1, 1],
    [2, 2, 2],
    [1, 2, 3],
    [2, 3, 1],
  ]
  const steps: Triple[] = [
    [1, 1, 1],
    [2, 2, 2],
    [1, 3, 2],
  ]
  for (const volume of [
    [1, 1, 2],
    [3, 2, 2],
    [2, 3, 4],
  ]) {
    for (const kernel of kernels) {
      for (const strides of steps) {
        for (const pad of ['same', 'valid', 1] as const) {
          const around = pad === 1 ? 2 : 0
          const isTooLarge = kernel.some((size, axis) => size > volume[axis]! + around)
          if (pad !== 'same' && isTooLarge) continue
          const where = JSON.stringify({ volume, kernel, strides, pad })
          yield {
            title: `conv3d ${where}`,
            inputs: [
              [1, ...volume, 1],
              [...kernel, 1, 2],
            ],
            compute: (x, w) => tf.conv3d(as(x), as(w), strides, pad as 'same'),
            linear: [0, 1],
          }
          yield {
            title: `maxPool3d ${where}`,
            inputs: [[1, ...volume, 2]],
            compute: (x) => tf.maxPool3d(as(x), kernel, strides, pad),
            linear: [],
            selects: true,
          }
          yield {
            title: `avgPool3d ${where}`,
            inputs: [[1, ...volume, 2]],
            compute: (x) => tf.avgPool3d(as(x), kernel, strides, pad),
            // A window that lies wholly outside has no mean.
            linear: pad === 1 && kernel.includes(1) ? [] : [0],
          }
        }
      }
    }
  }
}

/** Operations on images, and the same operations on volumes of one layer. */
export function* flatVolumes(): Generator<readonly [image: SmallCase, volume: SmallCase]> {
  for (const { image, kernel, strides, where } of places(['same'])) {
    const [window, steps] = [
      [1, ...kernel],
      [1, ...strides],
    ] as [number, number, number][]
    const [images, volumes] = [
      [1, ...image, 2],
      [1, 1, ...image, 2],
    ]
    const filter = [...kernel, 2, 2]
    const common = { title: where, linear: [] }
    yield [
      { ...common, inputs: [images], compute: (x) => tf.maxPool(as(x), kernel, strides, 'same') },
      {
        ...common,
        inputs: [volumes],
        compute: (x) => tf.maxPool3d(as(x), window!, steps!, 'same'),
      },
    ]
    yield [
      { ...common, inputs: [images], compute: (x) => tf.avgPool(as(x), kernel, strides, 'same') },
      {
        ...common,
        inputs: [volumes],
        compute: (x) => tf.avgPool3d(as(x), window!, steps!, 'same'),
      },
    ]
    yield [
      {
        ...common,
        inputs: [images, filter],
        compute: (x, w) => tf.conv2d(as(x), as(w), strides, 'same'),
      },
      {
        ...common,
        inputs: [volumes, [1, ...filter]],
        compute: (x, w) => tf.conv3d(as(x), as(w), steps!, 'same'),
      },
    ]
  }
}

export function* resizings(): Generator<SmallCase> {
  for (const height of [1, 2, 3, 4]) {
    for (const width of [1, 3]) {
      for (const size of [
        [1, 1],
        [2, 3],
        [4, 2],
        [7, 6],
      ] as Pair[]) {
        for (const [corners, half] of [
          [false, false],
          [true, false],
          [false, true],
        ] as const) {
          const where = JSON.stringify({ image: [height, width], size, corners, half })
          for (const name of ['resizeNearestNeighbor', 'resizeBilinear'] as const) {
            yield {
              title: `${name} ${where}`,
              inputs: [[2, height, width, 2]],
              compute: (x) => tf.image[name](as(x), size, corners, half),
              linear: [0],
            }
          }
        }
      }
    }
  }
}
