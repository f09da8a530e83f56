import type { ErrorReport, RankOutcome } from '../../internals/launcher/nodes.ts'

type Facts = Partial<RankOutcome>

/** A rank that exits by itself. */
export function exited(rank: number, exitCode: number, facts: Facts = {}): RankOutcome {
  return {
    rank,
    pid: 1000 + rank,
    exitCode,
    signal: null,
    startedAt: 0,
    endedAt: 200,
    stopSignal: undefined,
    stoppedAt: undefined,
    error: undefined,
    exitedAt: undefined,
    stderrTail: [],
    heapExhausted: false,
    usage: undefined,
    place: undefined,
    ...facts,
  }
}

/** Of an uncaught error. */
export function died(rank: number, error: ErrorReport, facts: Facts = {}): RankOutcome {
  return exited(rank, 1, { error, endedAt: error.at + 5, ...facts })
}

export function killed(
  rank: number,
  signal: NodeJS.Signals,
  endedAt: number,
  facts: Facts = {},
): RankOutcome {
  return exited(rank, 0, { exitCode: null, signal, endedAt, ...facts })
}

/** Of an exhausted heap. */
export function crashed(rank: number, facts: Facts = {}): RankOutcome {
  return killed(rank, 'SIGABRT', 200, { heapExhausted: true, ...facts })
}

/** By the launcher. */
export function stopped(rank: number, facts: Facts = {}): RankOutcome {
  return killed(rank, 'SIGTERM', 300, { stopSignal: 'SIGTERM', stoppedAt: 250, ...facts })
}

export function errorReport(facts: Partial<ErrorReport>): ErrorReport {
  return {
    kind: 'error',
    at: 100,
    name: 'Error',
    message: 'boom',
    text: 'Error: boom\n    at train (/train.mjs:3:9)',
    peers: [],
    distance: 0,
    silent: false,
    ...facts,
  }
}
