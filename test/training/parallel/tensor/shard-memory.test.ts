import { Linear, loadBackend, parallelize, rowParallel, Sequential } from '@tsrun/training'
import { onEach } from '../support/on-each.ts'

it('parallelize frees the values of other ranks, also on cpu, where a slice shares the memory of its tensor', async () => {
  await loadBackend('cpu')
  const bytes = await onEach(2, (group) => {
    const model = new Sequential({ last: new Linear({ name: 'last', inputs: 8, outputs: 3 }) })
    const [weight] = parallelize(model, { last: rowParallel() }, group).parameters
    return weight!.value.dataSync().buffer.byteLength
  })
  expect(bytes).toEqual([48, 48])
})
