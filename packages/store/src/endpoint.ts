/** Host and port as one text, for messages: `node0:29500`, `[::1]:29500`. */
export function nameEndpoint(host: string, port: number): string {
  return `${host.includes(':') ? `[${host}]` : host}:${String(port)}`
}
