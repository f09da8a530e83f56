import { jest } from '@jest/globals'
import { announcements, until, untilGone } from '../launcher/support/tsrun.ts'
import type { HostRun } from './support/cluster.ts'
import { endSshClusters, onSsh, SshCluster } from './support/ssh.ts'

jest.setTimeout(120_000)

afterEach(endSshClusters)

/** `tsrun hosts` on the first host. */
function hosts(on: SshCluster, args: readonly string[], env: NodeJS.ProcessEnv = {}): HostRun {
  return on.tsrun(['hosts', '--hostfile', on.hostfile, ...on.ssh, ...args], env)
}

const hello = 'test/fixtures/launcher/hello.mjs'

describe('tsrun hosts', () => {
  onSsh('starts a job on all hosts of the host file, and shows the output of each', async () => {
    const cluster = await SshCluster.start(3)
    const run = await hosts(cluster, ['--', '--no-summary', hello]).finished
    expect({ code: run.code, stderr: run.stderr }).toMatchObject({ code: 0 })
    expect(run.stdout.trim().split('\n').toSorted()).toEqual([
      'n0 | [rank 0] hello from rank 0 of 4',
      'n1 | [rank 1] hello from rank 1 of 4',
      'n1 | [rank 2] hello from rank 2 of 4',
      'n2 | [rank 3] hello from rank 3 of 4',
    ])
  })

  onSsh('leaves out the hosts of --exclude, and passes the variables of --env', async () => {
    const cluster = await SshCluster.start(3)
    const args = ['--exclude', 'n1', '--env', 'MINE,NOBODYS', '--']
    const program = ['--log-format', 'raw', '--no-summary', '--no-python', 'sh', '-c']
    const run = await hosts(cluster, [...args, ...program, 'echo "$RANK $MINE $(hostname)"'], {
      MINE: "it's",
    }).finished
    expect({ code: run.code, stderr: run.stderr }).toMatchObject({ code: 0 })
    expect(run.stdout.trim().split('\n').toSorted()).toEqual(["0 it's n0", "1 it's n2"])
  })

  onSsh('sets COLUMNS to the width without the prefixes of host and rank', async () => {
    const cluster = await SshCluster.start(2)
    const program = ['--no-summary', '--no-python', 'sh', '-c', 'echo $COLUMNS']
    const run = await hosts(cluster, ['--', ...program], { COLUMNS: '100' }).finished
    const lines = run.stdout.trim().split('\n')
    expect(lines).toHaveLength(3)
    for (const line of lines) {
      const [, prefix, columns] = /^(n\d \| \[rank \d\] )(\d+)$/.exec(line)!
      expect(Number(columns)).toBe(100 - prefix!.length)
    }
  })

  onSsh('ends with the exit code of the rank that failed', async () => {
    const cluster = await SshCluster.start(2)
    const program = ['--no-python', 'sh', '-c', '[ "$RANK" != 2 ] || exit 7; sleep 60']
    const { code, stderr } = await hosts(cluster, ['--', ...program]).finished
    expect(code).toBe(7)
    expect(stderr).toMatch(/first cause +rank 2 of 3 exited with code 7/)
  })

  onSsh('passes signals on, and leaves no process on the hosts', async () => {
    const cluster = await SshCluster.start(2)
    const run = hosts(cluster, ['--', 'test/fixtures/launcher/wait.mjs'])
    const pids = await ready(run, 3)
    run.child.kill('SIGTERM')
    const { code, stderr } = await run.finished
    expect({ code, stderr }).toMatchObject({ code: 143 })
    await untilGone(pids)
  })

  onSsh('leaves no process on the hosts when it is killed', async () => {
    const cluster = await SshCluster.start(2)
    const run = hosts(cluster, ['--', '--grace', '1', 'test/fixtures/launcher/wait.mjs'])
    const pids = await ready(run, 3)
    run.child.kill('SIGKILL')
    await untilGone(pids, 5000)
  })

  onSsh('checks the hosts first, and names a host that cannot take part', async () => {
    const cluster = await SshCluster.start(2)
    cluster.write(['n0 port=2222', 'n1 port=2223'])
    const { code, stderr } = await hosts(cluster, ['--', hello]).finished
    expect(code).toBe(75)
    expect(stderr).toMatch(/host n1: .*Connection refused/)
  })
})

/** The processes of the ranks, once so many are there. */
async function ready(run: HostRun, count: number): Promise<number[]> {
  await until(() => announcements(run.stdout).length === count, `${count} ranks`, 60_000)
  return announcements(run.stdout).map(({ pid }) => pid)
}
