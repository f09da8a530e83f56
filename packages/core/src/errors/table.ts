import { coreErrors, nativeErrors } from './core.ts'
import { distributedErrors } from './distributed.ts'
import { launcherErrors } from './launcher.ts'
import { storeErrors } from './store.ts'
import { trainingErrors } from './training.ts'

/** All errors of the project: category, message and advice by code, with one section for each package. */
export const errorTable = {
  ...coreErrors,
  ...nativeErrors,
  ...storeErrors,
  ...distributedErrors,
  ...trainingErrors,
  ...launcherErrors,
} as const

export type TsrErrorCode = keyof typeof errorTable
