import { adapterNames, chooseAdapter } from '../../../internals/training.ts'

const names = ['NVIDIA H200', 'NVIDIA T4', 'NVIDIA T400', 'llvmpipe (LLVM 15.0.6, 256 bits)']

describe('chooseAdapter', () => {
  it('accepts a name or a unique part of it, in upper or lower case', () => {
    expect(chooseAdapter(names, 'h200')).toBe(names[0])
    expect(chooseAdapter(names, 'nvidia t4')).toBe(names[1])
    expect(chooseAdapter(names, 'LLVMPIPE')).toBe(names[3])
  })

  it('refuses names that match no adapter or several, and lists all adapters', () => {
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

  it('reads the names from an error of Dawn, each once', async () => {
    const answer = names
      .flatMap((name) => [name, name])
      .map((name) => ` * backend: 'vulkan', name: '${name}'`)
    const refuse = () =>
      Promise.reject(new Error(`none found\nAvailable adapters:\n${answer.join('\n')}\n`))
    expect(await adapterNames(dawn(refuse))).toEqual(names)
  })

  it('returns nothing if there is no driver', async () => {
    expect(await adapterNames(dawn(() => Promise.resolve(null)))).toEqual([])
  })
})
