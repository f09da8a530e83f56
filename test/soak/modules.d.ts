// What the tests use of scripts/soak, which is plain JavaScript.
declare module '*/judge.mjs' {
  type Process = 'launcher' | 'rank' | 'survivor'
  interface Sample {
    readonly who: Process
    readonly at: number
    readonly age: number
    readonly mib: number
    readonly threads: number
    readonly descriptors: number
    readonly maps: number
  }
  export function findGrowth(
    samples: readonly Sample[],
    processes: readonly Process[],
    spare?: number,
  ): string[]
  export function tableOf(samples: readonly Sample[]): string[][]
}
