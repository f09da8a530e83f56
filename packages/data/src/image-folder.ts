import { readdir } from 'node:fs/promises'
import { join, sep } from 'node:path'
import { constants, inflateSync } from 'node:zlib'
import {
  argumentError,
  choice,
  codeOf,
  count,
  declareOptions,
  finite,
  importOptional,
  list,
  readFileBytes,
  shown,
  where,
  type Rules,
} from '@tsrun/core'
import { examples, type Examples } from '@tsrun/training'
import { datasetError, fileProblem, sizeOf } from '@tsrun/training/parts'

/** Options of `imageFolder`. */
export interface ImageFolderOptions {
  /** The height and width of the result. Images of another size are scaled. */
  readonly size: readonly [height: number, width: number]
  /** The number of channels: 1 for gray, 3 for red, green and blue; default 3. */
  readonly channels?: 1 | 3
  /** The mean to subtract: one for all channels or one per channel, on a scale from 0 to 1; default 0. */
  readonly mean?: number | readonly number[]
  /** The standard deviation to divide by: one for all channels or one per channel; default 1. */
  readonly deviation?: number | readonly number[]
}

function eachChannel(from: number) {
  const each = finite({ above: from })
  return where<number | readonly number[]>(
    (value) => [value].flat().every(each.is),
    `a number${from === 0 ? ' above 0' : ''}, or a list with one for each channel`,
  )
}

const lengths = list(count({ from: 1 }))

const readOptions = declareOptions({
  size: where<readonly [number, number]>(
    (value) => lengths.is(value) && value.length === 2,
    '[height, width]',
  ),
  channels: choice(1, 3).default(3),
  mean: eachChannel(-Infinity).default(0),
  deviation: eachChannel(0).default(1),
} satisfies Rules<ImageFolderOptions>)

/** Labeled images. */
export interface ImageFolder extends Examples {
  /** The names of the folders. The label of an image is the index of its folder. */
  readonly classes: readonly string[]
  /** The path of the image file of each example. */
  readonly paths: readonly string[]
}

interface Image {
  readonly width: number
  readonly height: number
  readonly channels: number
  readonly data: ArrayLike<number>
  /** The value of white, the largest value of a channel. */
  readonly white: number
}

/**
 * Reads images from one folder for each class, like torchvision's ImageFolder. PNG needs the package
 * `fast-png` and JPEG needs `jpeg-js`, which the script's project must install. The field `inputs` is
 * [height, width, channels] float32, (value / 255 - mean) / deviation. The field `labels` is int32.
 *
 * Images are decoded at first use and kept as bytes, so a rank decodes only its share. Hidden files,
 * hidden folders and `__MACOSX` are skipped. A file may have at most 64 MiB, an image 64 megapixels.
 *
 * @throws ERR_TSR_ARGUMENT; ERR_TSR_DATASET when the folder has no classes or images;
 *   ERR_TSR_DATASET from a batch when a file cannot be decoded; ERR_TSR_PACKAGE_MISSING
 *
 * @example
 * const images = await imageFolder('flowers', { size: [64, 64] })
 * const [train, test] = randomSplit(images, [0.8, 0.2])
 * await run.fit(train, { batch: 32, epochs: 5, evaluate: { data: test } })
 */
export async function imageFolder(
  directory: string,
  options: ImageFolderOptions,
): Promise<ImageFolder> {
  const { size, channels, mean, deviation } = readOptions(options)
  const { classes, paths, labels } = await listImages(directory)
  const decode = await decodersFor(paths)
  const shape = [...size, channels]
  const each = sizeOf(shape)
  const decoded: (Uint8Array | undefined)[] = paths.map(() => undefined)
  const bytesOf = (index: number) =>
    (decoded[index] ??= resize(decode(paths[index]!), size, channels))
  const scale = normalization(channels, mean, deviation)
  const inputs = {
    shape,
    dtype: 'float32' as const,
    read(indices: Int32Array, out: Float32Array) {
      indices.forEach((index, row) => {
        const bytes = bytesOf(index)
        for (let i = 0; i < each; i++) out[row * each + i] = scale(bytes[i]!, i)
      })
    },
  }
  count({ from: 1 }).check('the number of images', paths.length)
  return { ...examples({ inputs, labels }, paths.length), classes, paths }
}

/**
 * Reads one image like `imageFolder` with the same options, for example to predict its class.
 *
 * @returns values [height x width x channels]
 *
 * @throws ERR_TSR_ARGUMENT; ERR_TSR_DATASET when the file cannot be decoded; ERR_TSR_PACKAGE_MISSING
 *
 * @example
 * const size = [64, 64] as const
 * const pixels = await readImage('photo.jpg', { size })
 * const scores = await run.predict(tf.tensor(pixels, [1, ...size, 3]))
 */
