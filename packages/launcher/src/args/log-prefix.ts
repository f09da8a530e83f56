/** A rank whose lines are shown. */
export interface RankFacts {
  readonly rank: number
  readonly localRank: number
  readonly worldSize: number
  readonly role: string
  /** The name of the host. */
  readonly host: string
  /** The number of the rank's launcher. */
  readonly node: number
  readonly pid: number
  /** The number of the attempt, from 0. */
  readonly generation: number
  /** Milliseconds since 1970. */
  readonly startedAt: number
}

interface PrefixedLine {
  readonly facts: RankFacts
  readonly stream: 'stdout' | 'stderr'
  /** Milliseconds since 1970. */
  readonly time: number
}

/** The placeholders of `--log-prefix`; the last two are torchrun's names of `role` and `host`. */
const names = [
  'rank',
  'local_rank',
  'role',
  'host',
  'node',
  'pid',
  'time',
  'elapsed',
  'stream',
  'generation',
  'role_name',
  'hostname',
] as const

type Name = (typeof names)[number]

/** Matches `{rank}`, and `${rank}` as in torchrun. */
const PLACEHOLDER = /\$?\{([^{}]*)\}/g

/** Describes an error in a template; undefined if there is none. */
export function templateProblem(template: string): string | undefined {
  for (const [whole, name] of template.matchAll(PLACEHOLDER)) {
    if (names.some((known) => known === name)) continue
    return `${whole} is no placeholder; there are ${names.map((one) => `{${one}}`).join(', ')}`
  }
  return undefined
}

/** Fills a prefix template, and appends a space unless the result ends with white space. */
export function fillTemplate(template: string, line: PrefixedLine): string {
  const values = valuesOf(line)
  const text = template.replaceAll(PLACEHOLDER, (_, name: Name) => String(values[name]))
  return text === '' || /\s$/.test(text) ? text : `${text} `
}

function valuesOf({ facts, stream, time }: PrefixedLine): Readonly<Record<Name, string | number>> {
  const { rank, localRank, role, host, node, pid, generation, startedAt } = facts
  return {
    rank,
    local_rank: localRank,
    role,
    host,
    node,
    pid,
    time: new Date(time).toISOString(),
    elapsed: `${(Math.max(0, time - startedAt) / 1000).toFixed(3)}s`,
    stream,
    generation,
    role_name: role,
    hostname: host,
  }
}
