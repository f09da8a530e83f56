// Makes connections that belong to no job: flood.mjs HOST PORT COUNT RATE. Prints one JSON object at the
// end: how many were made, how many the other side ended, and how many it admitted, which should be none.
import { createHmac, randomBytes } from 'node:crypto'
import { connect } from 'node:net'
import { setTimeout as wait } from 'node:timers/promises'

const [host = '', ...numbers] = process.argv.slice(2)
const [port = 0, count = 0, rate = 0] = numbers.map(Number)

const HELLO_BYTES = 40
const PROOF_BYTES = 32

/** A hello of the version of this checkout, with a nonce of its own. */
function hello() {
  const bytes = randomBytes(HELLO_BYTES)
  bytes.write('TSRN', 0, 'latin1')
  bytes.writeUInt16LE(3, 4)
  bytes.writeUInt16LE(0, 6)
  return bytes
}

/**
 * What unauthenticated clients send, in turn.
 *
 * @type {readonly (() => Buffer)[]}
 */
const kinds = [
  () => Buffer.alloc(0),
  () => randomBytes(200),
  () => Buffer.from('GET / HTTP/1.1\r\nHost: job\r\n\r\n'),
  () => hello().subarray(0, 5),
  // a proof made with another token, and the rank that it claims to be
  () => Buffer.concat([hello(), createHmac('sha256', 'guess').digest(), Buffer.of(1, 0, 0, 0)]),
  // the begin of TLS
  () => Buffer.concat([Buffer.of(22, 3, 1, 1, 0), randomBytes(260)]),
]

let [made, ended, admitted, failed] = [0, 0, 0, 0]
let open = 0

/** @param {number} i */
function call(i) {
  const socket = connect({ host, port, noDelay: true })
  let answer = Buffer.alloc(0)
  open++
  socket.on('connect', () => {
    made++
    const bytes = kinds[i % kinds.length]?.() ?? Buffer.alloc(0)
    if (bytes.length > 0) socket.write(bytes)
  })
  socket.on('data', (bytes) => {
    answer = Buffer.concat([answer, bytes])
    // Anything but a hello and a proof of zeros would be said to a member only.
    const proof = answer.subarray(HELLO_BYTES)
    const isHello = answer.subarray(0, 4).toString('latin1') === 'TSRN'
    if (isHello && (proof.length > PROOF_BYTES || proof.some((byte) => byte !== 0))) admitted++
  })
  socket.on('error', () => failed++)
  socket.on('close', () => {
    ended++
    open--
  })
}

const start = performance.now()
for (let i = 0; i < count;) {
  // what is due by now
  const due = Math.min(count, Math.ceil(((performance.now() - start) / 1000) * rate))
  while (i < due) call(i++)
  await wait(2)
}
const seconds = (performance.now() - start) / 1000
process.send?.('made')
// Those that are kept end when their time is over, 5 s.
for (let i = 0; i < 700 && open > 0; i++) await wait(10)
console.log(JSON.stringify({ made, ended, admitted, failed, seconds }))
process.exit(0)
