import { loadBackend, record, tf, type Tensor } from '@tsrun/training'
import { testTape, recordOnTape } from '../../internals/training.ts'

beforeAll(async () => {
  await loadBackend('wasm')
  record((x) => x, tf.scalar(1), [], { needsInputGradient: false }).dispose()
})

const autogradError = (problem: string) =>
  expect.objectContaining({
    code: 'ERR_TSR_AUTOGRAD',
    message: expect.stringContaining(`TensorFlow.js 4.22.0`) as string,
    facts: expect.objectContaining({
      problem: expect.stringContaining(problem) as string,
    }) as object,
  }) as Error

describe('the self-test of the tape', () => {
  it('passes and leaks nothing', () => {
    const before = tf.memory()
    testTape(recordOnTape)
    expect(tf.memory()).toEqual(before)
  })

  it('fails when a gradient is wrong', () => {
    const wrong: typeof recordOnTape = (forward, ...rest) => {
      const recording = recordOnTape(forward, ...rest)
      return {
        ...recording,
        backward: (dy, onGradient) =>
          recording.backward(dy, (parameter, gradient) => {
            const twice = tf.mul(gradient, 2)
            gradient.dispose()
            onGradient(parameter, twice)
          }),
      }
    }
    expect(() => {
      testTape(wrong)
    }).toThrow(autogradError('differ from tf.grads'))
  })

  it('fails when a recording leaks', () => {
    const leaking: typeof recordOnTape = (...all) => ({
      ...recordOnTape(...all),
      dispose: () => undefined,
    })
    expect(() => {
      testTape(leaking)
    }).toThrow(autogradError('leaks'))
  })

  it('fails when the engine lacks a private function, and names it', () => {
    const engine = tf.engine() as unknown as Record<string, unknown>
    engine['startTape'] = undefined
    try {
      expect(() => {
        testTape(recordOnTape)
      }).toThrow(autogradError('startTape'))
    } finally {
      delete engine['startTape']
    }
    const [gradient] = tf.grads((x: Tensor) => tf.square(x))([tf.scalar(3)])
    expect(gradient!.dataSync()[0]).toBe(6)
  })
})
