/** A tensor backend that is loaded and current. */
export interface Backend {
  readonly name: BackendName
}

export type BackendName = 'wasm' | 'cpu'
