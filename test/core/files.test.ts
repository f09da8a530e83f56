import { execFileSync } from 'node:child_process'
import { appendFileSync, chmodSync, chownSync, closeSync, constants, existsSync } from 'node:fs'
import { lchownSync, linkSync, mkdirSync, mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { symlinkSync, writeFileSync } from 'node:fs'
import { createServer } from 'node:net'
import { once } from 'node:events'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { checkReplaceable, makeFolders, openFile, openFileHandle, readFileBytes } from '@tsrun/core'
import { readFileText } from '@tsrun/core'
import { needing } from '../needs.ts'

let folder: string
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'tsrun-files-'))
})
afterEach(() => {
  rmSync(folder, { recursive: true })
})

it('only a regular file or a missing one may be replaced', () => {
  const [file, link] = [join(folder, 'file'), join(folder, 'link')]
  writeFileSync(file, '')
  symlinkSync(file, link)
  checkReplaceable(file)
  checkReplaceable(join(folder, 'missing'))
  expect(() => {
    checkReplaceable(link)
  }).toThrow(`${link} is a symbolic link, not a regular file`)
  expect(() => {
    checkReplaceable('/dev/null')
  }).toThrow('/dev/null is a device, not a regular file')
})

describe('the reader of files', () => {
  it('returns the bytes or the text of a file', () => {
    const path = join(folder, 'a')
    writeFileSync(path, 'Zoë')
    expect(readFileText(path)).toBe('Zoë')
    expect([...readFileBytes(path)]).toEqual([...Buffer.from('Zoë')])
    writeFileSync(path, '')
    expect(readFileText(path)).toBe('')
  })

  it('reads a file of /proc, whose reported size is zero', () => {
    expect(readFileText('/proc/self/status')).toContain('Pid:')
  })

  it('refuses a file larger than the limit', () => {
    const path = join(folder, 'a')
    writeFileSync(path, Buffer.alloc(2 ** 20))
    expect(readFileBytes(path, 2 ** 20)).toHaveLength(2 ** 20)
    appendFileSync(path, 'x')
    expect(() => readFileBytes(path, 2 ** 20)).toThrow(`${path} has more than 1 MiB`)
    expect(() => readFileBytes('/proc/self/status', 4)).toThrow('/proc/self/status has more than')
  })

  it('refuses at once any path that is not a regular file, also through a link', async () => {
    const fifo = join(folder, 'fifo')
    execFileSync('mkfifo', [fifo])
    symlinkSync(fifo, join(folder, 'link'))
    const server = createServer().listen(join(folder, 'socket'))
    await once(server, 'listening')
    const kinds = [
      [fifo, 'a FIFO'],
      [join(folder, 'link'), 'a FIFO'],
      [join(folder, 'socket'), 'a socket'],
      [folder, 'a folder'],
      ['/dev/zero', 'a device'],
    ] as const
    for (const [path, kind] of kinds) {
      const message = `${path} is ${kind}, not a regular file`
      expect(() => openFile(path)).toThrow(message)
      expect(() => readFileText(path)).toThrow(message)
      await expect(openFileHandle(path)).rejects.toThrow(message)
    }
    server.close()
  })

  it('reports a missing file as Node does', async () => {
    const path = join(folder, 'none')
    expect(() => openFile(path)).toThrow(expect.objectContaining({ code: 'ENOENT' }))
    await expect(openFileHandle(path)).rejects.toMatchObject({ code: 'ENOENT' })
  })
})

describe('makeFolders', () => {
  it('creates nested folders, and returns the first that it created', () => {
    expect(makeFolders(join(folder, 'a/b/c'))).toBe(join(folder, 'a'))
    expect(makeFolders(join(folder, 'a/b/c/d'))).toBe(join(folder, 'a/b/c/d'))
    expect(makeFolders(join(folder, 'a/b/c/d'))).toBeUndefined()
    expect(existsSync(join(folder, 'a/b/c/d'))).toBe(true)
  })

  it.each(['/proc/tsrun', '/proc/tsrun/a/b', '/proc/self/tsrun/a'])(
    'fails at once in %s',
    (path) => {
      expect(() => makeFolders(path)).toThrow(
        /^the file system of \/proc(\/self)? has no place for new/,
      )
    },
  )

  it('refuses an existing path that is not a folder', () => {
    const path = join(folder, 'a')
    closeSync(openFile('/proc/self/status'))
    writeFileSync(path, '')
    symlinkSync(join(folder, 'none'), join(folder, 'link'))
    for (const each of [path, join(folder, 'link')]) {
      expect(() => makeFolders(each)).toThrow(expect.objectContaining({ code: 'EEXIST' }))
    }
    expect(() => makeFolders(join(path, 'b'))).toThrow(expect.objectContaining({ code: 'ENOTDIR' }))
    mkdirSync(join(folder, 'd'))
    symlinkSync(join(folder, 'd'), join(folder, 'to-d'))
    makeFolders(join(folder, 'to-d/e'))
    expect(existsSync(join(folder, 'd/e'))).toBe(true)
  })
})

