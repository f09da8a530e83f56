import { setTimeout as pause } from 'node:timers/promises'
import { setFlagsFromString } from 'node:v8'
import { runInNewContext } from 'node:vm'
import { runWorld } from '@tsrun/distributed'
import { errorOf } from '../../support/outcome.ts'

it("a batch of messages ends at the caller's time-out, even if only the batch refers to the signal", async () => {
  setFlagsFromString('--expose-gc')
  const collecting = setInterval(runInNewContext('gc') as () => void, 20).unref()
  const [error] = await runWorld({ size: 2 }, async (group) => {
    if (group.rank !== 0) {
      await pause(1000, undefined)
      return
    }
    const messages = [{ op: 'recv', buffer: new Float32Array(1), peer: 1 }] as const
    const [work] = group.batchIsendIrecv(messages, { signal: AbortSignal.timeout(200) })
    return await errorOf(() => work!)
  })
  clearInterval(collecting)
  expect(error).toMatchObject({ code: 'ERR_TSR_OPERATION_ABORTED' })
})