export async function readImage(path: string, options: ImageFolderOptions): Promise<Float32Array> {
  const { size, channels, mean, deviation } = readOptions(options)
  if (!isImage(path)) {
    throw datasetError(path, 'it is no .png, .jpg or .jpeg file')
  }
  const decode = await decodersFor([path])
  const bytes = resize(decode(path), size, channels)
  return Float32Array.from(bytes, normalization(channels, mean, deviation))
}

/** @returns a function that normalizes the byte at an index of an image [height, width, channels] */
function normalization(
  channels: number,
  mean: number | readonly number[],
  deviation: number | readonly number[],
): (byte: number, place: number) => number {
  const of = (name: string, given: number | readonly number[]) => {
    const each = typeof given === 'number' ? Array<number>(channels).fill(given) : given
    if (each.length === channels) return each
    throw argumentError(name, shown(given), `one number for each of ${channels} channels`)
  }
  const [means, deviations] = [of('mean', mean), of('deviation', deviation)]
  const table = Float32Array.from({ length: 256 * channels }, (_, i) => {
    const channel = i % channels
    return (Math.floor(i / channels) / 255 - means[channel]!) / deviations[channel]!
  })
  return (byte, place) => table[byte * channels + (place % channels)]!
}

/** Limits of files and images, so that a damaged file cannot exhaust memory. */
const MOST_BYTES = 64 * 2 ** 20
const MOST_PIXELS = 64e6

const isImage = (path: string) => /[^/\\]\.(png|jpe?g)$/i.test(path)
const isPng = (path: string) => /[^/\\]\.png$/i.test(path)

/** Returns false for hidden files, and for files that macOS adds to archives (`__MACOSX`, `._a.png`). */
function isVisible(path: string) {
  return path.split(sep).every((name) => !name.startsWith('.') && name !== '__MACOSX')
}

async function listImages(directory: string) {
  const refuse = (problem: string, cause?: unknown) => datasetError(directory, problem, cause)
  try {
    const entries = await readdir(directory, { withFileTypes: true })
    const classes = entries
      .filter((entry) => entry.isDirectory() && isVisible(entry.name))
      .map(({ name }) => name)
      .sort()
    const paths: string[] = []
    const labels: number[] = []
    for (const [label, name] of classes.entries()) {
      const files = await readdir(join(directory, name), { recursive: true })
      const images = files.filter((file) => isImage(file) && isVisible(file)).sort()
      if (images.length === 0) throw refuse(`the folder ${name} has no .png, .jpg or .jpeg files`)
      for (const file of images) {
        paths.push(join(directory, name, file))
        labels.push(label)
      }
    }
    if (paths.length === 0) throw refuse('it has no folders with .png, .jpg or .jpeg files')
    return { classes, paths, labels: Int32Array.from(labels) }
  } catch (error) {
    if ((error as NodeJS.ErrnoException).syscall === undefined) throw error
    throw refuse(fileProblem(directory, error), error)
  }
}

async function decodersFor(paths: readonly string[]): Promise<(path: string) => Image> {
  const png = paths.some(isPng)
    ? await importOptional('Reading PNG images', 'fast-png', () => import('fast-png'))
    : undefined
  const jpeg = paths.every(isPng)
    ? undefined
    : await importOptional('Reading JPEG images', 'jpeg-js', () => import('jpeg-js'))
  return (path) => {
    try {
      const file = readFileBytes(path, MOST_BYTES)
      if (!isPng(path)) {
        const { width, height, data } = jpeg!.default.decode(file, {
          useTArray: true,
          formatAsRGBA: false,
          maxResolutionInMP: MOST_PIXELS / 1e6,
        })
        return { width, height, data, channels: 3, white: 255 }
      }
      const image = png!.decode(checkedPng(file, MOST_PIXELS))
      const { width, height, depth } = image
      // Gray pixels of 1, 2 or 4 bits are packed like indices of a palette.
      const palette = image.palette ?? (depth < 8 ? graysOf(depth) : undefined)
      if (palette !== undefined) {
        const data = png!.convertIndexedToRgb({ ...image, palette })
        return { width, height, data, channels: palette[0]!.length, white: 255 }
      }
      return { width, height, data: image.data, channels: image.channels, white: 2 ** depth - 1 }
    } catch (error) {
      throw datasetError(path, fileProblem(path, error), error)
    }
  }
}

const graysOf = (depth: number) =>
  Array.from({ length: 2 ** depth }, (_, value) => [(value * 255) / (2 ** depth - 1)])

