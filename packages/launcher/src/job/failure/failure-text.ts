import { formatRanks, formatSeconds, host as ownHost } from '@tsrun/core'
import type { Failure, NodeFailure } from '../../protocol/nodes.ts'

const WIDTH = 80
const MARGIN = 13
const TITLE = ' tsrun: the job failed '
/** Matches one line of a paragraph. A longer word gets a line of its own. */
const PARAGRAPH_LINE = new RegExp(`\\S.{0,${WIDTH - MARGIN - 1}}(?= |$)|\\S+`, 'gs')

/** Formats the report of a failed job: the cause, the consequences, and where to read more. */
export function failureText(failure: Failure, colour: boolean, here = ownHost.name()): string {
  const {
    rank,
    worldSize,
    pid,
    host,
    ended,
    seconds,
    explanation,
    error,
    stderr,
    others,
    findings,
    logs,
    records,
    last,
    runId,
  } = failure
  const ranks = worldSize === 1 ? 'the only rank' : `rank ${rank} of ${worldSize}`
  const away = host === here ? '' : ` on ${host}`
  const when = last === undefined ? `, after ${formatSeconds(seconds)}` : ''
  const blocks = {
    'first cause': wrap(`${ranks} ${ended}${when}`),
    // A rank in a web page has no process.
    process: pid === 0 ? [] : [`${pid} on ${host}`],
    last: wrap(last),
    meaning: wrap(explanation),
    error: error?.split('\n') ?? [],
    stderr,
    others: others.flatMap(wrap),
    operations: findings.flatMap(wrap),
    run: wrap(runId),
    logs: logs === undefined ? [] : [`${logs}${away}`],
    records: records === undefined ? [] : [`tsrun flight ${records}`],
  }
  return reportText(blocks, failure.jobExitCode, colour)
}

export function nodeFailureText(failure: NodeFailure, colour: boolean): string {
  const { node, host, address, reason, ranks, others, jobExitCode, runId } = failure
  const blocks = {
    'first cause': wrap(`node ${node} (${formatRanks(ranks)}) is gone: ${reason}`),
    host: [`${host}, ${address}`],
    others: others.flatMap(wrap),
    run: wrap(runId),
  }
  return reportText(blocks, jobExitCode, colour)
}

/** Formats the report in one line. @param where - where the details are */
export function shortFailureText(
  failure: Failure | NodeFailure,
  where: string,
  what: 'job' | 'attempt' = 'job',
): string {
  const cause = 'ended' in failure ? describeRank(failure) : describeNode(failure)
  return `tsrun: the ${what} failed: ${cause}; ${where}\n`
}

function describeRank({ rank, worldSize, host, ended, what }: Failure): string {
  const error = what === undefined ? '' : `: ${what.split('\n', 1)[0]!}`
  return `rank ${rank} of ${worldSize} on ${host} ${ended}${error}`
}

function describeNode({ node, host, ranks, reason }: NodeFailure): string {
  return `node ${node} (${host}, ${formatRanks(ranks)}) is gone: ${reason}`
}

/** @param blocks - maps each title to its lines */
function reportText(
  blocks: Readonly<Record<string, readonly string[]>>,
  exitCode: number,
  colour: boolean,
): string {
  const lines = [
    // Bold red.
    colour ? `\x1b[1m\x1b[31m${rule(TITLE)}\x1b[39m\x1b[22m` : rule(TITLE),
    // Put the first line beside the title and the other lines below it.
    ...Object.entries(blocks).flatMap(([title, own]) =>
      own.map((line, index) => ((index === 0 ? title : '').padEnd(MARGIN) + line).trimEnd()),
    ),
    rule(` exit code ${exitCode} `),
  ]
  return lines.join('\n') + '\n'
}

/** Breaks a paragraph at spaces into lines that fit beside the titles. */
function wrap(text = ''): readonly string[] {
  return text.match(PARAGRAPH_LINE) ?? []
}

function rule(title: string): string {
  return `──${title}`.padEnd(WIDTH, '─')
}
