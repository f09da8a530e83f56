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

declare module '*/scripts/manifests.mjs' {
  export type Manifest = Readonly<Record<string, unknown>>
  export const folders: readonly string[]
  export function readManifest(folder?: string): Manifest & { repository: { url: string } }
  export function addressOf(url: string): string
  export function completed(manifest: Manifest, folder: string, repository: Manifest): Manifest
  export function textOf(manifest: Manifest): string
  export function refusals(manifest: Manifest, address: string): string[]
}

declare module '*/scripts/pictures.mjs' {
  export const pictures: Readonly<Record<string, () => string | Promise<string>>>
}

declare module '*/docs/.vitepress/sidebar.mjs' {
  export const entries: readonly (readonly [path: string, title?: string])[]
}

declare module '*/site/pages.mjs' {
  export function anchorOf(heading: string): string
  export function describeProgram(path: string, source: string, title: string): string
  export function listAssets(): string[]
  export function listPages(): string[]
  export const liveSections: Readonly<Record<string, string>>
  export function renderPage(path: string, title?: string): string
  export function rewriteLinks(markdown: string, path: string): string
  export function sitePathOf(path: string): string
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

declare module '*/scripts/dockerfile.mjs' {
  export interface Instruction {
    readonly name: string
    readonly text: string
  }
  export interface Stage {
    readonly name: string
    readonly base: string
    readonly instructions: readonly Instruction[]
  }
  export function stagesOf(text: string): Stage[]
  export function neededFor(stages: readonly Stage[], target?: string): Stage[]
  export function copyOf(text: string): {
    readonly from: string | undefined
    readonly sources: string[]
    readonly target: string
  }
  export function argumentOf(text: string): Record<string, string>
  export function ignoring(text: string): (path: string) => boolean
}
