import { monotonicNow } from '@tsrun/core'
import { StatusSlot } from '../record/status-slot.ts'
import { refuses } from '../engine/group.ts'
import { spaces } from '../engine/messages/frame.ts'
import type { EngineObserver, ObservedEngine } from '../engine/observer.ts'
import { sentenceOf } from '../engine/task-errors.ts'
import type { Task } from '../engine/task.ts'
import { isCollective } from '../operation.ts'
import { recordCallSites } from './call-sites.ts'
import { ANY_PEER, NO_PEER } from './flight-recorder.ts'
import { Journal, type SharedJournal } from './journal.ts'
import { decodeNotice, encodeNotice } from './notices.ts'
import { watchStalls } from './stalls.ts'
import { publishStatus } from './status-publisher.ts'

/** Milliseconds between two polls of the running operations. */
const PERIOD = 100
/** Milliseconds between two dumps, because many operations may fail at once. */
const DUMP_PERIOD = 1000
/** Size in bytes of the text that lists the awaited ranks. */
const PEERS_BYTES = 64

/** Observes an engine for the flight recorder, the status page and the stall warnings. */
export function diagnose(
  shared: SharedJournal,
  { groups, running, links }: ObservedEngine,
): EngineObserver {
  const { page, settings, rank } = shared
  const journal = new Journal(shared, shared)
  const { recorder } = journal
  const publisher = page && publishStatus(new StatusSlot(page.buffer, page.index), 'engine')
  const sites = settings.detail ? recordCallSites(rank) : undefined
  const stalls = watchStalls({
    patience: settings.stallWarning,
    links,
    labelOf: ({ operation }) => recorder.textOf(operation.flight, 'label'),
  })
  let nextLook = 0
  let lastDump = -Infinity
  let pendingDump: string | undefined

  /**
   * Tells all members where this rank called a collective. Each link sends the notice before the
   * first message of the collective. The peer therefore knows the call site when a message does not
   * match.
   */
  const tellSite = ({ operation, group }: Task): void => {
    const site = recorder.textOf(operation.flight, 'site')
    if (site === undefined) return
    const { sequence } = operation
    const address = { space: spaces.collective, group: group.id, sequence }
    const notice = encodeNotice({ kind: 'site', site })
    for (const peer of group.ranks) links[peer]?.sendNotice(address, notice)
    sites?.set(group.id, sequence, rank, site)
  }

  const dumpIfDue = (now: number): void => {
    if (pendingDump === undefined || now - lastDump < DUMP_PERIOD) return
    lastDump = now
    for (const task of running) writePeers(task)
    journal.dumpFailure(pendingDump, groups)
    pendingDump = undefined
  }

  /** Describes the running operation of this rank, or else the last one. */
  const describePlace = (): string => {
    const names = [...running]
      .slice(0, 3)
      .map((task) => `${task.describe()} of group ${task.group.name}`)
    if (names.length > 0) return `now in ${names.join(', ')}`
    const last = recorder.lastEnded()
    if (last === undefined) return 'in no operation so far'
    const seconds = ((monotonicNow() - last.completed) / 1000).toFixed(1)
    const group = groups.get(last.group)?.name ?? `#${last.group}`
    const { name, operation, sequence, peer } = last
    const other =
      peer === undefined ? '' : ` ${name === 'send' ? 'to' : 'from'} rank ${peer} of the world`
    return `in no operation; its last was ${operation} #${sequence} of group ${group}${other}, ${seconds} s ago`
  }

  const writePeers = (task: Task): void => {
    const text = task.peers().join(',')
    const whole = text.length <= PEERS_BYTES ? text.length : text.lastIndexOf(',', PEERS_BYTES)
    recorder.write(task.operation.flight, 'peers', text.slice(0, whole))
  }

  return {
    onStart: (task) => {
      const { operation, group, fingerprint, posted } = task
      const isMessage = !isCollective(operation)
      // The calling thread had begun this operation before this rank learned that the group failed.
      const isRefused = refuses(group, operation) && operation.begun === 0
      const peer = isMessage ? (group.ranks[operation.peer] ?? ANY_PEER) : NO_PEER
      recorder.start(operation, fingerprint, peer, posted, isRefused ? 'refused' : 'running')
      if (!isRefused) publisher?.onStart(operation, fingerprint, group.name, posted, running.size)
      if (sites !== undefined && !isMessage) tellSite(task)
    },
    onSettled: (task) => {
      const { operation, posted, started, completed, error } = task
      publisher?.onSettled(operation, posted, started, completed, running.size)
      journal.counters.publish(links)
      if (error !== undefined) writePeers(task)
      recorder.end(operation.flight, started, completed, error?.code)
    },
    onFailure: (error) => {
      const { code } = error
      if (code === 'ERR_TSR_OPERATION_ABORTED' || code === 'ERR_TSR_GROUP_DESTROYED') return
      pendingDump ??= sentenceOf(error)
      dumpIfDue(monotonicNow())
    },
    onNotice: (link, address, payload) => {
      const notice = decodeNotice(payload)
      if (notice?.kind === 'question') {
        link.sendNotice(address, encodeNotice({ kind: 'answer', text: describePlace() }))
      } else if (notice?.kind === 'answer') {
        stalls.onAnswer(link.peer, notice.text, monotonicNow())
      } else if (notice?.kind === 'site') {
        sites?.set(address.group, address.sequence, link.peer, notice.site)
      }
    },
    siteOf: (group, sequence, of) => sites?.siteOf(group, sequence, of),
    abortedBy: () => publisher?.abortedBy(),
    look: (now) => {
      if (now < nextLook) return
      nextLook = now + PERIOD
      dumpIfDue(now)
      journal.counters.publish(links)
      for (const task of running) {
        if (now - task.posted < PERIOD) continue
        writePeers(task)
        recorder.begin(task.operation.flight, task.started)
      }
      stalls.look(running, now)
      publisher?.look(running)
    },
  }
}
