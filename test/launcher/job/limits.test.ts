import { availableParallelism } from 'node:os'
import {
  cpuQuota,
  describeLimits,
  memoryLimit,
  type ReadSystemFile,
  usableCores,
} from '../../internals/launcher/job.ts'

const files =
  (of: Record<string, string>): ReadSystemFile =>
  (path) =>
    of[path]

const nothing = files({})
const container = files({
  '/proc/self/cgroup': '0::/',
  '/sys/fs/cgroup/cpu.max': '150000 100000',
  '/sys/fs/cgroup/memory.max': '1073741824',
  '/sys/fs/cgroup/pids.max': '64',
})
const service = files({
  '/proc/self/cgroup': '0::/system.slice/train.service',
  '/sys/fs/cgroup/system.slice/train.service/cpu.max': '50000 100000',
  '/sys/fs/cgroup/system.slice/train.service/memory.max': 'max',
  '/proc/self/limits':
    'Max processes             200        400        processes\n' +
    'Max address space         1048576    unlimited  bytes',
})
const inSlice = files({
  '/proc/self/cgroup': '0::/train.slice/a.service',
  '/sys/fs/cgroup/train.slice/a.service/cpu.max': '400000 100000',
  '/sys/fs/cgroup/train.slice/a.service/memory.max': 'max',
  '/sys/fs/cgroup/train.slice/a.service/pids.max': '1000',
  '/sys/fs/cgroup/train.slice/cpu.max': '150000 50000',
  '/sys/fs/cgroup/train.slice/memory.max': '1073741824',
  '/sys/fs/cgroup/train.slice/pids.max': '200',
})
const old = files({
  '/proc/self/cgroup': '3:memory:/job\n2:cpu,cpuacct:/job',
  '/sys/fs/cgroup/cpu/job/cpu.cfs_quota_us': '100000',
  '/sys/fs/cgroup/cpu/job/cpu.cfs_period_us': '50000',
  '/sys/fs/cgroup/memory/job/memory.limit_in_bytes': '9223372036854771712',
})
const unlimited = files({
  '/proc/self/cgroup': '0::/',
  '/sys/fs/cgroup/cpu.max': 'max 100000',
  '/sys/fs/cgroup/pids.max': 'max',
  '/proc/self/limits': 'Max processes             unlimited  unlimited  processes',
})

it.each([
  ['nothing', nothing, undefined, undefined, ''],
  ['a container', container, 1.5, 2 ** 30, ' (pids.max of the cgroup: 64)'],
  ['a service with ulimits', service, 0.5, undefined, ' (ulimit -u: 200, ulimit -v: 1024)'],
  ['a slice around a service', inSlice, 3, 2 ** 30, ' (pids.max of the cgroup: 200)'],
  ['version 1 of cgroups', old, 2, undefined, ''],
  ['a cgroup without limits', unlimited, undefined, undefined, ''],
])('the limits of %s are read', (_, read, quota, memory, text) => {
  expect(cpuQuota(read)).toBe(quota)
  expect(memoryLimit(read)).toBe(memory)
  expect(describeLimits(read)).toBe(text)
})

it('--nproc auto starts no more ranks than the CPU quota allows, but one', () => {
  expect(usableCores(container)).toBe(1)
  expect(usableCores(service)).toBe(1)
  expect(usableCores(nothing)).toBe(availableParallelism())
})
