import { existsSync } from 'node:fs'

/** A hint for an import of `./lib.js` where there is only lib.ts. Only tsx looks for it. */
export function missingSourceHint(error: unknown): string {
  const { code, message } = Object(error) as Record<string, unknown>
  const [, path, kind = ''] = /^Cannot find module '(.+)\.(m?)js' imp/.exec(String(message)) ?? []
  const source = `${path}.${kind}ts`
  if (code !== 'ERR_MODULE_NOT_FOUND' || !existsSync(source)) return ''
  return `\nThere is ${source}, which only tsx looks for: NODE_OPTIONS="--import tsx". Or import .${kind}ts.`
}
