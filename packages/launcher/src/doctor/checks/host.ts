import { formatBytes } from '../../report/units.ts'
import type { Facts } from '../facts.ts'
import type { Finding } from '../finding.ts'

/** Descriptors that a rank with a few dozen neighbours needs, and its script. */
const FILES = 1024

export function checkNative({ native }: Facts): Finding[] {
  const name = 'koffi'
  if (native.available) {
    return [{ name, state: 'ok', found: 'calls of the C library work' }]
  }
  const advice =
    'Without it messages take Node’s sockets: slower, and no inline engine. ' +
    'npm install koffi (its binary is an optional package: do not omit those); unset TSRUN_NATIVE.'
  return [{ name, state: 'note', found: native.reason, advice }]
}

export function checkSharedMemory({ sharedMemory, native }: Facts): Finding[] {
  const name = 'shared memory'
  const { problem, size, free } = sharedMemory
  if (problem !== undefined) {
    const advice = native.available
      ? 'Ranks of this host talk over TCP. They need memfd_create and /proc/PID/fd of each other: ' +
        'one user, one /proc, no seccomp rule against it.'
      : 'Ranks of this host talk over TCP. It needs koffi.'
    return [{ name, state: 'note', found: problem, advice }]
  }
  const room =
    size === undefined || free === undefined
      ? 'no /dev/shm, not needed'
      : `/dev/shm: ${formatBytes(free)} of ${formatBytes(size)} free`
  const found = `memfd and /proc/PID/fd work; ${room}`
  if (size !== undefined && size < 256 * 2 ** 20) {
    const advice = 'tsrun does without /dev/shm, but MPI may not: docker run --shm-size=1g.'
    return [{ name, state: 'ok', found, advice }]
  }
  return [{ name, state: 'ok', found }]
}

/**
 * With autogroups the kernel shares the cores among sessions: ranks with a session each cannot give
 * the core to each other. Those that koffi serves stay in the session of their launcher.
 */
export function checkScheduler({ autogroups, native }: Facts): Finding[] {
  const name = 'scheduler'
  if (autogroups !== true) return [{ name, state: 'ok', found: 'no autogroups' }]
  if (native.available) {
    return [{ name, state: 'ok', found: 'autogroups, and all ranks in one session' }]
  }
  const found = 'autogroups, and ranks would be in sessions of their own'
  const advice = 'Install koffi, or, as root: sysctl kernel.sched_autogroup_enabled=0.'
  return [{ name, state: 'note', found, advice }]
}

export function checkOpenFiles({ openFiles }: Facts): Finding[] {
  const name = 'open files'
  if (openFiles === undefined) return [{ name, state: 'ok', found: 'limit unknown' }]
  const found = openFiles === Infinity ? 'no limit' : `up to ${openFiles} a process`
  if (openFiles >= FILES) return [{ name, state: 'ok', found }]
  const advice = `ulimit -n ${FILES * 4} before tsrun, or nofile in /etc/security/limits.conf.`
  return [{ name, state: 'note', found, advice }]
}

export function checkThreads({ cores }: Facts): Finding[] {
  const name = 'threads'
  const { allowed, all, quota } = cores
  const of = allowed === all ? '' : ` of ${all}`
  const found = `${allowed}${of} ${all === 1 ? 'core' : 'cores'}; --nproc auto starts ${allowed}`
  if (quota === undefined || quota >= allowed) return [{ name, state: 'ok', found }]
  const time = Number(quota.toFixed(2))
  const advice = `This container gets the time of ${time} cores: --nproc ${Math.max(1, Math.floor(quota))} is enough.`
  return [{ name, state: 'note', found, advice }]
}
