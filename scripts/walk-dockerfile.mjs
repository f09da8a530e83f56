#!/usr/bin/env node
// Takes the steps of the Dockerfile without Docker: in an empty folder that becomes the root directory of
// the processes (chroot), and at last a command as the user of the image. Needs root, Linux, mmdebstrap,
// unshare and a network; what it makes is removed at the end.
//
//   node scripts/walk-dockerfile.mjs [COMMAND…]       default: an epoch of examples/pipeline.ts with logs
//
// One line a step: what was done, and in what it differs from `docker build`. The exit code is 1 when a
// step fails, and 2 when there is no way to take it here.
import { execFileSync, spawnSync } from 'node:child_process'
import { cpSync, existsSync, lstatSync, mkdirSync, mkdtempSync, readdirSync } from 'node:fs'
import { readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { basename, join, resolve } from 'node:path'
import { fileURLToPath } from 'node:url'

const context = fileURLToPath(new URL('..', import.meta.url))
const epoch =
  'tsrun --nproc 2 --log-dir logs examples/pipeline.ts --epochs 1 --images 2000 && ls logs/*/*/0/stdout.log'

/** What the steps so far have set. */
const image = { workdir: '/', user: 'root', env: {}, root: '' }

/** The error of a step that cannot be taken on this machine. */
function impossible(why) {
  return Object.assign(new Error(why), { code: 'IMPOSSIBLE' })
}

const steps = {
  /** The root directory of Debian's slim image with Node: Debian's packages, and Node and npm from npm. */
  FROM(text) {
    const [, major, suite] = /^node:(\d+)-(\w+)-slim$/.exec(text) ?? []
    if (major === undefined) throw impossible(`there is no way to make ${text} here`)
    image.env.PATH = '/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin'
    call('mmdebstrap', ['--variant=minbase', '--quiet', suite, image.root])
    const packages = mkdtempSync(join(image.root, 'tmp/'))
    const platform = `node-${process.platform}-${process.arch}@${major}`
    call('npm', ['install', '--silent', '--ignore-scripts', '--prefix', packages, platform])
    const [node] = readdirSync(join(packages, 'node_modules')).filter((name) => /^node-/.test(name))
    cpSync(join(packages, 'node_modules', node, 'bin/node'), inside('/usr/local/bin/node'))
    rmSync(packages, { recursive: true })
    const global = ['install', '--silent', '--global', '--prefix', inside('/usr/local')]
    call('npm', [...global, `npm@${npmOf(major)}`])
    run('groupadd --gid 1000 node && useradd --uid 1000 --gid node --create-home node')
    return `Debian ${suite} of mmdebstrap and Node ${major} of npm instead of the image`
  },

  WORKDIR(text) {
    image.workdir = resolve(image.workdir, text)
    mkdirSync(inside(image.workdir), { recursive: true })
  },

  COPY(text) {
    const sources = text.split(/\s+/)
    const target = resolve(image.workdir, sources.pop())
    mkdirSync(inside(target), { recursive: true })
    for (const source of sources) {
      const from = join(context, source)
      const isFolder = lstatSync(from).isDirectory()
      const [folder, what] = isFolder ? [from, '.'] : [join(from, '..'), basename(from)]
      const pack = ['--create', '--owner=0', '--group=0', ...(isFolder ? ignored() : []), what]
      const packed = call('tar', ['--directory', folder, ...pack], { maxBuffer: 2 ** 30 })
      call('tar', ['--directory', inside(target), '--extract'], { input: packed })
    }
  },

  RUN(text) {
    run(text)
  },

  ENV(text) {
    const [, name, value] = /^(\w+)=(\S*)$/.exec(text) ?? []
    image.env[name] = value.replaceAll(/\$\{?(\w+)\}?/g, (_, other) => image.env[other] ?? '')
  },

  USER(text) {
    image.user = text
  },

  EXPOSE: () => 'is for documentation only',

  CMD(text) {
    run('exec "$@"', JSON.parse(text))
  },
}

/** The path of a file of the image on this machine. */
function inside(path) {
  return join(image.root, path)
}

/** What the .dockerignore leaves out, as options of tar. */
function ignored() {
  const patterns = readFileSync(join(context, '.dockerignore'), 'utf8').trim().split('\n')
  return patterns.flatMap((pattern) =>
    pattern.startsWith('**/')
      ? ['--no-anchored', `--exclude=${pattern.slice(3)}`]
      : ['--anchored', `--exclude=./${pattern}`],
  )
}

/** The newest npm that this major version of Node brings. */
function npmOf(major) {
  return { 20: '10', 22: '10', 24: '11' }[major] ?? 'latest'
}

/** Runs a command of the shell in the root directory of the image, as its user. */
function run(command, args = []) {
  // What this machine needs to reach a registry; `docker build` has the network of its daemon.
  const network = Object.entries(process.env).filter(([name]) =>
    /^(npm_config_registry|NODE_EXTRA_CA_CERTS|\w+_proxy)$/i.test(name),
  )
  const certificates = process.env.NODE_EXTRA_CA_CERTS ?? ''
  for (const file of ['/etc/resolv.conf', '/etc/hosts', certificates].filter((path) =>
    existsSync(path),
  )) {
    mkdirSync(join(inside(file), '..'), { recursive: true })
    writeFileSync(inside(file), readFileSync(file))
  }
  const home = image.user === 'root' ? '/root' : `/home/${image.user}`
  const env = { ...Object.fromEntries(network), ...image.env, HOME: home }
  const settings = Object.entries(env).map(([name, value]) => `${name}=${value}`)
  const enter = `
    mount -t proc proc "$1/proc"
    mount --rbind /dev "$1/dev"
    mount -t tmpfs -o size=1g tmpfs "$1/dev/shm"
    root=$1 user=$2
    shift 2
    exec chroot --userspec="$user" "$root" /usr/bin/env --ignore-environment "$@"`
  const isolated = ['--mount', '--pid', '--fork', '--kill-child']
  const shell = ['sh', '-c', `cd ${image.workdir} && ${command}`, 'sh', ...args]
  call('unshare', [
    ...[...isolated, 'sh', '-ec', enter, 'walk'],
    ...[image.root, image.user, ...settings, ...shell],
  ])
}

function call(command, args, options = {}) {
  const { status, signal, stdout, stderr, error } = spawnSync(command, args, {
    stdio: [options.input === undefined ? 'ignore' : 'pipe', 'pipe', 'pipe'],
    maxBuffer: 2 ** 26,
    ...options,
  })
  if (error !== undefined) throw error
  if (status === 0) return stdout
  throw new Error(
    `${command} ended with ${signal ?? status}\n${stdout.subarray(-5000)}${stderr.subarray(-5000)}`,
  )
}

/** The instructions, continued lines joined, without comments. */
function instructions(text) {
  const lines = text.replaceAll(/\\\n\s*/g, '').split('\n')
  return lines.filter((line) => line !== '' && !line.startsWith('#'))
}

/** Takes a step, and says so; false when it failed. */
function take(line, step) {
  const begin = performance.now()
  const say = (word, text) => {
    const seconds = ((performance.now() - begin) / 1000).toFixed(0)
    console.log(`${word.padEnd(8)}${seconds.padStart(4)} s  ${text}`)
  }
  try {
    const note = step()
    say('ok', note === undefined ? line : `${line}  (${note})`)
    return true
  } catch (error) {
    const { code, message } = error
    say(code === 'IMPOSSIBLE' ? 'not done' : 'FAILED', `${line}\n${message}`)
    process.exitCode = code === 'IMPOSSIBLE' ? 2 : 1
    return false
  }
}

function walk() {
  if (process.platform !== 'linux' || process.getuid() !== 0)
    throw impossible('needs root on Linux')
  for (const tool of ['mmdebstrap', 'unshare', 'chroot']) {
    if (spawnSync(tool, ['--version']).error) throw impossible(`needs ${tool}`)
  }
  image.root = mkdtempSync(join(tmpdir(), 'tsrun-image-'))
  execFileSync('chmod', ['755', image.root])
  try {
    for (const line of instructions(readFileSync(join(context, 'Dockerfile'), 'utf8'))) {
      const [, name, text] = /^(\w+)\s+(.*)$/.exec(line)
      const step =
        steps[name] ??
        (() => {
          throw impossible('this script does not know the instruction')
        })
      if (!take(line, () => step(text))) return
    }
    const command = process.argv.slice(2).join(' ') || epoch
    take(`as the user ${image.user}: ${command}`, () => run(command))
  } finally {
    rmSync(image.root, { recursive: true, force: true })
  }
}

try {
  walk()
} catch (error) {
  console.error(`walk-dockerfile: ${error.message}`)
  process.exitCode = 2
}
