/**
 * The script of a rank that `spawn` starts: takes its task from the store, calls the function and
 * leaves the value there.
 */
import { readRankEnvironment } from '@tsrun/core'
import { connectStore } from '@tsrun/store'
import { putParcel, takeParcel, TASK, valueOf } from '../library/parcels.ts'
import { findFunction } from '../library/find-function.ts'
import type { Task } from '../library/task.ts'

const { rank, masterAddr, masterPort, token } = readRankEnvironment()!
const store = await connectStore({ host: masterAddr, port: masterPort, token })
const { task, args } = (await takeParcel(store, TASK)) as { task: Task; args: unknown[] }
const program = await findFunction(task)
const value = await program(rank, ...args)
await putParcel(store, valueOf(rank), value)
await store.close()
