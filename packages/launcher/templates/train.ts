// Trains a network of 4 layers on MNIST. Every rank has the whole network and a share of each batch.
//
//   npm run train                        two ranks on this host
//   npx tsrun --nproc 4 train.ts         four ranks
//   STEPS=500 npm run train              more steps
import { destroyProcessGroup } from '@tsrun/distributed'
import { Adam, mnist, shardedMLP, trainer } from '@tsrun/training'

const steps = Number(process.env['STEPS'] ?? 100)

const run = await trainer(shardedMLP({ layers: 4 }), { optimizer: new Adam() })
const { losses, evaluations } = await run.fit(mnist({ split: 'train' }), {
  batch: 128,
  steps,
  evaluate: { data: mnist({ split: 'test' }) },
})
if (run.rank === 0) {
  const accuracy = evaluations.at(-1)?.accuracy ?? 0
  console.log(`loss ${losses.at(-1)}, test accuracy ${(100 * accuracy).toFixed(1)} %`)
}
run.dispose()
await destroyProcessGroup()
