import {
  adapterNames,
  chooseAdapter,
} from '../../../../packages/training/src/backend/webgpu/device.ts'

const names = ['NVIDIA H200', 'NVIDIA T4', 'NVIDIA T400', 'llvmpipe (LLVM 15.0.6, 256 bits)']

describe('chooseAdapter', () => {
  it('takes a whole name or a part that only one has, in upper or lower case', () => {
    expect(chooseAdapter(names, 'h200')).toBe(names[0])
    expect(chooseAdapter(names, 'nvidia t4')).toBe(names[1])
    expect(chooseAdapter(names, 'LLVMPIPE')).toBe(names[3])
  })

  it('refuses what fits none or several, and lists them all', () => {
    expect(() => chooseAdapter(names, 'AMD')).toThrow(`no adapter fits 'AMD'`)
    expect(() => chooseAdapter(names, 'nvidia')).toThrow(
      /3 adapters fit .* there are: NVIDIA H200, /,
    )
    expect(() => chooseAdapter(names.slice(0, 1), '')).toThrow('NVIDIA H200')
  })
})

describe('adapterNames', () => {
  const dawn = (requestAdapter: () => Promise<null>) => ({
    create: () => ({ requestAdapter }),
    globals: {},
  })

  it('reads them from what Dawn answers, each once', async () => {
    const answer = names
      .flatMap((name) => [name, name])
      .map((name) => ` * backend: 'vulkan', name: '${name}'`)
    const refuse = () =>
      Promise.reject(new Error(`none found\nAvailable adapters:\n${answer.join('\n')}\n`))
    expect(await adapterNames(dawn(refuse))).toEqual(names)
  })

  it('finds none where there is no driver', async () => {
    expect(await adapterNames(dawn(() => Promise.resolve(null)))).toEqual([])
  })
})
