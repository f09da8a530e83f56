import { tf, type Tensor } from '@tsrun/training'
import type { Case } from './differentiable.ts'

/** The type that an operation asks for. The tests know the shapes. */
// eslint-disable-next-line @typescript-eslint/no-unnecessary-type-parameters
const as = <T extends Tensor>(x: Tensor): T => x as T
const image = [2, 6, 7, 3] as const
type Pair = [number, number]
/** Padding of height and width. */
const border: [Pair, Pair, Pair, Pair] = [
  [0, 0],
  [1, 2],
  [1, 0],
  [0, 0],
]

const convolutions: readonly Case[] = [
  ...(['same', 'valid', 'explicit'] as const).flatMap((pad) =>
    (
      [
        [1, 1],
        [2, 2],
        [2, 1],
      ] as const
    ).map((strides): Case => ({
      kernel: 'Conv2D',
      note: `padding ${pad}, strides ${String(strides)}`,
      inputs: [image, [3, 2, 3, 4]],
      compute: (x, w) => tf.conv2d(as(x), as(w), [...strides], pad === 'explicit' ? border : pad),
    })),
  ),
  {
    kernel: 'Conv2D',
    note: 'padding 1',
    inputs: [image, [3, 3, 3, 4]],
    compute: (x, w) => tf.conv2d(as(x), as(w), 1, 1),
  },
  {
    kernel: 'Conv2D',
    note: '1 x 1',
    inputs: [image, [1, 1, 3, 4]],
    compute: (x, w) => tf.conv2d(as(x), as(w), 1, 'same'),
  },
  {
    kernel: 'Conv2D',
    note: 'fused',
    inputs: [image, [3, 3, 3, 4], [4]],
    compute: (x, filter, bias) =>
      tf.fused.conv2d({
        x: as(x),
        filter: as(filter),
        strides: 1,
        pad: 'same',
        bias,
        activation: 'relu',
      }),
  },
  {
    kernel: 'Conv2D',
    note: 'conv1d',
    inputs: [
      [2, 9, 3],
      [3, 3, 4],
    ],
    compute: (x, w) => tf.conv1d(as(x), as(w), 2, 'same'),
  },
  {
    kernel: 'Conv2DBackpropInput',
    inputs: [
      [2, 3, 4, 4],
      [3, 3, 3, 4],
    ],
    compute: (x, w) => tf.conv2dTranspose(as(x), as(w), [2, 6, 8, 3], 2, 'same'),
  },
  ...(['same', 'valid'] as const).flatMap((pad) =>
    ([1, 2] as const).map((strides): Case => ({
      kernel: 'DepthwiseConv2dNative',
      note: `padding ${pad}, strides ${String(strides)}`,
      inputs: [image, [3, 3, 3, 2]],
      compute: (x, w) => tf.depthwiseConv2d(as(x), as(w), strides, pad),
    })),
  ),
  {
    kernel: 'DepthwiseConv2dNative',
    note: 'separable',
    inputs: [image, [3, 3, 3, 2], [1, 1, 6, 4]],
    compute: (x, w, p) => tf.separableConv2d(as(x), as(w), as(p), 1, 'same'),
  },
  {
    kernel: 'Conv3D',
    inputs: [
      [1, 4, 4, 4, 2],
      [2, 2, 2, 2, 3],
    ],
    compute: (x, w) => tf.conv3d(as(x), as(w), 1, 'same'),
  },
  {
    kernel: 'Dilation2D',
    inputs: [image, [2, 2, 3]],
    compute: (x, w) => tf.dilation2d(as(x), as(w), 1, 'valid'),
  },
]

const pooling: readonly Case[] = [
  ...(['same', 'valid'] as const).flatMap((pad) =>
    ([1, 2, 3] as const).flatMap((strides): Case[] => [
      {
        kernel: 'MaxPool',
        note: `padding ${pad}, strides ${String(strides)}`,
        inputs: [image],
        compute: (x) => tf.maxPool(as(x), [2, 3], strides, pad),
      },
      {
        kernel: 'AvgPool',
        note: `padding ${pad}, strides ${String(strides)}`,
        inputs: [image],
        compute: (x) => tf.avgPool(as(x), [2, 3], strides, pad),
      },
    ]),
  ),
  {
    kernel: 'MaxPool',
    note: 'equal values',
    inputs: [image],
    compute: (x) => tf.maxPool(as(tf.relu(tf.sub(x, 0.5))), 2, 2, 'same'),
  },
  {
    kernel: 'MaxPool3D',
    inputs: [[1, 4, 4, 4, 2]],
    compute: (x) => tf.maxPool3d(as(x), 2, 2, 'same'),
  },
  {
    kernel: 'AvgPool3D',
    inputs: [[1, 4, 4, 4, 2]],
    compute: (x) => tf.avgPool3d(as(x), 2, 2, 'same'),
  },
]

const normalization: readonly Case[] = [
  {
    kernel: 'LRN',
    inputs: [image],
    compute: (x) => tf.localResponseNormalization(as(x), 1, 1, 0.5, 0.75),
  },
  {
    kernel: 'FusedBatchNorm',
    inputs: [image, [3], [3], [3], [3]],
    range: [0.5, 2],
    compute: (x, mean, variance, offset, scale) =>
      tf.batchNorm(x, as(mean), as(variance), as(offset), as(scale)),
  },
]

/** Operations on images. */
export const imageCases: readonly Case[] = [...convolutions, ...pooling, ...normalization]
