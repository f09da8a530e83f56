import { execFileSync } from 'node:child_process'
import { existsSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { jest } from '@jest/globals'
import { announcements, cleanEnvironment, until, untilGone } from '../launcher/support/tsrun.ts'
import { Cluster, endClusters, type HostRun, onHosts, root } from './support/cluster.ts'

jest.setTimeout(120_000)

const sshd = '/usr/sbin/sshd'
const hasSshd = existsSync(sshd)
if (!hasSshd) console.warn('skipped: no sshd')
const onSsh = hasSshd ? onHosts : it.skip
const bin = [process.execPath, `${root}packages/launcher/bin/tsrun.js`]

let folder: string
let hostfile: string
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'tsrun-ssh-'))
  hostfile = join(folder, 'hosts')
})
afterEach(async () => {
  await endClusters()
  rmSync(folder, { recursive: true })
})

/** Hosts with an sshd each, which the key in `folder` opens. */
async function startHosts(count: number): Promise<Cluster> {
  const cluster = new Cluster(count)
  for (const name of ['host-key', 'key']) {
    execFileSync('ssh-keygen', ['-q', '-t', 'ed25519', '-N', '', '-f', join(folder, name)])
  }
  const path = process.env['PATH'] ?? ''
  writeFileSync(
    join(folder, 'sshd_config'),
    [
      `HostKey ${folder}/host-key`,
      `AuthorizedKeysFile ${folder}/key.pub`,
      `PidFile none`,
      'Port 2222',
      'PermitRootLogin yes',
      'StrictModes no',
      'UsePAM no',
      `SetEnv PATH=${path}`,
    ].join('\n'),
  )
  writeFileSync(
    join(folder, 'ssh_config'),
    [
      `IdentityFile ${folder}/key`,
      'IdentitiesOnly yes',
      'StrictHostKeyChecking no',
      `UserKnownHostsFile ${folder}/known`,
      'LogLevel ERROR',
    ].join('\n'),
  )
  execFileSync('mkdir', ['-p', '/run/sshd'])
  for (let host = 0; host < count; host++) {
    const run = cluster.run(host, [sshd, '-D', '-e', '-f', join(folder, 'sshd_config')])
    await run.says(/Server listening on 0\.0\.0\.0/)
  }
  const lines = Array.from(
    { length: count },
    (_, host) => `n${host} slots=${1 + (host % 2)} port=2222`,
  )
  writeFileSync(hostfile, `# name slots port\n${lines.join('\n')}\n`)
  return cluster
}

/** `tsrun hosts` on the first host. */
function hosts(cluster: Cluster, args: readonly string[], env: NodeJS.ProcessEnv = {}): HostRun {
  const ssh = ['--ssh', `ssh -F ${folder}/ssh_config`]
  const line = [...bin, 'hosts', '--hostfile', hostfile, ...ssh, ...args]
  return cluster.run(0, line, { ...cleanEnvironment(), ...env })
}

const hello = 'test/fixtures/launcher/hello.mjs'

describe('tsrun hosts', () => {
  onSsh('starts a job on all hosts of the file, and shows what each prints', async () => {
    const cluster = await startHosts(3)
    const run = await hosts(cluster, ['--', '--no-summary', hello]).finished
    expect({ code: run.code, stderr: run.stderr }).toMatchObject({ code: 0 })
    expect(run.stdout.trim().split('\n').toSorted()).toEqual([
      'n0 | [rank 0] hello from rank 0 of 4',
      'n1 | [rank 1] hello from rank 1 of 4',
      'n1 | [rank 2] hello from rank 2 of 4',
      'n2 | [rank 3] hello from rank 3 of 4',
    ])
  })

  onSsh('leaves hosts out, and gives the ranks the variables of --env', async () => {
    const cluster = await startHosts(3)
    const args = ['--exclude', 'n1', '--env', 'MINE,NOBODYS', '--']
    const program = ['--log-format', 'raw', '--no-summary', '--no-python', 'sh', '-c']
    const run = await hosts(cluster, [...args, ...program, 'echo "$RANK $MINE $(hostname)"'], {
      MINE: "it's",
    }).finished
    expect({ code: run.code, stderr: run.stderr }).toMatchObject({ code: 0 })
    expect(run.stdout.trim().split('\n').toSorted()).toEqual(["0 it's n0", "1 it's n2"])
  })

  onSsh('ends with the exit code of the rank that failed', async () => {
    const cluster = await startHosts(2)
    const program = ['--no-python', 'sh', '-c', '[ "$RANK" != 2 ] || exit 7; sleep 60']
    const { code, stderr } = await hosts(cluster, ['--', ...program]).finished
    expect(code).toBe(7)
    expect(stderr).toMatch(/first cause +rank 2 of 3 exited with code 7/)
  })

  onSsh('passes signals on, and leaves nothing on the hosts', async () => {
    const cluster = await startHosts(2)
    const run = hosts(cluster, ['--', 'test/fixtures/launcher/wait.mjs'])
    const pids = await ready(run, 3)
    run.child.kill('SIGTERM')
    const { code, stderr } = await run.finished
    expect({ code, stderr }).toMatchObject({ code: 143 })
    await untilGone(pids)
  })

  onSsh('leaves nothing on the hosts when it is killed', async () => {
    const cluster = await startHosts(2)
    const run = hosts(cluster, ['--', '--grace', '1', 'test/fixtures/launcher/wait.mjs'])
    const pids = await ready(run, 3)
    run.child.kill('SIGKILL')
    await untilGone(pids, 5000)
  })

  onSsh('checks the hosts first, and says which cannot take part', async () => {
    const cluster = await startHosts(2)
    writeFileSync(hostfile, 'n0 port=2222\nn1 port=2223\n')
    const { code, stderr } = await hosts(cluster, ['--', hello]).finished
    expect(code).toBe(2)
    expect(stderr).toMatch(/host n1: .*Connection refused/)
  })
})

/** The processes of the ranks, once so many are there. */
async function ready(run: HostRun, count: number): Promise<number[]> {
  await until(() => announcements(run.stdout).length === count, `${count} ranks`, 60_000)
  return announcements(run.stdout).map(({ pid }) => pid)
}
