import type { ErrorSection } from './definition.ts'

export const trainingErrors = {
  ERR_TSR_BACKEND: {
    category: 'infrastructure',
    message: 'The tensor backend {backend} cannot be used: {reason}',
    advice: "Choose another one with TSRUN_BACKEND, or 'auto'.",
  },
} as const satisfies ErrorSection
