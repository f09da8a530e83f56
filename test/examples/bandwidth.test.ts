import { describe, expect, it } from '@jest/globals'
import {
  allReduceBandwidth,
  elementsThatFit,
  fitsArena,
  reduceScatterBandwidth,
} from '../../examples/lib/bandwidth.ts'

const bytes = 100 * 1024 ** 2 * 4

describe("the lecture's bandwidths", () => {
  it('equal the figures that the lecture shows for 4 GPUs', () => {
    const reduced = allReduceBandwidth(bytes, 4, 0.002115)
    expect(reduced.busbw).toBeCloseTo(277, 0)
    expect(reduced.spoken).toBe(reduced.code)
    expect(reduced.code).toBeCloseTo(reduced.busbw, 9)

    // The same bus bandwidth, counted by the output: the puzzling 70.
    const scattered = reduceScatterBandwidth(bytes, 4, 0.00423)
    expect(scattered.busbw).toBeCloseTo(277, 0)
    expect(scattered.code).toBeCloseTo(scattered.busbw, 9)
    expect(scattered.spoken).toBeCloseTo(277 / 4, 0)
  })

  it('equal busbw as nccl-tests defines it', () => {
    const [ranks, seconds] = [8, 0.5]
    const algbw = bytes / seconds / 2 ** 30
    expect(allReduceBandwidth(bytes, ranks, seconds).busbw).toBeCloseTo(algbw * 2 * (7 / 8), 9)
    const whole = (bytes * ranks) / seconds / 2 ** 30
    expect(reduceScatterBandwidth(bytes, ranks, seconds).code).toBeCloseTo(whole * (7 / 8), 9)
  })
})

it('chooses a number of elements that fits into arenas', () => {
  expect(fitsArena(900 * 2 ** 20)).toBe(true)
  expect(fitsArena(1000 * 2 ** 20)).toBe(false)
  expect(elementsThatFit([1e12, 1000], 5, 2)).toBe(1000)
  expect(elementsThatFit([1e12, 1e11], 5, 2)).toBe(1e11)
})
