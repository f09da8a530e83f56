import { coreErrors } from './core.ts'
import { distributedErrors } from './distributed.ts'
import { launcherErrors } from './launcher.ts'
import { nativeErrors } from './native.ts'
import { storeErrors } from './store.ts'
import { trainingErrors } from './training.ts'

/** Every error of the project: code -> category, message and advice. One section a package. */
export const errorTable = {
  ...coreErrors,
  ...nativeErrors,
  ...storeErrors,
  ...distributedErrors,
  ...trainingErrors,
  ...launcherErrors,
} as const

export type TsrErrorCode = keyof typeof errorTable
