declare module '*/.dependency-cruiser.mjs' {
  export const packages: Record<string, string[]>
  interface Side {
    readonly path?: string | readonly string[]
    readonly pathNot?: string
  }
  const configuration: {
    forbidden: { name: string; comment: string; from: { path?: string }; to: Side }[]
  }
  export default configuration
}

declare module '*/scripts/pictures.mjs' {
  export const pictures: Readonly<Record<string, () => string | Promise<string>>>
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
    readonly goal: number
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

declare module '*/architecture/syntax.mjs' {
  import type { SourceFile } from 'typescript'
  export function parse(path: string): SourceFile
  export function tokensOf(source: SourceFile): number
  export function exportsOf(path: string): { name: string; isType: boolean }[]
  export function hasProgramInString(source: SourceFile): boolean
  export function implementationsOf(sources: readonly SourceFile[], name: string): string[]
  export function interfacesWith(sources: readonly SourceFile[], property: string): string[]
}

declare module '*/lint/prose.mjs' {
  export function phrasesIn(text: string): { readonly found: string; readonly advice: string }[]
}
