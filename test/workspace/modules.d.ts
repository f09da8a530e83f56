declare module '*/.dependency-cruiser.mjs' {
  export const packages: Record<string, string[]>
  const configuration: { forbidden: { name: string; comment: string }[] }
  export default configuration
}

declare module '*/architecture/walks.mjs' {
  export interface Step {
    readonly file: string
    readonly functions: readonly string[]
    readonly does: string
    readonly calledBy?: string
    readonly calledAs?: string
    readonly contract?: { readonly file: string; readonly name: string }
  }
  export interface Walk {
    readonly name: string
    readonly title: string
    readonly bound: number
    readonly steps: readonly Step[]
  }
  export const walks: readonly Walk[]
}

declare module '*/architecture/check-walk.mjs' {
  import type { Walk } from '*/architecture/walks.mjs'
  export function problemsOf(
    root: string,
    walk: Walk,
    imports: readonly { from: string; to: string; typeOnly: boolean }[],
  ): string[]
}

declare module '*/architecture/declarations.mjs' {
  export function placesOf(root: string, files: readonly string[], collective: string): string[]
}
