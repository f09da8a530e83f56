import { readSetupArguments } from '../../../packages/launcher/src/setup/arguments.ts'
import { gpusIn } from '../../../packages/launcher/src/setup/proof.ts'
import { checkNode } from '../../../packages/launcher/src/setup/toolchain.ts'

describe('the arguments of tsrun setup', () => {
  const request = { gpu: false, official: false, wheel: null, python: null }

  it('are read, paths made absolute', () => {
    expect(readSetupArguments(['tensorflow'], '/')).toEqual({ action: 'install', request })
    expect(readSetupArguments(['tensorflow', '--gpu', '--wheel=etc'], '/')).toEqual({
      action: 'install',
      request: { ...request, gpu: true, wheel: '/etc' },
    })
    expect(readSetupArguments(['--check', 'tensorflow'], '/').action).toBe('check')
    expect(readSetupArguments(['--help'], '/').action).toBe('help')
  })

  it.each([
    [[], 'sets up tensorflow, and not '],
    [['torch'], 'sets up tensorflow, and not '],
    [['tensorflow', 'twice'], 'sets up tensorflow, and not '],
    [['tensorflow', '--cpu'], "Unknown option '--cpu'"],
    [['tensorflow', '--wheel'], 'argument missing'],
    [['tensorflow', '--wheel', '/not/there'], '--wheel names /not/there, which does not exist'],
    [['tensorflow', '--python', '/', '--official'], '--python and --official exclude each other'],
  ])('%j are refused', (argv, problem) => {
    expect(() => readSetupArguments(argv, '/')).toThrow(problem)
    expect(() => readSetupArguments(argv, '/')).toThrow(
      expect.objectContaining({ code: 'ERR_TSR_USAGE' }),
    )
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

it('knows the GPUs from the log of TensorFlow', () => {
  const line = (gpu: number): string =>
    `I0000 00:00:17 gpu_device.cc:2020] Created device /job:localhost/replica:0/task:0/device:GPU:${gpu} ` +
    `with 78763 MB memory:  -> device: ${gpu}, name: NVIDIA H100 80GB HBM3, pci bus id: 0000:04:00.0\n`
  expect(gpusIn(`noise\n${line(0)}${line(1)}more`)).toEqual([
    'NVIDIA H100 80GB HBM3',
    'NVIDIA H100 80GB HBM3',
  ])
  expect(gpusIn('silence')).toEqual(['GPU'])
})
