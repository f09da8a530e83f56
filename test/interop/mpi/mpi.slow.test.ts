import { describeOverMpi } from './promises.ts'

// mpi.nightly.test.ts has the inline engine.
describeOverMpi('worker')
