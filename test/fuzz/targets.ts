import type { Target } from './campaign.ts'
import { fileTargets } from './files.ts'
import { launcherTargets } from './launcher.ts'
import { messageTargets } from './messages.ts'

/** Everything that reads what another process, host or user has written. */
export const targets: readonly Target[] = [...messageTargets, ...launcherTargets, ...fileTargets]
