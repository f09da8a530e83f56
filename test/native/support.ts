import { readdirSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import { Worker } from 'node:worker_threads'
import { isAvailable } from '@tsrun/native'
import { needing } from '../needs.ts'

/** Node's flags for a fixture in another process, which runs the build. */
export const fixtureFlags = ['--import', 'tsx']

export function fixture(name: string): string {
  return fileURLToPath(new URL(`./fixtures/${name}`, import.meta.url))
}

/** A fixture in another thread; `input` is its `workerData.input`. */
export function startWorker(name: string, input: unknown): Worker {
  return new Worker(fixture('source-worker.mjs'), {
    workerData: { script: new URL(`./fixtures/${name}`, import.meta.url).href, input },
  })
}

const native = isAvailable()

/** Tests of the bindings, which are skipped where there are none. */
export const { describe: describeNative } = needing(
  native.available,
  `bindings (${native.available ? '' : native.reason})`,
)

/** Runs `attempt` so often that what it leaves open shows. */
export function expectNothingLeftOpen(attempt: () => void): void {
  const openFiles = (): number => readdirSync('/proc/self/fd').length
  const before = openFiles()
  for (let i = 0; i < 50; i++) attempt()
  expect(openFiles() - before).toBeLessThan(50)
}
