import { version } from '../version.ts'
import type { Finding } from './finding.ts'

const labels = { ok: 'OK', note: 'note', problem: 'FAILS' } as const

/** Whether the default backend can train here. */
export function canTrain(findings: readonly Finding[]): boolean {
  return findings.every(({ state }) => state !== 'problem')
}

export function reportText(findings: readonly Finding[]): string {
  const width = Math.max(...findings.map(({ name }) => name.length))
  const lines = findings.flatMap(({ name, state, found, advice, details = [] }) => {
    const margin = ' '.repeat(7 + width)
    return [
      `${labels[state].padEnd(7)}${name.padEnd(width)}  ${found}`,
      ...details.map((line) => `${margin}  ${line}`),
      ...(advice === undefined ? [] : [`${margin}  -> ${advice}`]),
    ]
  })
  const end = canTrain(findings)
    ? 'The default backend trains here.'
    : 'The default backend cannot train here: see FAILS above.'
  return `${[`tsrun ${version}`, ...lines, end].join('\n')}\n`
}

export function reportJson(findings: readonly Finding[]): string {
  const report = { version, canTrain: canTrain(findings), checks: findings }
  return `${JSON.stringify(report, null, 2)}\n`
}
