import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { loadBackend, tf } from '@tsrun/training'
import { makeFolder, removeFolders } from './folder.ts'
import { hold, inLayout, layouts, type Held } from './held.ts'

export function expectHeld(ranks: readonly Held[]): void {
  for (const { atOnce, later, trained, leaked } of ranks) {
    expect(later).toEqual(atOnce)
    expect(trained).not.toEqual(atOnce)
    expect(leaked).toBe(0)
  }
}

/** The tensors of a checkpoint, with the checksum of each piece. */
const contentsOf = (path: string): unknown => {
  const index = JSON.parse(readFileSync(join(path, 'index.json'), 'utf8')) as {
    contents: { tensors: unknown }
  }
  return index.contents.tensors
}

/** Whether to train on a backend in a layout, by their places in the lists. */
type Choice = (backend: number, layout: number) => boolean

/** Every second layout on wasm, and the others on cpu. */
export const isUsual: Choice = (backend, layout) => (backend + layout) % 2 === 0

/** Compares values that are read while training continues with those that are read at once. */
export function describeBackground(isChosen: Choice): void {
  afterEach(removeFolders)

  describe.each([
    { backend: 'wasm', i: 0 },
    { backend: 'cpu', i: 1 },
  ] as const)('on $backend', ({ backend, i }) => {
    const chosen = layouts.filter((_, layout) => isChosen(i, layout))

    beforeAll(() => loadBackend(backend))

    it.each(chosen)(
      'held values stay as they are while training continues: %s',
      async (...layout) => {
        expectHeld(await hold(layout))
      },
    )

    it.each(chosen)('a background save has the values of its step: %s', async (...layout) => {
      const folder = makeFolder()
      const before = tf.memory().numTensors
      const paths = await inLayout(layout, async (run, step) => {
        const { path } = await run.save(join(folder, 'at once'))
        const { done, path: later } = await run.save(join(folder, 'later'), { background: true })
        for (let i = 0; i < 3; i++) await step()
        await done
        return [path, later].map(contentsOf)
      })
      for (const [atOnce, later] of paths) expect(later).toEqual(atOnce)
      expect(tf.memory().numTensors).toBe(before)
    })
  })
}
