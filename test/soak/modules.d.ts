// What the tests use of scripts/soak, which is plain JavaScript.
declare module '*/judge.mjs' {
  interface Sample {
    readonly who: 'launcher' | 'rank'
    readonly at: number
    readonly age: number
    readonly mib: number
    readonly threads: number
    readonly descriptors: number
    readonly maps: number
  }
  export function findGrowth(samples: readonly Sample[]): string[]
  export function tableOf(samples: readonly Sample[]): string[][]
}
