import { resolve } from 'node:path'
import { isTsrError, nearestName, readFileText } from '@tsrun/core'
import { HIGHEST_PORT, integerFrom, usageError } from '../args/readers.ts'

/** The flags of commands that reach hosts. @param needs - the flag without which these are refused */
export function hostFlags(needs?: string) {
  return {
    include: { needs, description: 'only these hosts, separated by commas' },
    exclude: { needs, description: 'all hosts but these' },
    ssh: { needs, fallback: 'ssh', description: 'the command of ssh, with options' },
    port: {
      needs,
      reads: integerFrom(1, HIGHEST_PORT, 'a port'),
      fallback: '29500',
      description: 'the port of the store',
    },
  } as const
}

/** A host that `tsrun hosts` reaches with ssh. */
export interface RemoteHost {
  /** The name for ssh and for the other hosts. */
  readonly name: string
  readonly slots: number
  readonly user: string | undefined
  readonly port: number | undefined
}

/** Limits of a host file. */
const MOST_BYTES = 2 ** 20
const MOST_HOSTS = 4096

/** Reads the hosts of a file. @throws ERR_TSR_USAGE */
export function readHosts(file: string, cwd: string): RemoteHost[] {
  try {
    return parseHostfile(readFileText(resolve(cwd, file), MOST_BYTES), file)
  } catch (error) {
    if (isTsrError(error)) throw error
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') {
      throw usageError(`there is no host file ${resolve(cwd, file)}`, error)
    }
    throw usageError(`the host file ${file} cannot be read: ${(error as Error).message}`, error)
  }
}

/**
 * Parses a host file, like those of Open MPI, MPICH and DeepSpeed: one host on each line, as `host`,
 * `host:2` (slots), `[::1]:2` or `me@host`, followed by `slots=4`, `user=me` and `port=2222`; `#` starts a
 * comment.
 *
 * @throws ERR_TSR_USAGE with the line number
 */
export function parseHostfile(text: string, file: string): RemoteHost[] {
  const hosts: RemoteHost[] = []
  for (const [index, line] of text.split(/\r?\n/).entries()) {
    const parts = line.replace(/#.*/, '').split('=')
    const words = parts
      .map((part) => part.trim())
      .join('=')
      .split(/\s+/)
    const [word = '', ...settings] = words
    if (word === '') continue
    const { user, name, slots } = parseHost(word)
    if (slots !== undefined) settings.unshift(`slots=${slots}`)
    if (user !== undefined) settings.unshift(`user=${user}`)
    const where = `${file}, line ${index + 1}`
    // ssh would take a name with a leading dash as an option.
    if (!/^[\w:][\w.:%-]*$/.test(name)) {
      throw usageError(`${where}: ${name || word} is no name of a host`)
    }
    if (hosts.length === MOST_HOSTS) throw usageError(`${file} has more than ${MOST_HOSTS} hosts`)
    if (hosts.some((host) => host.name === name))
      throw usageError(`${where}: ${name} is there twice`)
    hosts.push({ name, ...readSettings(settings, where) })
  }
  if (hosts.length === 0) throw usageError(`${file} has no host`)
  return hosts
}

/** Splits `me@[::1]:2` into its parts. */
function parseHost(word: string) {
  const [, user, place = ''] = /^(?:([^@]*)@)?(.*)$/.exec(word)!
  // An IPv6 address has several colons.
  const [, address, short, slots] = /^(?:\[(.*)\]|([^:]+))(?::(\d+))?$/.exec(place) ?? []
  return { user, name: address ?? short ?? place, slots }
}

/** The settings of a host. `max_slots` of Open MPI has no effect. */
const known = ['slots', 'max_slots', 'max-slots', 'user', 'port']

function readSettings(settings: readonly string[], where: string): Omit<RemoteHost, 'name'> {
  const values = new Map<string, string>()
  for (const setting of settings) {
    const [, key, value] = /^([\w-]+)=(.+)$/.exec(setting) ?? []
    if (key === undefined || value === undefined || !known.includes(key)) {
      throw usageError(`${where}: ${setting}; expected slots=N, user=NAME or port=N`)
    }
    values.set(key, value)
  }
  const integer = (key: string, most: number): number | undefined => {
    const text = values.get(key)
    if (text === undefined) return undefined
    const value = /^\d+$/.test(text) ? Number(text) : 0
    if (value >= 1 && value <= most) return value
    throw usageError(`${where}: ${key}=${text}; expected an integer from 1 to ${most}`)
  }
  const user = values.get('user')
  if (user !== undefined && !/^\w[\w.-]*$/.test(user)) {
    throw usageError(`${where}: user=${user} is no name of a user`)
  }
  return { slots: integer('slots', 4096) ?? 1, user, port: integer('port', HIGHEST_PORT) }
}

/**
 * The hosts of `--include`, or all except those of `--exclude`, in the order of the file.
 *
 * @throws ERR_TSR_USAGE for a name that is not in the file, or if no host is left
 */
export function chooseHosts(
  hosts: readonly RemoteHost[],
  {
    include,
    exclude,
  }: { readonly include?: string | undefined; readonly exclude?: string | undefined },
): RemoteHost[] {
  const known = hosts.map(({ name }) => name)
  const read = (flag: string, list: string | undefined): string[] | undefined => {
    const names = list?.split(',').map((text) => {
      const word = text.trim()
      const { user, name, slots } = parseHost(word)
      const own = hosts.find((host) => host.name === name)?.user
      // A host is chosen with all its slots.
      return slots === undefined && (user === undefined || user === own) ? name : word
    })
    const unknown = names?.find((name) => !known.includes(name))
    if (unknown === undefined) return names
    const nearest = nearestName(unknown, known)
    const hint = nearest === undefined ? '' : ` (the nearest is ${nearest})`
    throw usageError(`${flag} names ${unknown}, which the host file does not have${hint}`)
  }
  const [wanted, unwanted] = [read('--include', include), read('--exclude', exclude)]
  const chosen = hosts.filter(
    ({ name }) => wanted?.includes(name) !== false && unwanted?.includes(name) !== true,
  )
  if (chosen.length > 0) return chosen
  throw usageError('--include and --exclude leave no host')
}
