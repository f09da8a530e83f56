import { readdirSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import { Worker } from 'node:worker_threads'
import { isAvailable } from '@tsrun/native'

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

/** Tests of the bindings; where there are none, the name says why they are skipped. */
export function describeNative(name: string, body: () => void): void {
  const native = isAvailable()
  if (native.available) describe(name, body)
  else describe.skip(`${name} (skipped: ${native.reason})`, body)
}

/** Runs `attempt` so often that what it leaves open shows. */
export function expectNothingLeftOpen(attempt: () => void): void {
  const openFiles = (): number => readdirSync('/proc/self/fd').length
  const before = openFiles()
  for (let i = 0; i < 50; i++) attempt()
  expect(openFiles() - before).toBeLessThan(50)
}
