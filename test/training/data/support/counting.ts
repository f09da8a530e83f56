import type { Examples } from '@tsrun/training'

/** Example i has the input [i] and the label i. */
export const counting: Examples = {
  size: 10,
  fields: {
    inputs: {
      shape: [1],
      dtype: 'float32',
      read: (indices, out) => {
        out.set(indices)
      },
    },
    labels: {
      shape: [],
      dtype: 'int32',
      read: (indices, out) => {
        out.set(indices)
      },
    },
  },
}
