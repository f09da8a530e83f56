import type { ErrorSection } from './definition.ts'

export const nativeErrors = {
  ERR_TSR_NATIVE_UNAVAILABLE: {
    category: 'infrastructure',
    message: 'The native bindings are not available: {reason}',
    advice: "Install the optional package koffi, or choose the transport 'node'.",
  },
  ERR_TSR_SYSTEM_CALL: {
    category: 'infrastructure',
    message: '{call} failed: {errno} ({description})',
    advice: 'See the error number in the manual page of the call.',
  },
} as const satisfies ErrorSection
