import type { Dataset } from '@tsrun/training'

/** Example i has the input [i] and the label i. */
export const counting: Dataset = {
  size: 10,
  features: 1,
  classes: 10,
  readInputs: (indices, out) => {
    out.set(indices)
  },
  readLabels: (indices, out) => {
    out.set(indices)
  },
}
