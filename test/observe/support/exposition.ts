export interface ParsedFamily {
  readonly type: string
  readonly help: string
  readonly samples: readonly { readonly labels: Record<string, string>; readonly value: number }[]
}

const NAME = '[a-zA-Z_:][a-zA-Z0-9_:]*'
const LABEL = String.raw`[a-zA-Z_][a-zA-Z0-9_]*="(?:[^"\\\n]|\\["\\n])*"`
const VALUE = String.raw`NaN|[+-]Inf|[+-]?(?:\d+\.?\d*|\.\d+)(?:e[+-]?\d+)?`
const helpLine = new RegExp(String.raw`^# HELP (${NAME}) ((?:[^\\]|\\[\\n])*)$`)
const typeLine = new RegExp(`^# TYPE (${NAME}) (counter|gauge|histogram|summary|untyped)$`)
const sampleLine = new RegExp(`^(${NAME})(?:\\{(${LABEL}(?:,${LABEL})*)\\})? (${VALUE})$`)

/** Reads the text format of Prometheus as strictly as its description does, and throws at anything else. */
export function parseExposition(text: string): Map<string, ParsedFamily> {
  if (text !== '' && !text.endsWith('\n')) throw new Error('the last line has no end')
  const families = new Map<string, ParsedFamily>()
  let current: { name: string; help: string; type?: string } | undefined
  const seen = new Set<string>()
  for (const line of text.split('\n').slice(0, -1)) {
    const [, helped, help] = helpLine.exec(line) ?? []
    const [, typed, type] = typeLine.exec(line) ?? []
    const [, name, labelList = '', value] = sampleLine.exec(line) ?? []
    if (helped !== undefined) {
      if (families.has(helped)) throw new Error(`${helped} is there twice`)
      current = { name: helped, help: unescaped(help!) }
    } else if (typed !== undefined) {
      if (current?.name !== typed || current.type !== undefined) throw new Error(`stray: ${line}`)
      current.type = type!
      families.set(typed, { type: type!, help: current.help, samples: [] })
      if ((type === 'counter') !== typed.endsWith('_total')) throw new Error(`${typed}: ${type}`)
    } else if (name !== undefined) {
      const family = families.get(name)
      if (family === undefined || current?.name !== name) throw new Error(`stray: ${line}`)
      const pairs = Array.from(labelList.matchAll(new RegExp(LABEL, 'g')), ([pair]) => {
        const [key, quoted] = [
          pair.slice(0, pair.indexOf('=')),
          pair.slice(pair.indexOf('=') + 2, -1),
        ]
        return [key, unescaped(quoted)] as const
      })
      const labels = Object.fromEntries(pairs)
      const key = `${name} ${JSON.stringify(pairs.map((pair) => pair.join('=')).sort())}`
      if (seen.has(key) || Object.keys(labels).length < pairs.length)
        throw new Error(`twice: ${line}`)
      seen.add(key)
      const number = Number(value!.replace('Inf', 'Infinity'))
      ;(family.samples as { labels: Record<string, string>; value: number }[]).push({
        labels,
        value: number,
      })
    } else throw new Error(`not in the format: ${line}`)
  }
  return families
}

function unescaped(text: string): string {
  return text.replaceAll(/\\(.)/g, (_, letter: string) => (letter === 'n' ? '\n' : letter))
}
