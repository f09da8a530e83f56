import { createLogger } from '@tsrun/core'
import { NO_STREAM } from '../engine/messages/frame-writer.ts'
import type { Link } from '../engine/messages/link.ts'
import type { Task } from '../engine/task.ts'
import { encodeNotice } from './notices.ts'

/** Milliseconds that other ranks have to answer which operation they run. */
const ANSWER_TIME = 1000

interface Stall {
  /** How long the operation must wait until the next question and warning, in milliseconds. */
  due: number
  /** When this rank asked the other ranks; undefined if no answer is awaited. */
  asked: number | undefined
}

export interface StallsOptions {
  /** Milliseconds that an operation waits before the first warning; Infinity: never. */
  readonly patience: number
  readonly links: readonly (Link | undefined)[]
  readonly labelOf: (task: Task) => string | undefined
}

/**
 * Warns about operations that wait for a long time. Asks the awaited ranks what they run, and logs
 * the answers. Warns after `patience` milliseconds, and again each time the waiting time has
 * doubled.
 */
export function watchStalls({ patience, links, labelOf }: StallsOptions) {
  const stalls = new WeakMap<Task, Stall>()
  /** The last answer of each rank. */
  const answers = new Map<number, { readonly at: number; readonly text: string }>()

  const warn = (task: Task, peers: readonly number[], asked: number, waited: number): void => {
    const whom = peers.map((peer) => {
      const answer = answers.get(peer)
      const isNew = answer !== undefined && answer.at >= asked
      return `rank ${peer} (${isNew ? answer.text : explainSilence(links[peer])})`
    })
    const name = task.describe()
    const label = labelOf(task)
    const operation = label === undefined ? name : `${name} (${label})`
    const seconds = Number((waited / 1000).toFixed(1))
    const facts = { seconds, waitsFor: peers }
    const waits = whom.length === 0 ? 'its turn' : whom.join(', ')
    createLogger('distributed').warn(
      facts,
      `${operation} of group ${task.group.name} has waited ${seconds} s for ${waits}`,
    )
  }

  return {
    onAnswer: (peer: number, text: string, at: number): void => {
      answers.set(peer, { at, text })
    },
    look: (running: Iterable<Task>, now: number): void => {
      if (patience === Infinity) return
      for (const task of running) {
        const waited = now - task.posted
        if (waited < patience) continue
        const stall = stalls.get(task) ?? { due: patience, asked: undefined }
        stalls.set(task, stall)
        if (waited < stall.due) continue
        const peers = task.peers()
        if (stall.asked === undefined) {
          stall.asked = now
          const question = encodeNotice({ kind: 'question' })
          for (const peer of peers) links[peer]?.sendNotice(NO_STREAM, question)
          continue
        }
        const { asked } = stall
        const isAnswered = peers.every((peer) => (answers.get(peer)?.at ?? 0) >= asked)
        if (!isAnswered && now - asked < ANSWER_TIME) continue
        warn(task, peers, asked, waited)
        stall.asked = undefined
        stall.due = 2 * stall.due
      }
    },
  }
}

function explainSilence(link: Link | undefined): string {
  if (link?.closed !== undefined) return `it has ${link.closed === 'left' ? 'left' : 'been lost'}`
  return 'no answer: it computes with the inline engine, or is stopped'
}
