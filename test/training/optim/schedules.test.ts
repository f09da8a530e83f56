import { constantRate, SGD, warmupCosine, warmupStableDecay } from '@tsrun/training'

const rates = (schedule: (step: number) => number, steps: number) =>
  Array.from({ length: steps }, (_, step) => Number(schedule(step).toFixed(6)))

it('constantRate rises to the peak during the warm-up, and stays there', () => {
  expect(rates(constantRate({ peak: 8, warmup: 3 }), 6)).toEqual([2, 4, 6, 8, 8, 8])
  expect(rates(constantRate({ peak: 8 }), 2)).toEqual([8, 8])
})

it('warmupCosine falls along half a cosine to the minimum', () => {
  const schedule = warmupCosine({ peak: 3, warmup: 1, total: 5, minimum: 1 })
  const half = Math.SQRT1_2
  expect(rates(schedule, 8)).toEqual(
    [1.5, 3, 2 + half, 2, 2 - half, 1, 1, 1].map((rate) => Number(rate.toFixed(6))),
  )
  expect(rates(warmupCosine({ peak: 2, total: 2 }), 3)).toEqual([2, 1, 0])
})

it('warmupStableDecay stays at the peak until the decay', () => {
  const options = { peak: 4, warmup: 1, total: 8, decay: 4 }
  expect(rates(warmupStableDecay(options), 10)).toEqual([2, 4, 4, 4, 4, 3, 2, 1, 0, 0])
  const sqrt = warmupStableDecay({ ...options, shape: 'sqrt', minimum: 2 })
  expect(rates(sqrt, 9).slice(4)).toEqual([4, 3, 2.585786, 2.267949, 2])
  const cosine = warmupStableDecay({ ...options, shape: 'cosine' })
  expect(rates(cosine, 9).slice(4)).toEqual([4, 3.414214, 2, 0.585786, 0])
})

it('learning rate schedules support zero steps, and zero steps of decay', () => {
  expect(rates(warmupStableDecay({ peak: 1, total: 2, decay: 0 }), 3)).toEqual([1, 1, 0])
  expect(rates(warmupCosine({ peak: 1, total: 0 }), 2)).toEqual([0, 0])
})

it('a learning rate schedule can set the rate of an optimizer', () => {
  const optimizer = new SGD({ learningRate: 0 })
  optimizer.learningRate = constantRate({ peak: 0.5 })(0)
  expect(optimizer.learningRate).toBe(0.5)
})

it.each([
  [() => constantRate({ peak: -1 }), /peak is -1/],
  [() => constantRate({ peak: 1, warmup: 1.5 }), /warmup is 1.5; expected a whole number from 0/],
  [
    () => warmupCosine({ peak: 1, warmup: 6, total: 5 }),
    /warmup \+ decay is 6 \+ 0 steps; expected at most the 5/,
  ],
  [() => warmupCosine({ peak: 1, total: Number.NaN }), /total is NaN/],
  [
    () => warmupStableDecay({ peak: 1, warmup: 3, total: 5, decay: 3 }),
    /warmup \+ decay is 3 \+ 3 steps/,
  ],
  [() => warmupStableDecay({ peak: 1, total: 5, decay: 3, minimum: -1 }), /minimum is -1/],
  [
    () => warmupStableDecay({ peak: 1, total: 5, decay: 3, shape: 'stairs' as 'linear' }),
    /shape is "stairs"; expected one of "linear", "cosine", "sqrt"/,
  ],
  [() => constantRate({ peak: 1 })(-1), /step is -1/],
  [() => constantRate({ peak: '1' as never }), /peak is "1"; expected a number/],
  [() => constantRate(1 as never), /options is 1; expected an object with peak, warmup\. /],
  [() => constantRate({ peak: 1, warmUp: 3 } as never), /the unknown key "warmUp"/],
  [
    () => warmupCosine({ peak: 1, total: 9, min: 0.1 } as never),
    /the unknown key "min"; .* total, minimum /,
  ],
  [() => warmupStableDecay({ peak: 1, total: 9, decays: 2 } as never), /the unknown key "decays"/],
])('learning rate schedules refuse invalid options', (make, message) => {
  expect(make).toThrow(message)
  expect(make).toThrow(expect.objectContaining({ code: 'ERR_TSR_ARGUMENT' }))
})
