import {
  joinPorts,
  loadWasm,
  type AlgorithmName,
  type Port,
  type ProcessGroup,
} from '@tsrun/training/browser'
import { recordRank, type CollectiveName, type Listen } from './collective.ts'
import { measureRank } from './ping-pong.ts'
import { trainRank, type DigitSets, type Layout } from './training.ts'

/** What the ranks do. */
export type RankTask =
  | { readonly kind: 'train'; readonly layout: Layout; readonly sets: DigitSets }
  | { readonly kind: 'record'; readonly name: CollectiveName; readonly algorithm: AlgorithmName }
  | { readonly kind: 'measure' }

/** The first message from the page to the worker of a rank. */
export interface RankStart {
  readonly rank: number
  readonly ports: readonly (Port | undefined)[]
  readonly task: RankTask
}

/** A message from the worker of a rank to the page. The page answers each `told`. */
export type RankMessage =
  | { readonly kind: 'told'; readonly value: unknown }
  | { readonly kind: 'done'; readonly result: unknown }
  | { readonly kind: 'failed'; readonly reason: string }

/** Runs a rank in this worker. */
export function serveRank(): void {
  void nextMessage<RankStart>().then(runRank)
}

async function runRank({ rank, ports, task }: RankStart): Promise<void> {
  try {
    const listeners: Parameters<Listen>[0][] = []
    const group = joinPorts({
      rank,
      ports,
      timeout: 60_000,
      memory: 32 << 20,
      ...(task.kind === 'record' && {
        onMessage: (event) => {
          for (const listener of listeners) listener(event)
        },
      }),
    })
    const result = await runTask(group, task, (listener) => {
      listeners.push(listener)
    })
    await group.destroy()
    post({ kind: 'done', result })
  } catch (error) {
    post({ kind: 'failed', reason: `rank ${rank}: ${(error as Error).message}` })
  }
}

async function runTask(group: ProcessGroup, task: RankTask, listen: Listen): Promise<unknown> {
  switch (task.kind) {
    case 'train':
      await loadWasm({ math: 'exact' })
      await trainRank(group, task.layout, task.sets, tell<boolean>)
      return undefined
    case 'record':
      return await recordRank(group, task, listen, () => performance.timeOrigin + performance.now())
    case 'measure':
      await measureRank(group, tell<undefined>)
      return undefined
  }
}

/** Sends a value to the page and returns its answer. */
async function tell<Answer>(value: unknown): Promise<Answer> {
  post({ kind: 'told', value })
  return await nextMessage<Answer>()
}

function post(message: RankMessage): void {
  postMessage(message)
}

function nextMessage<T>(): Promise<T> {
  return new Promise((resolve) => {
    addEventListener(
      'message',
      (event: MessageEvent<T>) => {
        resolve(event.data)
      },
      { once: true },
    )
  })
}
