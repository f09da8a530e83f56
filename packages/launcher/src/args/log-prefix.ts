/** A rank whose lines are shown. */
export interface RankFacts {
  readonly rank: number
  readonly localRank: number
  readonly worldSize: number
  readonly role: string
  /** The name of its machine. */
  readonly host: string
  /** The number of its launcher. */
  readonly node: number
  readonly pid: number
  /** How often the ranks had been started before. */
  readonly generation: number
  /** Milliseconds since 1970. */
  readonly startedAt: number
}

/** A line whose prefix is made. */
interface PrefixedLine {
  readonly facts: RankFacts
  readonly stream: 'stdout' | 'stderr'
  /** Milliseconds since 1970. */
  readonly time: number
}

/** The name that torchrun's templates have for a role. */
const ROLE_OF_TORCHRUN = 'role_name'

/** What `--log-prefix` may contain, in braces. */
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
    [ROLE_OF_TORCHRUN]: ({ facts }) => facts.role,
  }),
)

/** `{rank}`; with a dollar before it, as torchrun writes it, it is the same. */
const PLACEHOLDER = /\$?\{([^{}]*)\}/g

/** What is wrong with a template; undefined: nothing. */
export function templateProblem(template: string): string | undefined {
  for (const [whole, name] of template.matchAll(PLACEHOLDER)) {
    if (placeholders.has(name!)) continue
    const known = [...placeholders.keys()].filter((one) => one !== ROLE_OF_TORCHRUN)
    return `${whole} is no placeholder; there are ${known.map((one) => `{${one}}`).join(', ')}`
  }
  return undefined
}

/** Makes the prefix of each line by a template, with one blank after it unless it ends with one. */
export function fillTemplate(template: string, line: PrefixedLine): string {
  const text = template.replaceAll(PLACEHOLDER, (_, name: string) => placeholders.get(name)!(line))
  return text === '' || /\s$/.test(text) ? text : `${text} `
}
