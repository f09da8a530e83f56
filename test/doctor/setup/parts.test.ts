import type { TensorFlowRequest } from '@tsrun/core'
import { checkNode, gpusIn, hashesOf, requestOf } from '../../internals/doctor.ts'
import { parse, readTexts } from '../../internals/launcher/commands.ts'

describe('the arguments of tsrun setup', () => {
  const request = { gpu: false, official: false, wheel: null, python: null }

  let hashes: readonly string[]

  /** What is to be set up, and whether it is only to be checked. */
  async function read(...flags: string[]): Promise<[TensorFlowRequest, boolean] | undefined> {
    const { command, texts } = await parse(['setup', ...flags])
    if (texts === undefined) return undefined
    const values = readTexts(texts, command!.flags) as Parameters<typeof requestOf>[0]
    hashes = hashesOf(values.sha256)
    return [requestOf(values, '/'), values.check === true]
  }

  it('are read, and paths become absolute', async () => {
    expect(await read('tensorflow')).toEqual([request, false])
    const given = { ...request, gpu: true, wheel: '/etc' }
    expect(await read('tensorflow', '--gpu', '--wheel=etc')).toEqual([given, false])
    expect(await read('--check', 'tensorflow')).toEqual([request, true])
    expect(await read('tensorflow', '--help')).toBeUndefined()
  })

  it('include hashes of downloads only with --official', async () => {
    const [one, two] = ['A'.repeat(64), 'b'.repeat(64)]
    await read('tensorflow', '--official', '--sha256', `${one},${two}`)
    expect(hashes).toEqual(['a'.repeat(64), two])
    await expect(read('tensorflow', '--official', '--sha256', 'abc')).rejects.toThrow(
      '--sha256 is abc; expected 64 hexadecimal digits',
    )
    await expect(read('tensorflow', '--sha256', one)).rejects.toThrow('official')
  })
})

describe('the Node that a set-up runs with', () => {
  it.each(['18.20.0', '20.18.3', '16.0.0'])('may not be %s', (node) => {
    expect(() => {
      checkNode({ node, napi: '9' })
    }).toThrow(`this is Node ${node}, and the binding needs Node 20.19 or later: install a newer`)
  })

  it.each(['20.19.0', '22.1.0', '24.0.0', '26.0.0'])('may be %s', (node) => {
    expect(() => {
      checkNode({ node, napi: '9' })
    }).not.toThrow()
  })

  it('needs version 8 of Node-API', () => {
    expect(() => {
      checkNode({ node: '20.19.0', napi: '7' })
    }).toThrow('install a newer Node')
  })
})

it('reads the names of GPUs from the log of TensorFlow', () => {
  const line = (gpu: number): string =>
    `I0000 00:00:17 gpu_device.cc:2020] Created device /job:localhost/replica:0/task:0/device:GPU:${gpu} ` +
    `with 78763 MB memory:  -> device: ${gpu}, name: NVIDIA H100 80GB HBM3, pci bus id: 0000:04:00.0\n`
  expect(gpusIn(`noise\n${line(0)}${line(1)}more`)).toEqual([
    'NVIDIA H100 80GB HBM3',
    'NVIDIA H100 80GB HBM3',
  ])
  expect(gpusIn('silence')).toEqual(['GPU'])
})
