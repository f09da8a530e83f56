import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { MessageChannel } from 'node:worker_threads'
import { inWriter, startWriter } from '../../internals/training.ts'
import { makeFolder, removeFolders } from './support/folder.ts'

afterEach(removeFolders)

it('the calls of a thread that ends fail, and the next call starts another thread', async () => {
  const { port1, port2 } = new MessageChannel()
  const writing = inWriter('writeChunks', [port2, 1, undefined], [port2])
  const failed = writing.catch(String)
  await startWriter().worker.terminate()
  expect(await failed).toBe('Error: the thread that writes checkpoints has ended')
  port1.close()

  const folder = makeFolder()
  const path = join(folder, '.step-00000001.unfinished')
  expect(await inWriter('makeUnfinished', [folder, path])).toBe(1)
})

it('errors of the thread have their codes', async () => {
  const file = join(makeFolder(), 'file')
  writeFileSync(file, '')
  await expect(inWriter('prune', [file, 1])).rejects.toMatchObject({ code: 'ENOTDIR' })
})
