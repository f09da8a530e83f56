import { describeCollectives } from './support/collectives.ts'

// The other sizes are in collectives.test.ts.
describeCollectives([2, 4, 5, 6, 7, 8, 9])
