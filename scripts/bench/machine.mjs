import { availableParallelism, cpus, release, totalmem, type } from 'node:os'

/** @typedef {ReturnType<typeof describeMachine>} Machine */

/** What a reader has to know about the machine that measured. */
export function describeMachine() {
  return {
    cpu: cpus()[0]?.model.trim() || 'unknown CPU',
    cores: availableParallelism(),
    memoryGiB: Number((totalmem() / 2 ** 30).toFixed(1)),
    system: `${type()} ${release()} ${process.arch}`,
    node: process.version,
  }
}
