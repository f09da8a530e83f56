import { jest } from '@jest/globals'
import { isAvailable } from '@tsrun/native'
import { describeWorkerDeath } from './support/worker-death.ts'

jest.setTimeout(120_000)

// All ways with every transport are in worker-death.slow.test.ts.
describeWorkerDeath(isAvailable().available ? 'tcp' : 'node', ['flood', 'blocked'])
