import { mkdirSync, truncateSync, writeFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { crc32, deflateSync } from 'node:zlib'
import { encode } from 'fast-png'
import jpeg from 'jpeg-js'
import { imageFolder, readImage, type ImageFolderOptions } from '@tsrun/data'
import { batches, loadBackend } from '@tsrun/training'
import { makeFolder, removeFolders } from '../training/checkpoint/support/folder.ts'
import { failure } from '../training/parallel/support/failure.ts'

beforeAll(() => loadBackend('cpu'))
afterEach(removeFolders)

function folderOf(files: Readonly<Record<string, Uint8Array>>): string {
  const folder = makeFolder()
  for (const [name, bytes] of Object.entries(files)) {
    mkdirSync(dirname(join(folder, name)), { recursive: true })
    writeFileSync(join(folder, name), bytes)
  }
  return folder
}

/** An image of 2 x 2 pixels. */
const png = (data: number[], channels = 3, depth: 8 | 16 = 8) =>
  encode({
    width: 2,
    height: 2,
    channels,
    depth,
    data: depth === 8 ? Uint8Array.from(data) : Uint16Array.from(data),
  })
const colors = [255, 0, 0, 0, 255, 0, 0, 0, 255, 255, 255, 255]

async function inputsOf(folder: string, options: ImageFolderOptions): Promise<number[][]> {
  const images = await imageFolder(folder, options)
  return [...batches(images, { batch: 1, shuffle: false })].map(({ inputs }) => {
    const tensor = inputs()
    const values = [...tensor.dataSync()]
    tensor.dispose()
    return values
  })
}

describe('a folder of images', () => {
  it('has a label for each folder, and includes the images of nested folders', async () => {
    const image = png(colors)
    const folder = folderOf({
      'dog/a.PNG': image,
      'cat/b.png': image,
      'cat/deep/c.png': image,
      'cat/notes.txt': image,
      'readme.png': image,
    })
    const images = await imageFolder(folder, { size: [2, 2] })
    expect(images.classes).toEqual(['cat', 'dog'])
    expect(images.paths).toEqual(
      ['cat/b.png', 'cat/deep/c.png', 'dog/a.PNG'].map((name) => join(folder, name)),
    )
    const [batch] = [...batches(images, { batch: 3, shuffle: false })]
    const [x, y] = [batch!.inputs(), batch!.labels()]
    expect([x.shape, x.dtype, y.dtype]).toEqual([[3, 2, 2, 3], 'float32', 'int32'])
    expect([...y.dataSync()]).toEqual([0, 0, 1])
    expect([...x.dataSync()].slice(0, 12)).toEqual(colors.map((byte) => byte / 255))
  })

  it('skips hidden files and the files that macOS adds to archives', async () => {
    const image = png(colors)
    const folder = folderOf({
      'cat/a.png': image,
      'cat/._a.png': Uint8Array.of(0),
      'cat/.cache/b.png': image,
      'cat/__MACOSX/c.png': image,
      '__MACOSX/cat/._a.png': Uint8Array.of(0),
      '.git/d.png': image,
    })
    const images = await imageFolder(folder, { size: [2, 2] })
    expect(images.classes).toEqual(['cat'])
    expect(images.paths).toEqual([join(folder, 'cat/a.png')])
  })

  it.each(['a.png', 'a.jpg'])(
    'refuses %s of 10,000 x 10,000 pixels before decoding it',
    async (name) => {
      const options = { width: 8, height: 8, channels: 4, data: new Uint8Array(256) }
      const file = Buffer.from(name === 'a.png' ? encode(options) : jpeg.encode(options).data)
      if (name === 'a.png') {
        file.writeUInt32BE(10_000, 16)
        file.writeUInt32BE(10_000, 20)
      } else {
        // Height and width follow the marker of the frame, its length and a byte.
        const frame = file.indexOf(Buffer.of(0xff, 0xc0))
        file.writeUInt16BE(10_000, frame + 5)
        file.writeUInt16BE(10_000, frame + 7)
      }
      const path = join(folderOf({ [name]: file }), name)
      const refused = failure('ERR_TSR_DATASET', /a\.(png|jpg).*(64 megapixels|limit exceeded)/)
      await expect(readImage(path, { size: [2, 2] })).rejects.toEqual(refused)
    },
  )

  it('refuses a PNG file with a second header, or with another chunk before its header', async () => {
    const whole = Buffer.from(png(colors))
    const [signature, header, rest] = [
      whole.subarray(0, 8),
      whole.subarray(8, 33),
      whole.subarray(33),
    ]
    // The decoder takes the last header.
    const second = Buffer.concat([signature, header, header, rest])
    second.writeUInt32BE(10_000, 41)
    second.writeUInt32BE(10_000, 45)
    const other = Buffer.from(header)
    other.write('teSt', 4)
    const folder = folderOf({
      'second.png': second,
      'late.png': Buffer.concat([signature, other, header, rest]),
    })
    for (const [name, problem] of [
      ['second.png', /more than one header/],
      ['late.png', /does not begin with its header/],
    ] as const) {
      const refused = failure('ERR_TSR_DATASET', problem)
      await expect(readImage(join(folder, name), { size: [2, 2] })).rejects.toEqual(refused)
    }
  })

  it('refuses a file of more than 64 MiB before reading it', async () => {
    const path = join(folderOf({ 'a.png': png(colors) }), 'a.png')
    truncateSync(path, 2 ** 26 + 1)
    const refused = failure('ERR_TSR_DATASET', /a\.png.*more than 64 MiB/)
    await expect(readImage(path, { size: [2, 2] })).rejects.toEqual(refused)
  })

  it('refuses a PNG file with more data than its header says before allocating memory', async () => {
    const chunk = (type: string, data: Uint8Array) => {
      const body = Buffer.concat([Buffer.from(type), data])
      const [length, sum] = [Buffer.alloc(4), Buffer.alloc(4)]
      length.writeUInt32BE(data.length)
      sum.writeUInt32BE(crc32(body))
      return Buffer.concat([length, body, sum])
    }
    const whole = Buffer.from(png(colors))
    const bomb = deflateSync(Buffer.alloc(100 * 2 ** 20))
    const [header, end] = [whole.subarray(0, 33), chunk('IEND', new Uint8Array())]
    // A color profile that is compressed like this is left out.
    const profile = chunk('iCCP', Buffer.concat([Buffer.from('x\0\0'), bomb]))
    const folder = folderOf({
      'bomb.png': Buffer.concat([header, chunk('IDAT', bomb), end]),
      'profile.png': Buffer.concat([header, profile, whole.subarray(33)]),
    })
    const refused = failure('ERR_TSR_DATASET', /bomb.png.*its data are more than its header says/)
    await expect(readImage(join(folder, 'bomb.png'), { size: [2, 2] })).rejects.toEqual(refused)
    const pixels = await readImage(join(folder, 'profile.png'), { size: [2, 2] })
    expect([...pixels]).toEqual(colors.map((byte) => byte / 255))
  })

  it('converts colors to gray and gray to colors, and 16 bits to 8', async () => {
    const folder = folderOf({
      'a/1.png': png(colors),
      'a/2.png': png([0, 255, 102, 51], 1),
      'a/3.png': png([0, 65535, 257, 514], 1, 16),
      'a/4.png': png([0, 255, 51, 0, 255, 255, 102, 9], 2),
    })
    const gray = await inputsOf(folder, { size: [2, 2], channels: 1 })
    const bytes = gray.map((image) => image.map((value) => Math.round(value * 255)))
    expect(bytes).toEqual([
      [76, 150, 29, 255],
      [0, 255, 102, 51],
      [0, 255, 1, 2],
      [0, 51, 255, 102],
    ])
    const [, color] = await inputsOf(folder, { size: [2, 2] })
    expect(color!.slice(0, 6)).toEqual([0, 0, 0, 1, 1, 1])
  })

  it('scales images and normalizes their values', async () => {
    const folder = folderOf({ 'a/1.png': png([0, 100, 200, 100], 1) })
    const [image] = await inputsOf(folder, { size: [1, 4], channels: 1, mean: 0.5, deviation: 2 })
    const bytes = image!.map((value) => Math.round((value * 2 + 0.5) * 255))
    expect(bytes).toEqual([100, 100, 100, 100])
    const [wide] = await inputsOf(folder, { size: [2, 4], channels: 1 })
    expect(wide!.map((value) => Math.round(value * 255))).toEqual([
      ...[0, 25, 75, 100],
      ...[200, 175, 125, 100],
    ])
  })

  it('normalizes each channel, and a single image like the images of the folder', async () => {
    const folder = folderOf({ 'a/1.png': png(colors), '.hidden/2.png': png(colors) })
    const options = { size: [2, 2], mean: [0, 0.5, 1], deviation: [1, 2, 4] } as const
    const [image] = await inputsOf(folder, options)
    expect(image!.slice(0, 3)).toEqual([1, -0.25, -0.25])
    const alone = await readImage(join(folder, 'a/1.png'), options)
    expect([...alone]).toEqual(image)
    await expect(imageFolder(folder, { ...options, mean: [0, 0.5] })).rejects.toEqual(
      failure('ERR_TSR_ARGUMENT', /mean is .*one number for each of 3 channels/),
    )
    await expect(readImage('notes.txt', options)).rejects.toEqual(
      failure('ERR_TSR_DATASET', /notes\.txt/),
    )
  })

  it('reads gray images of few bits', async () => {
    const data = Uint8Array.of(0b1010_1100, 0b1000_0000, 0b0101_0011, 0)
    const image = encode({ width: 9, height: 2, channels: 1, depth: 1, data })
    const folder = folderOf({ 'a/1.png': image })
    const [pixels] = await inputsOf(folder, { size: [2, 9], channels: 1 })
    expect(pixels).toEqual([1, 0, 1, 0, 1, 1, 0, 0, 1, 0, 1, 0, 1, 0, 0, 1, 1, 0])
  })

  it('reads JPEG files', async () => {
    const data = Buffer.from(
      Array.from({ length: 64 }, (_, i) => [10, 200, 10 + (i % 8), 255]).flat(),
    )
    const bytes = jpeg.encode({ width: 8, height: 8, data }, 100).data
    const [image] = await inputsOf(folderOf({ 'a/1.jpg': bytes }), { size: [1, 1] })
    const [red, green, blue] = image!.map((value) => value * 255)
    expect(Math.abs(red! - 10)).toBeLessThan(4)
    expect(Math.abs(green! - 200)).toBeLessThan(4)
    expect(Math.abs(blue! - 13)).toBeLessThan(5)
  })

  it('is refused if it has no images, and fails at the first use of an undecodable file', async () => {
    const size = [2, 2] as const
    const refused = failure('ERR_TSR_DATASET', /no folders with \.png/)
    const half = folderOf({ 'a/1.png': png(colors), 'b/notes.txt': png(colors) })
    await expect(imageFolder(half, { size })).rejects.toEqual(
      failure('ERR_TSR_DATASET', /the folder b has no/),
    )
    await expect(imageFolder(makeFolder(), { size })).rejects.toEqual(refused)
    await expect(imageFolder('nowhere', { size })).rejects.toEqual(
      failure('ERR_TSR_DATASET', /there is no \/.*nowhere/),
    )
    const torn = folderOf({ 'a/1.png': png(colors).subarray(0, 30) })
    await expect(inputsOf(torn, { size })).rejects.toEqual(failure('ERR_TSR_DATASET', /1\.png/))
    await expect(imageFolder(torn, { size: [2] as never })).rejects.toEqual(
      failure('ERR_TSR_ARGUMENT', /size/),
    )
  })
})
