#!/usr/bin/env node
// Takes the steps of the Dockerfile without Docker: each stage in a folder that becomes the root directory
// of the processes (chroot), and at last a command as the user of the image. Needs root, Linux,
// mmdebstrap, unshare and a network; what it makes is removed at the end.
//
//   node scripts/walk-dockerfile.mjs [--target STAGE] [COMMAND…]
//
// The default target is the last stage, and the default command an epoch of examples/pipeline.ts with
// logs. The command can write to /tmp, logs and checkpoints only, as in docker-compose.yml and
// deploy/kubernetes. One line a step: what was done, and in what it differs from `docker build`; then the
// size of the image. The exit code is 1 when a step fails, and 2 when there is no way to take it here.
import { execFileSync, spawnSync } from 'node:child_process'
import { cpSync, existsSync, lstatSync, mkdirSync, mkdtempSync, readdirSync } from 'node:fs'
import { readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { basename, dirname, join, relative, resolve } from 'node:path'
import { fileURLToPath } from 'node:url'
import { parseArgs } from 'node:util'
import { argumentOf, copyOf, ignoring, neededFor, stagesOf, substitute } from './dockerfile.mjs'

const context = fileURLToPath(new URL('..', import.meta.url))
const isIgnored = ignoring(readFileSync(join(context, '.dockerignore'), 'utf8'))
const epoch =
  'tsrun --nproc 2 --log-dir logs examples/pipeline.ts --epochs 1 --images 2000 && ls logs/*/*/0/stdout.log'

/** The folder of all stages. */
let folder = ''
/** What the steps so far have made of each stage, by name. */
const stages = new Map()
/** The stage whose steps are taken. */
let image = { workdir: '/', user: 'root', env: {}, values: {}, root: '' }

/** The error of a step that cannot be taken on this machine. */
function impossible(why) {
  return Object.assign(new Error(why), { code: 'IMPOSSIBLE' })
}

/** Begins a stage with the files of an earlier one, or of an image. */
function begin({ name, base }) {
  const root = join(folder, name)
  const isFirst = !stages.has(base)
  const note = isFirst ? makeBase(base) : undefined
  const before = stages.get(base)
  call('cp', ['--archive', '--reflink=auto', before.root, root])
  image = { ...structuredClone(before), values: {}, root }
  stages.set(name, image)
  return note
}

/** Debian's slim image with Node: Debian's packages, and Node and npm from npm. */
function makeBase(base) {
  const [, major, suite] = /^node:(\d+)-(\w+)-slim$/.exec(base) ?? []
  if (major === undefined) throw impossible(`there is no way to make ${base} here`)
  const root = join(folder, `${stages.size}.base`)
  const PATH = '/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin'
  image = { workdir: '/', user: 'root', env: { PATH }, values: {}, root }
  call('mmdebstrap', ['--variant=minbase', '--quiet', suite, root])
  const packages = mkdtempSync(join(root, 'tmp/'))
  const platform = `node-${process.platform}-${process.arch}@${major}`
  call('npm', ['install', '--silent', '--ignore-scripts', '--prefix', packages, platform])
  const [node] = readdirSync(join(packages, 'node_modules')).filter((name) => /^node-/.test(name))
  cpSync(join(packages, 'node_modules', node, 'bin/node'), inside('/usr/local/bin/node'))
  rmSync(packages, { recursive: true })
  const global = ['install', '--silent', '--global', '--prefix', inside('/usr/local')]
  call('npm', [...global, `npm@${npmOf(major)}`])
  run('groupadd --gid 1000 node && useradd --uid 1000 --gid node --create-home node')
  stages.set(base, image)
  return `Debian ${suite} of mmdebstrap and Node ${major} of npm instead of the image`
}

const steps = {
  ARG(text) {
    Object.assign(image.values, argumentOf(text))
  },

  WORKDIR(text) {
    image.workdir = resolve(image.workdir, text)
    mkdirSync(inside(image.workdir), { recursive: true })
  },

  COPY(text) {
    const { from, sources, target: given } = copyOf(text)
    const target = inside(resolve(image.workdir, given))
    mkdirSync(target, { recursive: true })
    for (const source of sources) {
      const path = join(from === undefined ? context : stages.get(from).root, source)
      const isFolder = lstatSync(path).isDirectory()
      const names = !isFolder ? [basename(path)] : from === undefined ? filesIn(path) : ['.']
      const pack = ['--directory', isFolder ? path : dirname(path), '--create', '--null']
      const packed = call('tar', [...pack, '--files-from=-', '--owner=0', '--group=0'], {
        input: names.join('\0'),
        maxBuffer: 2 ** 31,
      })
      call('tar', ['--directory', target, '--extract'], { input: packed })
    }
  },

  RUN(text) {
    run(text)
  },

  ENV(text) {
    for (const [name, value] of Object.entries(argumentOf(text))) {
      image.env[name] = substitute(value, { ...image.values, ...image.env })
    }
  },

  USER(text) {
    image.user = text
  },

  HEALTHCHECK(text) {
    run('exec "$@"', { args: JSON.parse(text.slice(text.indexOf('['))) })
  },

  LABEL: () => 'describes the image only',
  EXPOSE: () => 'is for documentation only',

  CMD(text) {
    run('exec "$@"', { args: JSON.parse(text) })
  },
}

/** The path of a file of the image on this machine. */
function inside(path) {
  return join(image.root, path)
}

/** The files below a folder of the context that the .dockerignore lets in. */
function filesIn(path) {
  return readdirSync(path, { recursive: true, withFileTypes: true })
    .filter((entry) => !entry.isDirectory())
    .map((entry) => join(entry.parentPath, entry.name))
    .filter((file) => !isIgnored(relative(context, file)))
    .map((file) => relative(path, file))
}

/** The newest npm that this major version of Node brings. */
function npmOf(major) {
  return { 20: '10', 22: '10', 24: '11' }[major] ?? 'latest'
}

/** The user of the image, by name or number: its numbers, and its home. */
function userOf(given) {
  const users = readFileSync(inside('/etc/passwd'), 'utf8').trim().split('\n')
  const found = users
    .map((line) => line.split(':'))
    .find(([name, , uid]) => name === given || uid === given)
  const [, , uid = given, gid = given, , home = '/'] = found ?? []
  return { ids: `${uid}:${gid}`, home }
}

/** Makes all but /tmp and the folders for volumes read-only. */
const readOnly = `
  mount --bind "$1" "$1"
  for volume in logs checkpoints; do mount --bind "$1/tsrun/$volume" "$1/tsrun/$volume"; done
  mount -o remount,bind,ro "$1"
  mount -t tmpfs tmpfs "$1/tmp"`

/** Runs a command of the shell in the root directory of the image, as its user. */
function run(command, { args = [], isReadOnly = false } = {}) {
  // What this machine needs to reach a registry; `docker build` has the network of its daemon.
  const network = Object.entries(process.env).filter(([name]) =>
    /^(npm_config_registry|NODE_EXTRA_CA_CERTS|\w+_proxy)$/i.test(name),
  )
  const certificates = process.env.NODE_EXTRA_CA_CERTS ?? ''
  for (const file of ['/etc/resolv.conf', '/etc/hosts', certificates].filter((path) =>
    existsSync(path),
  )) {
    mkdirSync(dirname(inside(file)), { recursive: true })
    writeFileSync(inside(file), readFileSync(file))
  }
  const { ids, home } = userOf(image.user)
  const env = { ...Object.fromEntries(network), ...image.values, ...image.env, HOME: home }
  const settings = Object.entries(env).map(([name, value]) => `${name}=${value}`)
  const enter = `${isReadOnly ? readOnly : ''}
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
    ...[image.root, ids, ...settings, ...shell],
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

/** Takes a step, and says so; false when it failed. */
function take(line, step) {
  const start = performance.now()
  const say = (word, text) => {
    const seconds = ((performance.now() - start) / 1000).toFixed(0)
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

function takeInstruction({ name, text }) {
  const unknown = () => {
    throw impossible('this script does not know the instruction')
  }
  return take(`${name} ${text}`, () => (steps[name] ?? unknown)(text))
}

function walk(target, command) {
  if (process.platform !== 'linux' || process.getuid() !== 0)
    throw impossible('needs root on Linux')
  for (const tool of ['mmdebstrap', 'unshare', 'chroot']) {
    if (spawnSync(tool, ['--version']).error) throw impossible(`needs ${tool}`)
  }
  const all = stagesOf(readFileSync(join(context, 'Dockerfile'), 'utf8'))
  folder = mkdtempSync(join(tmpdir(), 'tsrun-image-'))
  execFileSync('chmod', ['755', folder])
  try {
    for (const stage of neededFor(all, target)) {
      if (!take(`FROM ${stage.base} AS ${stage.name}`, () => begin(stage))) return
      if (!stage.instructions.every(takeInstruction)) return
    }
    const [megabytes] = call('du', ['--summarize', '--block-size=1M', image.root])
      .toString()
      .split('\t')
    console.log(`size    ${megabytes} MiB in all; in /tsrun:`)
    console.log(call('du', ['--block-size=1M', '--max-depth=1', inside('/tsrun')]).toString())
    take(`as the user ${image.user}: ${command}`, () => run(command, { isReadOnly: true }))
  } finally {
    rmSync(folder, { recursive: true, force: true })
  }
}

try {
  const { values, positionals } = parseArgs({
    options: { target: { type: 'string' } },
    allowPositionals: true,
  })
  walk(values.target, positionals.join(' ') || epoch)
} catch (error) {
  console.error(`walk-dockerfile: ${error.message}`)
  process.exitCode = 2
}
