// What the tests use of scripts/parity, which is plain JavaScript.
declare module '*/parity/compare.mjs' {
  interface Errors {
    loss: number
    gradients: number
    norm: number
    parameters: number
  }
  interface Piece {
    name: string
    shape: number[]
    box?: object
    range?: number[]
    values: Float32Array
  }
  type Tensors = Map<string, Float32Array>
  export function noErrors(): Errors
  export function addStep(errors: Errors, found: object, wanted: object): void
  export function isClose(errors: Errors): boolean
  export function assemble(pieces: readonly Piece[]): Tensors
  export function covers(pieces: readonly Omit<Piece, 'values'>[], wanted: Tensors): boolean
  export function isSame(a: Tensors, b: Tensors): boolean
}
declare module '*/parity/configurations.mjs' {
  export const configurations: readonly { name: string; models?: readonly string[] }[]
}
declare module '*/parity/traffic.mjs' {
  export function differences(found: object, expected: object): string[]
}
