import type { TsrErrorCode } from '@tsrun/core'

/** For `toThrow` and `rejects.toEqual`: an error of that code, whose message matches. */
export function failure(code: TsrErrorCode, message = /./): Error {
  return expect.objectContaining({
    code,
    message: expect.stringMatching(message) as string,
  }) as Error
}
