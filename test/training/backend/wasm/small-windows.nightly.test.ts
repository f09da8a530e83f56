import { describeSmallImages, isUsual } from '../support/small-images.ts'

// Thousands of small tensors, on cores that others may load.

describeSmallImages((place) => !isUsual(place))
