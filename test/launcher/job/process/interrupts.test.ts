import { getEventListeners } from 'node:events'
import { aborted } from '../../../internals/launcher/job.ts'

it('waiting for the abort of a signal leaves no listener behind', async () => {
  const controller = new AbortController()
  const { signal } = controller
  const waiting = aborted(signal)
  controller.abort()
  await waiting
  await aborted(signal)
  expect(getEventListeners(signal, 'abort')).toEqual([])
})
