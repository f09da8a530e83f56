import type { TensorFlowRequest } from '@tsrun/core'
import { gpusIn, requestOf } from '../../internals/doctor.ts'
import { parse, readTexts } from '../../internals/launcher/commands.ts'

describe('the arguments of tsrun setup', () => {
  const request = { gpu: false, official: false, wheel: null, python: null }

  /** What is to be set up, and whether it is only to be checked. */
  async function read(...flags: string[]): Promise<[TensorFlowRequest, boolean] | undefined> {
    const { command, texts } = await parse(['setup', ...flags])
    if (texts === undefined) return undefined
    const values = readTexts(texts, command!.flags) as Parameters<typeof requestOf>[0]
    return [requestOf(values, '/'), values.check === true]
  }

  it('are read, and paths become absolute', async () => {
    expect(await read('tensorflow')).toEqual([request, false])
    const given = { ...request, gpu: true, wheel: '/etc' }
    expect(await read('tensorflow', '--gpu', '--wheel=etc')).toEqual([given, false])
    expect(await read('--check', 'tensorflow')).toEqual([request, true])
    expect(await read('tensorflow', '--help')).toBeUndefined()
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
