// What the tests use of scripts/course, which is plain JavaScript.
declare module '*/course/lessons.mjs' {
  type Figures = Readonly<Record<string, unknown>>
  interface Run {
    readonly title: string
    readonly ranks: number
    readonly seconds: number
    readonly figures: Figures | undefined
  }
  interface Machine {
    readonly cores: number
    readonly ranks: number
  }
  export const lessons: readonly { readonly title: string; readonly script: string }[]
  export function readResult(output: string): Figures | undefined
  export function readCourse(text: string, run: Pick<Run, 'title' | 'ranks'>): Figures
  export function rowOf(run: Run, machine: Machine, runs: readonly Run[]): string[]
  export function tableOf(runs: readonly Run[], machine: Machine): string[]
}
