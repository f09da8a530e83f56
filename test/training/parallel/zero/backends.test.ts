import { fileURLToPath } from 'node:url'
import { jest } from '@jest/globals'
import { readTensorFlowManifest } from '@tsrun/core'
import { runModule } from '../../backend/support/process.ts'

jest.setTimeout(120_000)

const program = fileURLToPath(new URL('./support/on-backend.ts', import.meta.url))

/** Where TensorFlow is set up, if it is: these tests run with an empty TSRUN_HOME. */
const home = { TSRUN_HOME: process.env['TSRUN_TESTS_HOME'] ?? '' }
const hasTensorFlow = readTensorFlowManifest(home) !== undefined

if (!hasTensorFlow) {
  it('skipped: no TensorFlow (tsrun setup tensorflow)', () => {
    expect(hasTensorFlow).toBe(false)
  })
}

// Recordings keep tensors whose memory is another one in between, which each backend has in its way.
it.each(['cpu', ...(hasTensorFlow ? ['tensorflow'] : [])])(
  'makes the steps of dataParallel to the bit on the backend %s',
  async (backend) => {
    const script = `
      const { compare } = await import(${JSON.stringify(program)})
      console.log(JSON.stringify(await compare()))`
    const { code, stdout, stderr } = await runModule(script, { ...home, TSRUN_BACKEND: backend })
    expect({ code, stderr }).toMatchObject({ code: 0 })
    const found = JSON.parse(stdout.trim().split('\n').at(-1)!) as { equal: boolean }[]
    expect(found).toHaveLength(4)
    expect(found.filter(({ equal }) => !equal)).toEqual([])
  },
)
