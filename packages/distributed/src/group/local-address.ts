import { createSocket } from 'node:dgram'
import { lookup } from 'node:dns/promises'
import { once } from 'node:events'

/**
 * The address of the interface that leads to `host`: the one that peers can reach. Nothing is sent:
 * connecting a UDP socket only asks the routing table.
 */
export async function localAddressTowards(host: string, port: number): Promise<string> {
  const { address, family } = await lookup(host)
  const socket = createSocket(family === 6 ? 'udp6' : 'udp4')
  try {
    socket.connect(port, address)
    await once(socket, 'connect')
    return socket.address().address
  } finally {
    socket.close()
  }
}
