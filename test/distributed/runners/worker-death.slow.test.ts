import { jest } from '@jest/globals'
import { isAvailable } from '@tsrun/native'
import { describeWorkerDeath } from './support/worker-death.ts'

jest.setTimeout(120_000)

const ways = ['flood', 'blocked', 'awaited', 'later']

describeWorkerDeath('node', ways)
if (isAvailable().available) describeWorkerDeath('tcp', ways)
