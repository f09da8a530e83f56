import { parentPort, workerData } from 'node:worker_threads'
import { startStoreServer } from '@tsrun/store'

/*
 * Hosts the store of a job without tsrun, in a separate thread of rank 0. The store can then answer
 * while the main thread blocks in an operation.
 */

const { host, token } = workerData as { host: string; token: string }
const server = await startStoreServer({ host, port: 0, token })
parentPort?.once('message', () => {
  void server.close().then(() => parentPort?.close())
})
parentPort?.postMessage(server.endpoint.port)
