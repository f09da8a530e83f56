import {
  chmodSync,
  chownSync,
  closeSync,
  lstatSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { distrustOf, makeOwnFolder, openOwnFile, replaceFile } from '@tsrun/core'
import { needing } from '../needs.ts'

const folder = mkdtempSync(join(tmpdir(), 'tsrun-private-'))
const victim = join(folder, 'victim')
beforeEach(() => {
  rmSync(folder, { recursive: true })
  mkdirSync(folder)
  writeFileSync(victim, 'precious')
})
afterAll(() => {
  rmSync(folder, { recursive: true })
})

const rightsOf = (path: string): string => (lstatSync(path).mode & 0o777).toString(8)

it('a private file is not written through a link', () => {
  const path = join(folder, 'log')
  symlinkSync(victim, path)
  expect(() => openOwnFile(path)).toThrow('is a symbolic link, which is not followed')
  expect(readFileSync(victim, 'utf8')).toBe('precious')
})

it('private files and folders have access rights only for their user', () => {
  const inner = join(folder, 'a', 'b')
  makeOwnFolder(inner)
  closeSync(openOwnFile(join(inner, 'log')))
  replaceFile(join(inner, 'record'), 'x')
  expect(
    [join(folder, 'a'), inner, join(inner, 'log'), join(inner, 'record')].map(rightsOf),
  ).toEqual(['700', '700', '600', '600'])
})

it('a file is replaced atomically, and a link at its path is not followed', () => {
  const path = join(folder, 'record')
  symlinkSync(victim, path)
  replaceFile(path, 'new', 0o640)
  expect([readFileSync(path, 'utf8'), readFileSync(victim, 'utf8')]).toEqual(['new', 'precious'])
  expect(rightsOf(path)).toBe('640')
  expect(() => {
    replaceFile(join(folder, 'none', 'record'), 'x')
  }).toThrow('ENOENT')
  expect(readdirSync(folder).toSorted()).toEqual(['record', 'victim'])
})

describe('a folder with code', () => {
  it('is trusted if it belongs to the user, or does not exist', () => {
    expect(distrustOf(folder)).toBeUndefined()
    expect(distrustOf(join(folder, 'none'))).toBeUndefined()
  })

  it('is not trusted if every user can write to it', () => {
    chmodSync(folder, 0o777)
    expect(distrustOf(folder)).toBe('every user of this host can write to it')
  })

  const isRoot = process.geteuid?.() === 0
  needing(isRoot, 'root, who alone can make such a file').it(
    'is not trusted if it is that of another user',
    () => {
      chownSync(folder, 12_345, 12_345)
      expect(distrustOf(folder)).toBe('it belongs to the user with the number 12345')
      chownSync(folder, 0, 0)
    },
  )
})
