// One rank of a job that works until it is ended: it says its process number once all have begun.
import { initProcessGroup } from '@tsrun/distributed'

const group = await initProcessGroup()
const buffer = group.alloc('float32', 1024)
await group.allReduce(buffer)
console.log(`working ${process.pid}`)
for (;;) await group.allReduce(buffer)
