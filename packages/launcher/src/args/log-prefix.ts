/** Facts about a rank, for the prefix of its output lines. */
export interface RankFacts {
  readonly rank: number
  readonly localRank: number
  readonly worldSize: number
  readonly role: string
  readonly host: string
  /** The rank of the node, from 0. */
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

/** The placeholders of `--log-prefix`. The last two are torchrun's names for `role` and `host`. */
const placeholders: Readonly<Record<string, (line: PrefixedLine) => string | number>> = {
  rank: ({ facts }) => facts.rank,
  local_rank: ({ facts }) => facts.localRank,
  role: ({ facts }) => facts.role,
  host: ({ facts }) => facts.host,
  node: ({ facts }) => facts.node,
  pid: ({ facts }) => facts.pid,
  time: ({ time }) => new Date(time).toISOString(),
  elapsed: ({ facts, time }) => `${(Math.max(0, time - facts.startedAt) / 1000).toFixed(3)}s`,
  stream: ({ stream }) => stream,
  generation: ({ facts }) => facts.generation,
  role_name: ({ facts }) => facts.role,
  hostname: ({ facts }) => facts.host,
}

/** Matches `{rank}`, and `${rank}` as in torchrun. */
const PLACEHOLDER = /\$?\{([^{}]*)\}/g

/** Describes an error in a template; undefined if there is none. */
export function templateProblem(template: string): string | undefined {
  for (const [whole, name] of template.matchAll(PLACEHOLDER)) {
    if (Object.hasOwn(placeholders, name!)) continue
    const known = Object.keys(placeholders).map((one) => `{${one}}`)
    return `${whole} is no placeholder; there are ${known.join(', ')}`
  }
  return undefined
}

/** Fills a prefix template, and appends a space unless the result ends with white space. */
export function fillTemplate(template: string, line: PrefixedLine): string {
  const text = template.replaceAll(PLACEHOLDER, (_, name: string) =>
    String(placeholders[name]?.(line)),
  )
  return text === '' || /\s$/.test(text) ? text : `${text} `
}
