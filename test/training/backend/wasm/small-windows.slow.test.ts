import { jest } from '@jest/globals'
import { describeSmallImages, isUsual } from '../support/small-images.ts'

// Thousands of small tensors, on cores that others may load.
jest.setTimeout(120_000)

describeSmallImages((place) => !isUsual(place))
