import { execFileSync } from 'node:child_process'
import { existsSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { cleanEnvironment } from '../../launcher/support/tsrun.ts'
import { Cluster, endClusters, onHosts, root, type HostRun } from './cluster.ts'
import { needing } from '../../needs.ts'

const sshd = '/usr/sbin/sshd'
const hasSshd = existsSync(sshd)

/** A test that needs hosts with an sshd. */
export const onSsh = hasSshd ? onHosts : needing(false, 'sshd').it

/** The port of the servers. */
export const SSH_PORT = 2222
const bin = [process.execPath, `${root}packages/launcher/bin/tsrun.js`]

/** Hosts with an sshd each, and the key that opens them in a folder of their own. */
export class SshCluster {
  readonly cluster: Cluster
  readonly folder: string
  /** A host file that names them all, n1 with two slots, n3 with two, and so on. */
  readonly hostfile: string

  private constructor(cluster: Cluster, folder: string) {
    this.cluster = cluster
    this.folder = folder
    this.hostfile = join(folder, 'hosts')
  }

  static async start(count: number): Promise<SshCluster> {
    const folder = mkdtempSync(join(tmpdir(), 'tsrun-ssh-'))
    folders.add(folder)
    for (const name of ['host-key', 'key']) {
      execFileSync('ssh-keygen', ['-q', '-t', 'ed25519', '-N', '', '-f', join(folder, name)])
    }
    writeFileSync(
      join(folder, 'sshd_config'),
      [
        `HostKey ${folder}/host-key`,
        `AuthorizedKeysFile ${folder}/key.pub`,
        `PidFile none`,
        `Port ${SSH_PORT}`,
        'PermitRootLogin yes',
        'StrictModes no',
        'UsePAM no',
        `SetEnv PATH=${process.env['PATH'] ?? ''} TSRUN_RUNS_DIR=${folder}/runs`,
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
    const started = new SshCluster(new Cluster(count), folder)
    for (let host = 0; host < count; host++) {
      const command = [sshd, '-D', '-e', '-f', join(folder, 'sshd_config')]
      await started.cluster.run(host, command).says(/Server listening on 0\.0\.0\.0/)
    }
    const hosts = Array.from({ length: count }, (_, host) => `n${host} slots=${1 + (host % 2)}`)
    started.write(hosts.map((line) => `${line} port=${SSH_PORT}`))
    return started
  }

  /** Other lines for the host file. */
  write(lines: readonly string[]): void {
    writeFileSync(this.hostfile, `# name slots port\n${lines.join('\n')}\n`)
  }

  /** A command of tsrun on the first host. */
  tsrun(args: readonly string[], env: NodeJS.ProcessEnv = {}): HostRun {
    return this.cluster.run(0, [...bin, ...args], { ...cleanEnvironment(), ...env })
  }

  /** The flags for ssh. */
  get ssh(): string[] {
    return ['--ssh', `ssh -F ${this.folder}/ssh_config`]
  }
}

const folders = new Set<string>()

/** For `afterEach`. */
export async function endSshClusters(): Promise<void> {
  await endClusters()
  for (const folder of folders) rmSync(folder, { recursive: true })
  folders.clear()
}
