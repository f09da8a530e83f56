import { parentPort, workerData } from 'node:worker_threads'
import { startStoreServer } from '@tsrun/store'

/*
 * The store of a job that tsrun has not launched, in a thread of rank 0: it answers while the main
 * thread blocks in an operation.
 */

const { host, token } = workerData as { host: string; token: string }
const server = await startStoreServer({ host, port: 0, token })
parentPort?.once('message', () => {
  void server.close().then(() => parentPort?.close())
})
parentPort?.postMessage(server.endpoint.port)
