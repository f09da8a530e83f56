import { constants, inflateSync } from 'node:zlib'

/**
 * The chunk types that determine the pixels. Other chunks, such as profiles and texts, may be
 * compressed and could decompress to huge sizes.
 */
const NEEDED = new Set(['IHDR', 'PLTE', 'tRNS', 'IDAT', 'IEND'])
/** The number of channels, indexed by the color type of the header. */
const CHANNELS = [1, 0, 3, 1, 2, 0, 4]
/** The largest ratio of decompressed to compressed bytes in Deflate. */
const RATIO = 1032
/** The number of bytes that a decoder may allocate without a check. */
const HARMLESS = 2 ** 26

/**
 * Returns a PNG file without the chunks that do not affect its pixels.
 *
 * @param mostPixels - the largest allowed number of pixels of an image
 * @throws Error for a larger image, for more data than the header announces, and unless the first chunk
 *   is the only header. Other damage is left to the decoder.
 */
export function checkedPng(file: Buffer, mostPixels: number): Buffer {
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
    // Decoders take the last header, which was not checked.
    if (type === 'IHDR' && at > 8) throw new Error('it has more than one header')
    if (NEEDED.has(type)) kept.push(file.subarray(at, end))
    if (type === 'IDAT') data.push(file.subarray(at + 8, end - 4))
  }
  const bits = file[24]! * (CHANNELS[file[25]!] ?? 0)
  // Allow twice the height: an interlaced image has shorter rows, and each row begins with a byte.
  checkSize(data, 2 * height * (Math.ceil((width * bits) / 8) + 1) + HARMLESS)
  return Buffer.concat(kept)
}

function checkSize(data: readonly Buffer[], most: number): void {
  const compressed = data.reduce((sum, { length }) => sum + length, 0)
  if (compressed * RATIO <= most) return
  try {
    inflateSync(Buffer.concat(data), {
      maxOutputLength: most,
      finishFlush: constants.Z_SYNC_FLUSH,
    })
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ERR_BUFFER_TOO_LARGE') return
    throw new Error('its data are more than its header says', { cause: error })
  }
}
