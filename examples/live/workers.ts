import { connectPorts, type AlgorithmName } from '@tsrun/training/browser'
import {
  mergeRecords,
  type CollectiveName,
  type RankRecord,
  type RecordedCollective,
} from './collective.ts'
import type { MessageTime } from './ping-pong.ts'
import type { DigitSets, Layout, TrainedStep } from './training.ts'
import type { RankMessage, RankStart, RankTask } from './worker.ts'

/** Runs `trainRank` on all ranks, each in a worker of its own. */
export async function trainInWorkers(
  layout: Layout,
  sets: DigitSets,
  onStep: (step: TrainedStep) => Promise<boolean>,
): Promise<void> {
  await runInWorkers(layout.ranks, { kind: 'train', layout, sets }, onStep)
}

/** Records a collective whose ranks are in workers. */
export async function recordInWorkers(
  name: CollectiveName,
  algorithm: AlgorithmName,
  ranks: number,
): Promise<RecordedCollective> {
  const task = { kind: 'record', name, algorithm } as const
  return mergeRecords(await runInWorkers<RankRecord>(ranks, task))
}

/** Measures messages between two workers. */
export async function pingPongInWorkers(onMeasured: (time: MessageTime) => void): Promise<void> {
  await runInWorkers(2, { kind: 'measure' }, onMeasured)
}

/**
 * Runs a task on all ranks, each in a worker of its own. The workers share no memory.
 *
 * @param onTold - returns the answer to a value that a rank sends
 * @returns the result of each rank
 */
async function runInWorkers<Result>(
  ranks: number,
  task: RankTask,
  onTold?: (told: never) => unknown,
): Promise<Result[]> {
  // The page is one file, so the program of a worker is that of the page.
  const program = document.getElementById('program')!.textContent
  const url = URL.createObjectURL(new Blob([program], { type: 'text/javascript' }))
  const workers = connectPorts(ranks).map((ports, rank) => {
    const worker = new Worker(url)
    const start: RankStart = { rank, ports, task }
    worker.postMessage(
      start,
      ports.filter((port) => port !== undefined),
    )
    return worker
  })
  const answer = async (worker: Worker, told: unknown): Promise<void> => {
    worker.postMessage(await onTold?.(told as never))
  }
  try {
    return (await Promise.all(workers.map((worker) => endOf(worker, answer)))) as Result[]
  } finally {
    for (const worker of workers) worker.terminate()
    URL.revokeObjectURL(url)
  }
}

/** Waits until a rank has finished, and returns its result. */
async function endOf(
  worker: Worker,
  answer: (worker: Worker, told: unknown) => Promise<void>,
): Promise<unknown> {
  return await new Promise((resolve, reject) => {
    worker.addEventListener('error', ({ message }) => {
      reject(new Error(message))
    })
    worker.addEventListener('message', ({ data }: MessageEvent<RankMessage>) => {
      if (data.kind === 'done') resolve(data.result)
      else if (data.kind === 'failed') reject(new Error(data.reason))
      else answer(worker, data.value).catch(reject)
    })
  })
}
