import { execFileSync } from 'node:child_process'
import { appendFileSync, closeSync, existsSync, mkdirSync, mkdtempSync, rmSync } from 'node:fs'
import { symlinkSync, writeFileSync } from 'node:fs'
import { createServer } from 'node:net'
import { once } from 'node:events'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { makeFolders, openFile, openFileHandle, readFileBytes, readFileText } from '@tsrun/core'

let folder: string
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'tsrun-files-'))
})
afterEach(() => {
  rmSync(folder, { recursive: true })
})

describe('reading a file', () => {
  it('returns its bytes, or its text', () => {
    const path = join(folder, 'a')
    writeFileSync(path, 'Zoë')
    expect(readFileText(path)).toBe('Zoë')
    expect([...readFileBytes(path)]).toEqual([...Buffer.from('Zoë')])
    writeFileSync(path, '')
    expect(readFileText(path)).toBe('')
  })

  it('reads a file of /proc, which says that it is empty', () => {
    expect(readFileText('/proc/self/status')).toContain('Pid:')
  })

  it('refuses what is larger than the limit', () => {
    const path = join(folder, 'a')
    writeFileSync(path, Buffer.alloc(2 ** 20))
    expect(readFileBytes(path, 2 ** 20)).toHaveLength(2 ** 20)
    appendFileSync(path, 'x')
    expect(() => readFileBytes(path, 2 ** 20)).toThrow(`${path} has more than 1 MiB`)
    expect(() => readFileBytes('/proc/self/status', 4)).toThrow('/proc/self/status has more than')
  })

  it('refuses at once what is no regular file, also behind a link', async () => {
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

  it('says what Node says of a file that is missing', async () => {
    const path = join(folder, 'none')
    expect(() => openFile(path)).toThrow(expect.objectContaining({ code: 'ENOENT' }))
    await expect(openFileHandle(path)).rejects.toMatchObject({ code: 'ENOENT' })
  })
})

describe('makeFolders', () => {
  it('makes folders in folders, and returns the first that it made', () => {
    expect(makeFolders(join(folder, 'a/b/c'))).toBe(join(folder, 'a'))
    expect(makeFolders(join(folder, 'a/b/c/d'))).toBe(join(folder, 'a/b/c/d'))
    expect(makeFolders(join(folder, 'a/b/c/d'))).toBeUndefined()
    expect(existsSync(join(folder, 'a/b/c/d'))).toBe(true)
  })

  it.each(['/proc/tsrun', '/proc/tsrun/a/b', '/proc/self/tsrun/a'])(
    'gives up at once in %s',
    (path) => {
      expect(() => makeFolders(path)).toThrow(
        /^the file system of \/proc(\/self)? has no place for new/,
      )
    },
  )

  it('refuses what is there already and is no folder', () => {
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
