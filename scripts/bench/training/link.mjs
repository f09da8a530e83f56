import { execFileSync } from 'node:child_process'
import { UsageError } from '../command-line.mjs'

/** How much may pass at once, and how long packets may wait in front of the link. */
const QUEUE = 'burst 1mb latency 400ms'

/**
 * @param {string} option
 * @param {string | undefined} text
 * @returns {string | undefined} a rate as tc understands it
 */
export function readRate(option, text) {
  if (text === undefined || /^[1-9]\d*[mg]bit$/.test(text)) return text
  throw new UsageError(`--${option} must be like 500mbit or 4gbit, not "${text}"`)
}

/**
 * Why no link can be made on this machine; undefined if one can.
 *
 * @param {string} rate
 * @returns {string | undefined}
 */
export function whyNoLink(rate) {
  if (process.platform !== 'linux') return 'no Linux'
  const { command, args } = overLink(rate, { command: 'true', args: [] })
  try {
    execFileSync(command, args, { stdio: ['ignore', 'ignore', 'pipe'] })
    return undefined
  } catch (error) {
    const { stderr, message } = /** @type {Error & { stderr?: Buffer }} */ (error)
    return stderr?.toString().trim().split('\n')[0] || message
  }
}

/**
 * The same command in a new network namespace whose loopback carries at most `rate`, in all directions
 * and for all ranks together. The namespace ends with its processes.
 *
 * @param {string} rate
 * @param {import('../programs.mjs').CommandLine} line
 * @returns {import('../programs.mjs').CommandLine}
 */
export function overLink(rate, { command, args, env }) {
  const script = `ip link set lo up && tc qdisc add dev lo root tbf rate ${rate} ${QUEUE} && exec "$@"`
  // In a new user namespace, any user is root.
  const user = process.getuid?.() === 0 ? [] : ['--user', '--map-root-user']
  return {
    command: 'unshare',
    args: [...user, '--net', 'sh', '-c', script, 'sh', command, ...args],
    env: { ...env, TSRUN_TRANSPORT: 'tcp' },
  }
}
