import { connectPorts } from '@tsrun/training/browser'
import type { DigitSets, Layout, TrainedStep } from './training.ts'
import type { RankMessage, RankStart } from './worker.ts'

/** Runs `trainRank` on all ranks, each in a worker of its own. The workers share no memory. */
export async function trainInWorkers(
  layout: Layout,
  sets: DigitSets,
  onStep: (step: TrainedStep) => Promise<boolean>,
): Promise<void> {
  // The page is one file, so the program of a worker is that of the page.
  const program = document.getElementById('program')!.textContent
  const url = URL.createObjectURL(new Blob([program], { type: 'text/javascript' }))
  const workers = connectPorts(layout.ranks).map((ports, rank) => {
    const worker = new Worker(url)
    const start: RankStart = { rank, ports, layout, sets }
    worker.postMessage(
      start,
      ports.filter((port) => port !== undefined),
    )
    return worker
  })
  try {
    await Promise.all(workers.map((worker) => endOf(worker, onStep)))
  } finally {
    for (const worker of workers) worker.terminate()
    URL.revokeObjectURL(url)
  }
}

/** Waits until a rank has finished. */
async function endOf(
  worker: Worker,
  onStep: (step: TrainedStep) => Promise<boolean>,
): Promise<void> {
  await new Promise<void>((resolve, reject) => {
    worker.addEventListener('error', ({ message }) => {
      reject(new Error(message))
    })
    worker.addEventListener('message', ({ data }: MessageEvent<RankMessage>) => {
      if (data.kind === 'done') resolve()
      else if (data.kind === 'failed') reject(new Error(data.reason))
      else
        void onStep(data.step).then((goesOn) => {
          worker.postMessage(goesOn)
        })
    })
  })
}
