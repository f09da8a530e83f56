import { parentPort, workerData } from 'node:worker_threads'
import { startStoreServer } from '@tsrun/store'

/*
 * The store of a job without tsrun, in a thread of rank 0, so that it answers while the main thread
 * blocks in an operation.
 */

const { host, token } = workerData as { host: string; token: string }
const server = await startStoreServer({ host, port: 0, token })
parentPort?.once('message', () => {
  void server.close().then(() => parentPort?.close())
})
parentPort?.postMessage(server.endpoint.port)