const { O_APPEND, O_CREAT, O_TRUNC, O_WRONLY } = constants
const isRoot = process.getuid?.() === 0
const { it: itAsRoot } = needing(isRoot, 'root')
/** Users that are not root, and do not run the test. */
const [OTHER, THIRD] = [65_533, 65_532]

describe('a file opened for writing in a shared folder', () => {
  const shared = (mode = 0o1777, owner = 0): string => {
    const path = mkdtempSync(join(folder, 'shared-'))
    if (isRoot) chownSync(path, owner, 0)
    chmodSync(path, mode)
    return path
  }
  const fileOf = (owner: number, path: string): string => {
    writeFileSync(path, 'old')
    chownSync(path, owner, owner)
    return path
  }
  const openings = [O_WRONLY | O_CREAT | O_APPEND, O_WRONLY | O_CREAT | O_TRUNC]
  const write = (path: string, flags: number): string => {
    const fd = openFile(path, flags, 0o600)
    appendFileSync(fd, 'new')
    closeSync(fd)
    return readFileSync(path, 'utf8')
  }

  itAsRoot.each([0o1777, 0o777, 0o1770])(
    'is refused if it belongs to another user (mode %o)',
    (mode) => {
      for (const flags of openings) {
        const path = fileOf(OTHER, join(shared(mode), 'log'))
        const reason = `${path} belongs to the user with the number ${OTHER}, in a folder that others can`
        expect(() => write(path, flags)).toThrow(reason)
        expect(readFileSync(path, 'utf8')).toBe('old')
        const link = join(shared(0o700), 'link')
        symlinkSync(path, link)
        expect(() => write(link, flags)).toThrow(
          `${link} belongs to the user with the number ${OTHER}`,
        )
        expect(readFileSync(path, 'utf8')).toBe('old')
      }
    },
  )

  itAsRoot('is refused if its path is a link of another user', () => {
    const target = fileOf(0, join(folder, 'precious'))
    for (const flags of openings) {
      const link = join(shared(), 'log')
      symlinkSync(target, link)
      lchownSync(link, OTHER, OTHER)
      expect(() => write(link, flags)).toThrow(
        `${link} belongs to the user with the number ${OTHER}`,
      )
      expect(readFileSync(target, 'utf8')).toBe('old')
    }
  })

  itAsRoot('is accepted if it belongs to the user or to the owner of the folder', () => {
    const [append, empty] = openings as [number, number]
    expect(write(fileOf(THIRD, join(shared(0o1777, THIRD), 'log')), append)).toBe('oldnew')
    expect(write(fileOf(OTHER, join(shared(0o755), 'log')), empty)).toBe('new')
    expect(write(fileOf(OTHER, join(shared(0o775), 'log')), append)).toBe('oldnew')
  })

  it('is created if it is missing, and can be written again', () => {
    const [append, empty] = openings as [number, number]
    const path = join(shared(), 'log')
    expect(write(path, append)).toBe('new')
    expect(write(path, append)).toBe('newnew')
    expect(write(path, empty)).toBe('new')
    const link = join(shared(), 'link')
    symlinkSync(path, link)
    expect(write(link, append)).toBe('newnew')
  })

  it('is refused if it has a second hard link', () => {
    const target = join(folder, 'precious')
    writeFileSync(target, 'old')
    for (const flags of openings) {
      const path = join(shared(), 'log')
      linkSync(target, path)
      expect(() => write(path, flags)).toThrow(`${path} has other names (hard links)`)
      expect(readFileSync(target, 'utf8')).toBe('old')
    }
  })
})
