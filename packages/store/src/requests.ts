import type { TsrErrorCode, TsrError } from '@tsrun/core'

/** What a client asks of the store, one variant an operation. */
export type Request =
  | {
      readonly op: 'set'
      readonly key: string
      readonly value: Uint8Array
      readonly timeToLive?: number
      readonly whileConnected?: true
    }
  | { readonly op: 'get'; readonly key: string }
  | { readonly op: 'wait'; readonly keys: readonly string[] }
  | { readonly op: 'check'; readonly keys: readonly string[] }
  | { readonly op: 'add'; readonly key: string; readonly amount: number }
  | {
      readonly op: 'compareSet'
      readonly key: string
      readonly expected?: Uint8Array
      readonly desired: Uint8Array
    }
  | { readonly op: 'append'; readonly key: string; readonly value: Uint8Array }
  | { readonly op: 'delete'; readonly key: string }
  | { readonly op: 'list'; readonly key: string }
  | { readonly op: 'queuePush'; readonly key: string; readonly value: Uint8Array }
  | { readonly op: 'queuePop'; readonly key: string }
  | { readonly op: 'queueLength'; readonly key: string }
  /** Events carry the id of this request. */
  | { readonly op: 'watch'; readonly key: string }
  | { readonly op: 'unwatch'; readonly watch: number }

export type Operation = Request['op']

/** What each operation answers. */
export interface Results {
  set: null
  get: Uint8Array
  wait: null
  check: boolean
  add: number
  compareSet: { success: boolean; value: Uint8Array | undefined }
  append: number
  delete: boolean
  list: string[]
  queuePush: number
  queuePop: Uint8Array
  queueLength: number
  watch: null
  unwatch: null
}

/** Client to server: a request, or the wish to end the wait of an earlier one. */
export type ClientMessage = { readonly id: number } & (Request | { readonly op: 'cancel' })

/** The one answer to the request `id`. */
export type Answer =
  | { readonly result: Results[Operation] }
  | { readonly code: TsrErrorCode; readonly facts: TsrError['facts'] }
  /** The wait was cancelled while these keys were missing. */
  | { readonly missing: readonly string[] }

/** A change of the key that the request `id` watches; no value: deleted or expired. */
export interface Change {
  readonly changed: true
  readonly value?: Uint8Array
}

/** Server to client. */
export type ServerMessage = { readonly id: number } & (Answer | Change)
