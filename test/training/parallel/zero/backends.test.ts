import { fileURLToPath } from 'node:url'
import { jest } from '@jest/globals'
import { runModule } from '../../backend/support/process.ts'
import { tensorflow } from '../../backend/support/tensorflow.ts'

jest.setTimeout(120_000)

const program = fileURLToPath(new URL('./support/on-backend.ts', import.meta.url))

if (tensorflow === undefined) {
  it('skipped: no TensorFlow (tsrun setup tensorflow)', () => {
    expect(tensorflow).toBeUndefined()
  })
}

// Recordings keep tensors whose memory is another one in between, which each backend has in its way.
it.each(['cpu', ...(tensorflow === undefined ? [] : ['tensorflow'])])(
  'makes steps with the bits of dataParallel on the backend %s',
  async (backend) => {
    const script = `
      const { compare } = await import(${JSON.stringify(program)})
      console.log(JSON.stringify(await compare()))`
    const { code, stdout, stderr } = await runModule(script, {
      ...tensorflow,
      TSRUN_BACKEND: backend,
    })
    expect({ code, stderr }).toMatchObject({ code: 0 })
    const found = JSON.parse(stdout.trim().split('\n').at(-1)!) as { equal: boolean }[]
    expect(found).toHaveLength(4)
    expect(found.filter(({ equal }) => !equal)).toEqual([])
  },
)
