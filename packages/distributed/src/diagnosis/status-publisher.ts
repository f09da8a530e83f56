import { rankStates, slotNumber, type StatusSlot } from '../record/status-slot.ts'
import type { Task } from '../engine/task.ts'
import { bytesOf, type Fingerprint, type Operation } from '../operation.ts'

const RUNNING = rankStates.indexOf('running')
const OPERATION = rankStates.indexOf('operation')

/**
 * Publishes the operations of one thread of this rank on the status page. Uses plain stores and no system
 * calls.
 */
export function publishStatus(slot: StatusSlot, thread: 'engine' | 'caller') {
  const { numbers } = slot
  // Each thread has sums of time and bytes of its own, so that no update is lost.
  const isEngine = thread === 'engine'
  const time = isEngine ? slotNumber.engineTime : slotNumber.callerTime
  const bytes = isEngine ? slotNumber.engineBytes : slotNumber.callerBytes
  // An earlier world of this rank may have used the same group ids.
  numbers[slotNumber.group] = 0

  return {
    abortedBy: () => slot.abortedBy,
    /** @param running - number of running operations of the engine; default: unchanged */
    onStart(
      operation: Operation,
      fingerprint: Fingerprint,
      group: string,
      posted: number,
      running?: number,
    ): void {
      if (numbers[slotNumber.group] !== operation.group + 1) {
        numbers[slotNumber.group] = operation.group + 1
        slot.setText('group', group)
      }
      numbers[slotNumber.kind] = fingerprint.kind
      numbers[slotNumber.root] = fingerprint.root
      numbers[slotNumber.count] = fingerprint.count
      numbers[slotNumber.sequence] = operation.sequence
      numbers[slotNumber.bytes] = bytesOf(operation)
      if (running !== undefined) numbers[slotNumber.running] = running
      if (numbers[slotNumber.state] === RUNNING) {
        numbers[slotNumber.ownTime]! += Math.max(0, posted - numbers[slotNumber.since]!)
      }
      numbers[slotNumber.state] = OPERATION
      numbers[slotNumber.since] = posted
    },
    /**
     * @param started - when the first message of the operation moved; 0 if none has moved; undefined
     * if the operation needs no messages
     * @param running - number of running operations of the engine; default: unchanged
     */
    onSettled(
      operation: Operation,
      posted: number,
      started: number | undefined,
      completed: number,
      running?: number,
    ): void {
      numbers[time]! += completed - posted
      numbers[bytes]! += bytesOf(operation)
      // A failed operation may have moved no message.
      if (started !== undefined) {
        numbers[slotNumber.waitTime]! += (started === 0 ? completed : started) - posted
      }
      if (running !== undefined) numbers[slotNumber.running] = running
      numbers[slotNumber.ended]! += 1
      if (numbers[slotNumber.running] !== 0) return
      numbers[slotNumber.state] = RUNNING
      numbers[slotNumber.since] = completed
    },
    /** Publishes the ranks that the oldest operation waits for. */
    look(running: Iterable<Task>): void {
      const [oldest] = running
      slot.setText('waitsFor', oldest === undefined ? '' : oldest.peers().join(','))
    },
  }
}
