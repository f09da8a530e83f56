// Loaded into the install script of the npm package and its children by NODE_OPTIONS: appends the address and
// the SHA-256 of each download to the file that TSRUN_DOWNLOADS names. The set-up checks the hashes before any
// downloaded code runs.
import { createHash } from 'node:crypto'
import { appendFileSync } from 'node:fs'
import { IncomingMessage } from 'node:http'

const file = process.env['TSRUN_DOWNLOADS']
/** @type {WeakMap<IncomingMessage, import('node:crypto').Hash>} */
const hashes = new WeakMap()
const push = IncomingMessage.prototype.push

// Every chunk of a body passes here, for all code that reads the message.
IncomingMessage.prototype.push = function (chunk, encoding) {
  const hash = hashes.get(this) ?? createHash('sha256')
  hashes.set(this, hash)
  if (chunk !== null) hash.update(chunk)
  else if (file !== undefined && isDownload(this)) {
    const { protocol, host, path } = this.req
    const url = `${protocol}//${host}${path}`
    appendFileSync(file, `${JSON.stringify({ url, sha256: hash.digest('hex') })}\n`)
  }
  return push.call(this, chunk, encoding)
}

/** @param {IncomingMessage & { req?: import('node:http').ClientRequest }} message */
function isDownload({ statusCode = 0, req }) {
  return req?.method === 'GET' && statusCode >= 200 && statusCode < 300
}
