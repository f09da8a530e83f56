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

/** torchrun's names for the placeholders `role` and `host`. */
const ofTorchrun = ['role_name', 'hostname']

/** The placeholders of `--log-prefix`. */
const placeholders: ReadonlyMap<string, (line: PrefixedLine) => string> = new Map(
  Object.entries<(line: PrefixedLine) => string>({
    rank: ({ facts }) => String(facts.rank),
    local_rank: ({ facts }) => String(facts.localRank),
    role: ({ facts }) => facts.role,
    host: ({ facts }) => facts.host,
    node: ({ facts }) => String(facts.node),
    pid: ({ facts }) => String(facts.pid),
    time: ({ time }) => new Date(time).toISOString(),
    elapsed: ({ facts, time }) => `${(Math.max(0, time - facts.startedAt) / 1000).toFixed(3)}s`,
    stream: ({ stream }) => stream,
    generation: ({ facts }) => String(facts.generation),
    role_name: ({ facts }) => facts.role,
    hostname: ({ facts }) => facts.host,
  }),
)

/** Matches `{rank}`, and `${rank}` as in torchrun. */
const PLACEHOLDER = /\$?\{([^{}]*)\}/g

/** Describes an error in a template; undefined if there is none. */
export function templateProblem(template: string): string | undefined {
  for (const [whole, name] of template.matchAll(PLACEHOLDER)) {
    if (placeholders.has(name!)) continue
    const known = [...placeholders.keys()].filter((one) => !ofTorchrun.includes(one))
    return `${whole} is no placeholder; there are ${known.map((one) => `{${one}}`).join(', ')}`
  }
  return undefined
}

/** Fills a prefix template, and appends a space unless the result ends with white space. */
export function fillTemplate(template: string, line: PrefixedLine): string {
  const text = template.replaceAll(PLACEHOLDER, (_, name: string) => placeholders.get(name)!(line))
  return text === '' || /\s$/.test(text) ? text : `${text} `
}
