import type { RankPlan } from './rank-plan.ts'

/** In place of a port that the kernel picks. */
const CHOSEN = '(chosen at the start)'

/** What `--dry-run` prints: the environment (without the secret) and the command of each rank. */
export function describePlan(ranks: readonly RankPlan[]): string {
  const blocks = ranks.map(({ rank, environment, command }) => {
    const variables = Object.entries(withoutSecret(environment)).map(
      ([name, value]) => `  ${name}=${name === 'MASTER_PORT' && value === '0' ? CHOSEN : value}`,
    )
    return [`rank ${rank}`, ...variables, `  ${command.map(quote).join(' ')}`].join('\n')
  })
  return blocks.join('\n\n') + '\n'
}

/** The same for programs: one JSON object a rank and line. */
export function describePlanAsJson(ranks: readonly RankPlan[]): string {
  return ranks
    .map(({ rank, environment, command }) =>
      JSON.stringify({ rank, environment: withoutSecret(environment), command }),
    )
    .map((line) => line + '\n')
    .join('')
}

function withoutSecret(environment: Readonly<Record<string, string>>): Record<string, string> {
  return Object.fromEntries(Object.entries(environment).filter(([name]) => name !== 'TSRUN_TOKEN'))
}

/** Quotes an argument for a POSIX shell where it needs it. */
function quote(argument: string): string {
  return /^[\w@%+=:,./-]+$/.test(argument) ? argument : `'${argument.replaceAll("'", `'\\''`)}'`
}
