import { Adam, loadBackend, SGD, type Optimizer, type Parameter } from '@tsrun/training'
import { build, cases, gradient } from './support/cases.ts'

describe.each(['wasm', 'cpu'] as const)('on %s', (backend) => {
  beforeAll(() => loadBackend(backend))

  it.each(cases)(
    '%s keeps its state by name, for any order and selection of parameters',
    (_, make) => {
      const run = (orders: string[][]) => {
        const parameters = new Map(['a', 'b'].map((name) => [name, build(name, [1, 2])]))
        const optimizer = make()
        for (const order of orders) {
          const gradients = new Map(
            order.map((name) => [name, gradient(name === 'a' ? [1, 2] : [-3, 1])]),
          )
          optimizer.step(
            order.map((name) => parameters.get(name)!),
            gradients,
          )
        }
        return [...parameters.values()].map(({ value }) => [...value.dataSync()])
      }
      expect(run([['a'], ['b', 'a'], ['b']])).toEqual(
        run([
          ['a', 'b'],
          ['a', 'b'],
        ]),
      )
    },
  )

  it.each(cases)('%s continues from a copy of its state with the same values', async (_, make) => {
    const steps = (optimizer: Optimizer, parameter: Parameter, count: number) => {
      for (let step = 0; step < count; step++) {
        optimizer.step([parameter], new Map([['p', gradient([0.5, -step, 2])]]))
      }
      return [...parameter.value.dataSync()]
    }
    const [first, second] = [make(), make()]
    const parameter = build('p', [1, 2, 3])
    steps(first, parameter, 3)
    const copy = build('p', [...parameter.value.dataSync()])
    const state = await first.state()
    second.loadState(state)
    expect(await second.state()).toEqual(state)
    const expected = steps(first, parameter, 3)
    expect(state.get('p')!.steps).toBe(3)
    for (const values of Object.values(state.get('p')!.values)) values.fill(NaN)
    expect(steps(second, copy, 3)).toEqual(expected)
    expect(await second.state()).toEqual(await first.state())
  })

  it.each(cases)('%s restarts with new state after it is disposed', async (_, make) => {
    const first = make()
    const step = (optimizer: Optimizer) => {
      const parameter = build('p', [1, 2])
      for (const values of [
        [3, 4],
        [-1, 2],
      ]) {
        optimizer.step([parameter], new Map([['p', gradient(values)]]))
      }
      return [...parameter.value.dataSync()]
    }
    const expected = step(first)
    first.dispose()
    expect((await first.state()).size).toBe(0)
    expect(step(first)).toEqual(expected)
    first.dispose()
  })

  it.each(cases)(
    '%s refuses to continue with the state of another model, and changes nothing',
    async (_, make) => {
      const optimizer = make()
      const step = (...sizes: number[]) => {
        const parameters = sizes.map((size, i) => build('qp'[i]!, new Array<number>(size).fill(1)))
        const gradients = new Map(
          parameters.map(({ name, shape }) => [name, gradient(new Array(shape[0]).fill(2))]),
        )
        optimizer.step(parameters, gradients)
        return parameters
      }
      step(2, 3)
      const state = await optimizer.state()
      const isKept = Object.keys(state.get('p')!.values).length > 0
      for (const size of [2, 300]) {
        if (isKept)
          expect(() => step(2, size)).toThrow(
            /the state of p in the optimizer is one of 3 values; expected .*model/,
          )
        else expect([...step(2, size)[1]!.value.dataSync()]).not.toContain(1)
      }
      if (isKept) expect(await optimizer.state()).toEqual(state)
      optimizer.dispose()
      step(2, 300)
    },
  )

  it('an optimizer refuses the state of another optimizer, or of a parameter of another size', async () => {
    const parameter = build('p', [1, 2])
    const adaptive = new Adam()
    adaptive.step([parameter], new Map([['p', gradient([1, 1])]]))
    const state = await adaptive.state()
    expect(() => {
      new SGD({ learningRate: 1, momentum: 0.9 }).loadState(state)
    }).toThrow(/state of p is 1 steps, mean, square; expected a number of steps, velocity/)
    const other = new Adam()
    other.loadState(state)
    expect(() => {
      other.step([build('p', [1, 2, 3])], new Map([['p', gradient([1, 1, 1])]]))
    }).toThrow(/the state of p in the optimizer is one of 2 values; expected 3 values, as many as/)
  })
})
