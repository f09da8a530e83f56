import { existsSync } from 'node:fs'

/** Explains why Node, which strips types itself, does not find the source of an imported module. */
export function explainMissingSource(thrown: unknown): string {
  const { code, message } = Object(thrown) as Record<string, unknown>
  if (code !== 'ERR_MODULE_NOT_FOUND') return ''
  const [, path, kind = ''] =
    /^Cannot find module '(.+)\.(m?)js' imported/.exec(String(message)) ?? []
  const source = `${path}.${kind}ts`
  if (path === undefined || !existsSync(source)) return ''
  return `\nThere is ${source}, but Node does not look for it. tsx does: NODE_OPTIONS="--import tsx". Or write .${kind}ts in the import.`
}
