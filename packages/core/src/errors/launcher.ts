import type { ErrorSection } from './definition.ts'

export const launcherErrors = {
  ERR_TSR_USAGE: {
    category: 'user',
    message: '{problem}',
    advice: 'See tsrun --help.',
  },
} as const satisfies ErrorSection