/** Scales an image by linear interpolation between the centers of pixels. Returns bytes. */
function resize(image: Image, [height, width]: readonly [number, number], channels: 1 | 3) {
  const bytes = new Uint8Array(height * width * channels)
  const [ys, xs] = [positions(image.height, height), positions(image.width, width)]
  let to = 0
  for (const y of ys) {
    for (const x of xs) {
      for (let channel = 0; channel < channels; channel++) {
        const at = (row: number, column: number) => sample(image, row, column, channel, channels)
        const top = mix(at(y.low, x.low), at(y.low, x.high), x.share)
        const bottom = mix(at(y.high, x.low), at(y.high, x.high), x.share)
        bytes[to++] = Math.round((mix(top, bottom, y.share) * 255) / image.white)
      }
    }
  }
  return bytes
}

const mix = (a: number, b: number, share: number) => a + (b - a) * share

/** Returns, for each new position, the two old positions around it and the weight of the second one. */
function positions(from: number, to: number) {
  return Array.from({ length: to }, (_, i) => {
    const at = Math.min(Math.max(((i + 0.5) * from) / to - 0.5, 0), from - 1)
    const low = Math.floor(at)
    return { low, high: Math.min(low + 1, from - 1), share: at - low }
  })
}

/** Returns the value of a pixel's channel. Gray is computed by ITU-R BT.601. Transparency is ignored. */
function sample(
  { data, width, channels: has }: Image,
  row: number,
  column: number,
  channel: number,
  channels: 1 | 3,
) {
  const at = (row * width + column) * has
  if (has <= 2) return data[at]!
  if (channels === 3) return data[at + channel]!
  return 0.299 * data[at]! + 0.587 * data[at + 1]! + 0.114 * data[at + 2]!
}

/** The PNG chunks that affect the pixels. Other chunks, such as texts, could decompress to huge sizes. */
const NEEDED = new Set(['IHDR', 'PLTE', 'tRNS', 'IDAT', 'IEND'])
/** The number of channels, indexed by the color type of the header. */
const CHANNELS = [1, 0, 3, 1, 2, 0, 4]
/** The largest ratio of decompressed to compressed bytes in Deflate. */
const RATIO = 1032
/** The bytes that a decoder may allocate in addition to the pixels. */
const HARMLESS = 2 ** 26

/**
 * Returns a PNG file without the chunks that do not affect its pixels.
 *
 * @param mostPixels - the largest allowed number of pixels of an image
 * @throws Error if the image is larger, if it has more data than the header announces, or if the first
 *   chunk is not the only header. Other damage is left to the decoder.
 */
function checkedPng(file: Buffer, mostPixels: number) {
  // The file starts with the signature and the header: length, type, width, height, depth, color type.
  if (file.length < 33) return file
  if (file.readUInt32BE(8) !== 13 || file.toString('latin1', 12, 16) !== 'IHDR')
    throw new Error('it does not begin with its header')
  const [width, height] = [file.readUInt32BE(16), file.readUInt32BE(20)]
  if (width * height > mostPixels)
    throw new Error(`it has more than ${mostPixels / 1e6} megapixels`)
  const kept: Buffer[] = [file.subarray(0, 8)]
  const data: Buffer[] = []
  for (let at = 8; at + 8 <= file.length; at += file.readUInt32BE(at) + 12) {
    const end = at + file.readUInt32BE(at) + 12
    const type = file.toString('latin1', at + 4, at + 8)
    // Decoders use the last header, but only the first one is checked.
    if (type === 'IHDR' && at > 8) throw new Error('it has more than one header')
    if (NEEDED.has(type)) kept.push(file.subarray(at, end))
    if (type === 'IDAT') data.push(file.subarray(at + 8, end - 4))
  }
  const bits = file[24]! * (CHANNELS[file[25]!] ?? 0)
  // Allow twice the height: an interlaced image has shorter rows, and each row begins with a byte.
  checkSize(data, 2 * height * (Math.ceil((width * bits) / 8) + 1) + HARMLESS)
  return Buffer.concat(kept)
}

function checkSize(data: readonly Buffer[], most: number) {
  const compressed = data.reduce((sum, { length }) => sum + length, 0)
  if (compressed * RATIO <= most) return
  try {
    inflateSync(Buffer.concat(data), {
      maxOutputLength: most,
      finishFlush: constants.Z_SYNC_FLUSH,
    })
  } catch (error) {
    if (codeOf(error) !== 'ERR_BUFFER_TOO_LARGE') return
    throw new Error('its data are more than its header says', { cause: error })
  }
}
