// One rank: scale-rank.mjs OUTPUT TRANSPORT. Ranks exchange messages in pairs, all at the same time.
// A rank alone measures what a call costs.
import { writeFileSync } from 'node:fs'
import { initProcessGroup } from '@tsrun/distributed'
import { percentile } from '../figures.mjs'

const SMALL = 64
/** Two sizes whose difference tells the time of a byte. */
const LARGE = [2 ** 18, 2 ** 22]
const BURST = 64

const [output, transport] = process.argv.slice(2)
const group = await initProcessGroup({ transport, engine: 'inline' })
const buffer = group.alloc('uint8', LARGE.at(-1))
const arriving = group.alloc('uint8', LARGE.at(-1))
const isFirst = group.rank % 2 === 0
const other = isFirst ? group.rank + 1 : group.rank - 1

const times = group.size === 1 ? measureCall() : measureMessages()
if (group.rank === 0) writeFileSync(output, JSON.stringify(times))
await group.destroy()

function measureCall() {
  const part = group.alloc('float32', SMALL / 4)
  return { callUs: repeat(10_000, 2000, () => group.allReduceSync(part)) }
}

function measureMessages() {
  const small = buffer.subarray(0, SMALL)
  const smallUs = repeat(3000, 2000, () => pingPong(small)) / 2
  const [first, second] = LARGE.map((bytes) => repeat(20, 100, () => exchange(bytes)))
  const perByte = (second - first) / (LARGE[1] - LARGE[0])
  const gap = measureGap(smallUs)
  const barrier = repeat(3000, 1000, () => group.barrierSync())
  // Over sockets each byte is copied at both ends, and each rank is both.
  const copies = transport === 'tcp' ? 2 : 1
  return { smallUs, perByteUs: perByte / copies, gapUs: gap, barrierUs: barrier }
}

/** Both send at the same time, as in most collectives: the memory has to serve both. */
function exchange(bytes) {
  const received = group.irecv(arriving.subarray(0, bytes), other)
  const sent = group.isend(buffer.subarray(0, bytes), other)
  received.wait()
  sent.wait()
}

function pingPong(part) {
  if (isFirst) group.sendSync(part, other)
  group.recvSync(part, other)
  if (!isFirst) group.sendSync(part, other)
}

/** The time that each further message takes of those that follow each other at once. */
function measureGap(small) {
  const part = buffer.subarray(0, SMALL)
  const us = repeat(50, 100, () => {
    for (let i = 0; i < BURST; i++) {
      if (isFirst) group.sendSync(part, other)
      else group.recvSync(part, other)
    }
    if (isFirst) group.recvSync(part, other)
    else group.sendSync(part, other)
  })
  return (us - 2 * small) / (BURST - 1)
}

/** The microseconds that it takes, with little of what other programs take: the tenth percentile. */
function repeat(warmUps, repeats, run) {
  const us = []
  for (let i = -warmUps; i < repeats; i++) {
    const start = performance.now()
    run()
    if (i >= 0) us.push((performance.now() - start) * 1e3)
  }
  return percentile(us, 0.1)
}
