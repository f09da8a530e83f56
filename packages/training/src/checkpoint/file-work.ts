import { makeUnfinished, prune, publish } from './folders.ts'
import { writeChunks } from './safetensors/chunks.ts'

/** The functions of a save that use the file system. They take and return values that can be cloned. */
export const fileWork = { makeUnfinished, writeChunks, publish, prune }
