import type { Readable } from 'node:stream'
import { LineSplitter } from '../logs/line-splitter.ts'
import type { ControlMessage } from '../rank/control-message.ts'

/** Reads the control pipe of a rank; what is no message of ours is ignored. */
export function readControlMessages(
  pipe: Readable,
  onMessage: (message: ControlMessage) => void,
): void {
  const splitter = new LineSplitter(1024 * 1024)
  pipe.on('data', (chunk: Buffer) => {
    for (const { text } of splitter.push(chunk)) {
      const message = parse(text)
      if (message !== undefined) onMessage(message)
    }
  })
  // A reset connection says nothing that the end of the process does not.
  pipe.on('error', () => undefined)
}

function parse(text: string): ControlMessage | undefined {
  try {
    const message = JSON.parse(text) as ControlMessage | null
    return message?.kind === 'error' || message?.kind === 'exit' ? message : undefined
  } catch {
    return undefined
  }
}
