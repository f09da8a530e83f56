import { chmodSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { gpusOfHost } from '../../../internals/launcher/job.ts'
import { tsrunHere } from '../../support/in-process.ts'
import { onPlatform } from '../../support/platform.ts'

let folder: string
let tag: string
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'tsrun-gpus-'))
  // All processes of this machine see the claims of a GPU, so each test has GPUs of its own.
  tag = folder.slice(-6)
})
afterEach(() => {
  rmSync(folder, { recursive: true })
})

/** An environment whose nvidia-smi lists `count` GPUs and says that these processes compute on them. */
function withGpus(
  count: number,
  processes: readonly { readonly gpu: number; readonly text: string }[] = [],
  more: Record<string, string> = {},
): Record<string, string> {
  const uuid = (gpu: number): string => `GPU-${tag}-${gpu}`
  const list = Array.from({ length: count }, (_, gpu) => `GPU ${gpu}: H100 (UUID: ${uuid(gpu)})`)
  const uses = processes.map(({ gpu, text }) => `${uuid(gpu)}, ${text}`)
  const path = join(folder, 'nvidia-smi')
  const script = [
    '#!/bin/sh',
    'case $1 in',
    `-L) cat <<'END'\n${list.join('\n')}\nEND`,
    ';;',
    `--query-compute-apps=*) cat <<'END'\n${uses.join('\n')}\nEND`,
    ';;',
    '*) exit 9;;',
    'esac',
  ]
  writeFileSync(path, `${script.join('\n')}\n`)
  chmodSync(path, 0o755)
  return { PATH: `${folder}:${process.env['PATH']!}`, TSRUN_HOME: folder, ...more }
}

/** What a launcher with this many ranks takes, after which it ends. */
async function take(env: Record<string, string>, ranks: number) {
  const claimed = await gpusOfHost(env).claim(ranks)
  claimed.release()
  return { gpus: claimed.gpus, warning: claimed.warning }
}

const busy = { gpu: 0, text: '4711, /usr/bin/python3, 20480' }

it('ranks get GPUs that no other process uses, and the user reads who uses the others', async () => {
  expect(await take(withGpus(3, [busy]), 2)).toEqual({
    gpus: ['1', '2'],
    warning: 'GPU 0 is in use (pid 4711, python3, 20 GiB); the ranks get GPUs 1-2',
  })
})

it('there is no warning if each rank has a GPU of its own', async () => {
  expect(await take(withGpus(2), 2)).toEqual({ gpus: ['0', '1'], warning: undefined })
})

it('ranks share the free GPUs rather than use those of others, with a warning', async () => {
  const { gpus, warning } = await take(withGpus(2, [busy]), 2)
  expect(gpus).toEqual(['1'])
  expect(warning).toMatch(/; the ranks get GPU 1\. 2 ranks share GPU 1, so they take turns;/)
})

it('ranks share GPUs with other processes if all are in use', async () => {
  const { gpus, warning } = await take(withGpus(1, [busy]), 1)
  expect(gpus).toEqual(['0'])
  expect(warning).toMatch(/^GPU 0 is in use \(pid 4711.*\), and the ranks share it; CUDA_VISIBLE/)
})

it('ranks get the GPUs of CUDA_VISIBLE_DEVICES even if they are in use, with a warning', async () => {
  const env = withGpus(3, [busy], { CUDA_VISIBLE_DEVICES: '0,2' })
  const { gpus, warning } = await take(env, 2)
  expect(gpus).toEqual(['0', '2'])
  expect(warning).toMatch(/^GPU 0 is in use .*, and the ranks share it/)
})

