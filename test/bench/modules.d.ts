// What the tests use of scripts/bench, which is plain JavaScript.
declare module '*/figures.mjs' {
  export function percentile(samples: readonly number[], share: number): number
  export function median(samples: readonly number[]): number
  export function significant(value: number, digits?: number): number
  export function parseSize(text: string): number
  export function markdownTable(
    headings: readonly string[],
    rows: readonly (readonly (string | number)[])[],
  ): string
}
declare module '*/plan.mjs' {
  export const operations: readonly string[]
  export function busFactor(op: string, ranks: number): number
  export function countFor(op: string, bytes: number, ranks: number): number
  interface Step {
    op: string
    count: number
    warmUps: number
    repeats: number
  }
  export function plan(ops: readonly string[], sizes: readonly number[], ranks: number): Step[]
  export function stepArgument(step: Step): string
  export function parseStep(argument: string): Step
}
declare module '*/rounds.mjs' {
  interface System {
    system: string
    transport: string
    engine: string | null
  }
  interface Sample {
    op: string
    count: number
    us: number[]
  }
  interface Row extends System {
    op: string
    bytes: number
    ranks: number
    p50Us: number
    p99Us: number
    algbwGBs: number
    busbwGBs: number
  }
  export function interleave<S>(
    systems: readonly S[],
    runs: number,
    measure: (system: S, round: number) => Promise<Sample[]>,
    failed: (system: S, error: unknown) => void,
  ): Promise<Map<S, Sample[][]>>
  export function summarize(system: System, ranks: number, rounds: Sample[][]): Row[]
}
declare module '*/steps/workloads.mjs' {
  interface Workload {
    name: string
  }
  export const workloads: readonly Workload[]
}
declare module '*/steps/report.mjs' {
  interface Round {
    device: string
    threads: number
    samples: { workload: string; times: (readonly [number, number, number])[] }[]
  }
  export function summarize(
    rounds: ReadonlyMap<string, readonly Round[]>,
    workloads: readonly { name: string }[],
  ): Record<string, unknown>[]
}
declare module '*/checkpoint/summary.mjs' {
  interface Save {
    stallMs: number
    before: readonly number[]
    during: readonly number[]
  }
  export function summarize(
    rounds: ReadonlyMap<string, readonly (readonly Save[])[]>,
    bytes: number,
  ): Record<string, unknown>[]
}
declare module '*/generation/command.mjs' {
  export function summarize(
    rounds: ReadonlyMap<string, readonly { cachedMs: number; wholeMs: number | null }[]>,
    sizes: Record<'layers' | 'width' | 'heads' | 'vocabulary' | 'tokens', number>,
  ): Record<string, unknown>[]
}
declare module '*/nodes/summary.mjs' {
  interface Row {
    name: string
    figures: Record<string, number>
    ratios: Record<string, number>
  }
  export function compare(
    rounds: ReadonlyMap<string, readonly (readonly Record<string, string | number | null>[])[]>,
    figure: string,
  ): Row[]
}
declare module '*/training/report.mjs' {
  interface Round {
    system: string
    ranks: number
    device: string
    threads: number
    samples: { workload: string; mode: string; ms: number[] }[]
  }
  export function summarize(rounds: readonly Round[]): Record<string, unknown>[]
}
declare module '*/report.mjs' {
  export function formatRows(rows: readonly object[]): string
}
declare module '*/collectives/systems.mjs' {
  export function findTorch(
    env: NodeJS.ProcessEnv,
  ): Promise<{ systems: object[]; skipped?: string }>
  export function findOpenMpi(
    folder: string,
    env: NodeJS.ProcessEnv,
  ): Promise<{ systems: object[]; skipped?: string }>
}
declare module '*/tuning-table.mjs' {
  interface Timing {
    op: string
    transport: string
    bytes: number
    algorithm: string
    us: number
  }
  interface Best extends Timing {
    others: { algorithm: string; ratio: number }[]
  }
  interface Threshold {
    upTo?: number
    algorithm: string
  }
  export function bestBySize(timings: readonly Timing[]): Best[]
  export function thresholdsOf(bests: readonly { bytes: number; algorithm: string }[]): Threshold[]
  export function tuningTable(bests: readonly Best[], about: object): object
}
declare module '*/curves.mjs' {
  interface Series {
    name: string
    isPeer: boolean
    points: readonly { bytes: number; us: number; busbw: number }[]
  }
  export function drawCurves(title: string, series: readonly Series[]): string
}

declare module '*/where/parts.mjs' {
  import type { Span } from '@tsrun/distributed/record'
  interface RankStep {
    rank: number
    window: { start: number; end: number }
    spans: readonly Span[]
  }
  interface Apart {
    step: number
    hidden: number
    parts: Record<string, number>
  }
  export const partNames: readonly string[]
  export function takeApart(ranks: readonly RankStep[]): Apart[]
  export function middle<T extends Record<string, number>>(samples: readonly T[], total: keyof T): T
}
declare module '*/where/summaries.mjs' {
  interface Moments {
    called: number
    returned: number
    posted: number
    completed: number
    resumed: number
  }
  export function summarizeExchange(
    what: { ranks: number; engine: string },
    exchange: {
      bytes: number
      repeats: readonly (readonly Moments[])[]
      startMs: number
      kernelMs: number
    },
  ): Record<string, unknown>
  export function summarizeSteps(
    what: { workload: string; layout: string; ranks: number; backend: string },
    steps: readonly object[],
  ): Record<string, unknown>
}

declare module '*/training/link.mjs' {
  export function whyNoLink(rate: string): string | undefined
}

declare module '*/bench/commands.mjs' {
  export function runBench(args: readonly string[]): Promise<number>
}
declare module '*/report/page.mjs' {
  export function updatePage(before: string, report: object): string
  export function pictureOf(op: string, machine: object): string
}
declare module '*/scale/links.mjs' {
  export function parseLink(text: string): { latency: number; bytesPerSecond: number }
}
declare module '*/scale/machine.mjs' {
  interface Times {
    smallUs: number
    gapUs: number
    perByteUs: number
    barrierUs: number
  }
  export function costsOf(measured: {
    shared: Times
    sockets: Times
    callUs: number
    waking: number
    combinePerByte: number
    copyPerByte: number
  }): object
}
