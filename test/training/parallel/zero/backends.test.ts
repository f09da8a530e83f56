import { fileURLToPath } from 'node:url'
import { runModule } from '../../backend/support/process.ts'
import { tensorflow } from '../../backend/support/tensorflow.ts'
import { needing } from '../../../needs.ts'

const program = fileURLToPath(new URL('./support/on-backend.ts', import.meta.url))

// Recordings keep tensors whose memory is another one in between, which each backend has in its way.
async function expectBitsOfDataParallel(backend: string): Promise<void> {
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
}

it('a step of ZeRO is bitwise equal to one of dataParallel on the backend cpu', () =>
  expectBitsOfDataParallel('cpu'))

const { it: itOnTensorFlow } = needing(
  tensorflow !== undefined,
  'TensorFlow (npx tsrun setup tensorflow)',
)

itOnTensorFlow(
  'a step of ZeRO is bitwise equal to one of dataParallel on the backend tensorflow',
  () => expectBitsOfDataParallel('tensorflow'),
)
