import type { Socket } from 'node:net'
import { Connection } from './connection.ts'
import type { StoreData } from './data.ts'
import { decodeClientMessage, encodeMessage } from './protocol.ts'
import { Session } from './session.ts'

/** A client that watches keys but does not read is dropped when this many bytes wait for it. */
const EVENT_BACKLOG_LIMIT = 64 * 1024 * 1024

/** Serves an authenticated socket until it closes; one that breaks the protocol is dropped. */
export function serveConnection(socket: Socket, data: StoreData, onClose: () => void): Connection {
  const session = new Session(data, (message) => {
    const frame = encodeMessage('The answer', message)
    if ('changed' in message && connection.backlog > EVENT_BACKLOG_LIMIT) {
      connection.destroy('it does not read the events it watches')
    } else {
      connection.send(frame)
    }
  })
  const connection = new Connection(
    socket,
    {
      onFrame: (frame) => {
        session.handle(decodeClientMessage(frame))
      },
      onClose: () => {
        session.close()
        onClose()
      },
    },
    true,
  )
  connection.start()
  return connection
}
