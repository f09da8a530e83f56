import { joinPorts, loadWasm, type Port } from '@tsrun/training/browser'
import { trainRank, type DigitSets, type Layout, type TrainedStep } from './training.ts'

/** What the page tells the worker of a rank first. */
export interface RankStart {
  readonly rank: number
  readonly ports: readonly (Port | undefined)[]
  readonly layout: Layout
  readonly sets: DigitSets
}

/** What the worker of a rank tells the page. After a step, the page answers whether another follows. */
export type RankMessage =
  | { readonly kind: 'step'; readonly step: TrainedStep }
  | { readonly kind: 'done' }
  | { readonly kind: 'failed'; readonly reason: string }

/** Runs a rank in this worker. */
export function serveRank(): void {
  void nextMessage<RankStart>().then(runRank)
}

async function runRank({ rank, ports, layout, sets }: RankStart): Promise<void> {
  const tell = (message: RankMessage): void => {
    postMessage(message)
  }
  try {
    const group = joinPorts({ rank, ports, timeout: 60_000, memory: 32 << 20 })
    await loadWasm({ math: 'exact' })
    await trainRank(group, layout, sets, async (step) => {
      tell({ kind: 'step', step })
      return await nextMessage<boolean>()
    })
    await group.destroy()
    tell({ kind: 'done' })
  } catch (error) {
    tell({ kind: 'failed', reason: `rank ${rank}: ${(error as Error).message}` })
  }
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