it('two launchers that start at the same time take different GPUs', async () => {
  const env = withGpus(4)
  const launchers = [gpusOfHost(env), gpusOfHost(env)]
  // Both have asked nvidia-smi before either claims.
  expect(launchers.map(({ preferred }) => preferred.length)).toEqual([4, 4])
  const claims = await Promise.all(launchers.map((gpus) => gpus.claim(2)))
  const names = claims.flatMap(({ gpus }) => gpus)
  for (const claim of claims) claim.release()
  expect(names.toSorted()).toEqual(['0', '1', '2', '3'])
})

it('a later launcher sees the claims of those that run', async () => {
  const env = withGpus(2)
  const first = await gpusOfHost(env).claim(1)
  expect(gpusOfHost(env).preferred).toEqual(['1'])
  expect(await take(env, 1)).toEqual({
    gpus: ['1'],
    warning: 'GPU 0 is in use (another tsrun has it); the ranks get GPU 1',
  })
  first.release()
  expect(gpusOfHost(env).preferred).toEqual(['0', '1'])
})

it('where the kernel knows no abstract sockets, GPUs are not claimed', async () => {
  const env = withGpus(1)
  const first = await onPlatform('darwin', () => gpusOfHost(env).claim(1))
  expect(await take(env, 1)).toEqual({ gpus: ['0'], warning: undefined })
  first.release()
})

it('processes whose memory is unknown do not count, as on Windows', () => {
  const env = withGpus(1, [{ gpu: 0, text: '88, explorer.exe, [N/A]' }])
  expect(gpusOfHost(env).all.map(({ use }) => use)).toEqual([undefined])
})

it.each([
  ['3', /^tsrun: CUDA_VISIBLE_DEVICES names GPU 3, but this host has GPUs 0-1 \(nvidia-smi -L\)/],
  ['0,GPU-none', /CUDA_VISIBLE_DEVICES names GPU-none, but this host has GPUs 0-1/],
])(
  'tsrun refuses CUDA_VISIBLE_DEVICES=%s if the host has no such GPU',
  async (visible, message) => {
    const env = withGpus(2, [], { CUDA_VISIBLE_DEVICES: visible })
    const { code, stderr } = await tsrunHere(['--dry-run', '--no-python', 'sh'], { env })
    expect({ code, stderr }).toEqual({ code: 2, stderr: expect.stringMatching(message) })
  },
)

it.each(['0', '1', '', '-1', 'NoDevFiles', 'MIG-GPU-a/1/0'])(
  'tsrun accepts CUDA_VISIBLE_DEVICES=%j',
  async (visible) => {
    const env = withGpus(2, [], { CUDA_VISIBLE_DEVICES: visible })
    expect(await tsrunHere(['--dry-run', '--no-python', 'sh'], { env })).toMatchObject({ code: 0 })
  },
)

it('tsrun accepts the beginning of a UUID, as CUDA does', async () => {
  const env = withGpus(2, [], { CUDA_VISIBLE_DEVICES: `GPU-${tag}` })
  expect(await tsrunHere(['--dry-run', '--no-python', 'sh'], { env })).toMatchObject({ code: 0 })
})

it('--nproc gpu starts a rank for each GPU that is free', async () => {
  const env = withGpus(3, [busy])
  const { stdout } = await tsrunHere(['--nproc', 'gpu', '--dry-run', '--no-python', 'sh'], { env })
  const found = Array.from(stdout.matchAll(/CUDA_VISIBLE_DEVICES=(\S+)/g), ([, name]) => name)
  expect(found).toEqual(['1', '2'])
})

it('tsrun says which GPUs it avoids, in a program that may compute on GPUs', async () => {
  const env = withGpus(2, [busy])
  const script = 'echo "on GPU $CUDA_VISIBLE_DEVICES"'
  const { code, stdout, stderr } = await tsrunHere(['--no-python', 'sh', '-c', script], { env })
  expect({ code, stdout }).toEqual({ code: 0, stdout: expect.stringContaining('on GPU 1') })
  expect(stderr).toContain(
    'tsrun: GPU 0 is in use (pid 4711, python3, 20 GiB); the ranks get GPU 1',
  )
})
