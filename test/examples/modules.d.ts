// What the tests use of scripts/course, which is plain JavaScript.
declare module '*/course/lessons.mjs' {
  export const lessons: readonly { readonly title: string; readonly script: string }[]
}

declare module '*/course/verdict.mjs' {
  type Figures = Readonly<Record<string, unknown>>
  interface Run {
    readonly title: string
    readonly ranks: number
    readonly seconds: number
    readonly repeats: readonly Figures[]
  }
  interface Machine {
    readonly cores: number
    readonly ranks: number
  }
  type Verdict = 'met' | 'MISSED' | 'WRONG' | 'FAILED' | ''
  interface Judged {
    readonly theory?: string
    readonly measured: string
    readonly bound?: string
    readonly verdict: Verdict
    readonly loss?: number
  }
  export function readResult(output: string): Figures | undefined
  export function medianOf<T>(values: readonly T[]): T
  export function judge(run: Run, machine: Machine, runs: readonly Run[]): Judged
  export function exitCodeOf(verdicts: readonly Verdict[], isChecked: boolean): 0 | 1
  export function tableOf(runs: readonly Run[], machine: Machine): string[]
  export function recordIn(
    page: string,
    where: string,
    runs: readonly Run[],
    machine: Machine,
  ): string
}
