import { readFileSync } from 'node:fs'
import { parse } from 'yaml'

const textOf = (path: string): string =>
  readFileSync(new URL(`../../${path}`, import.meta.url), 'utf8')

const container = JSON.parse(textOf('.devcontainer/devcontainer.json')) as {
  readonly image: string
  readonly init: boolean
  readonly runArgs: readonly string[]
  readonly postCreateCommand: string
}

it('the development container has the same Node version as .nvmrc and the Dockerfile', () => {
  const [, version] = /^node:(\d+)-\w+$/.exec(container.image)!
  expect(textOf('.nvmrc').trim()).toBe(version)
  expect(textOf('Dockerfile')).toContain(`\nARG NODE=${container.image}-slim\n`)
})

it('the development container has the same shared memory and init as the Compose file', () => {
  const { 'x-node': node } = parse(textOf('docker-compose.yml')) as {
    readonly 'x-node': { readonly init: boolean; readonly shm_size: string }
  }
  expect(container.init).toBe(node.init)
  expect(container.runArgs.map((argument) => `${argument}b`)).toEqual([
    `--shm-size=${node.shm_size}`,
  ])
})

it('the development container installs and builds as CONTRIBUTING.md says', () => {
  expect(textOf('CONTRIBUTING.md')).toContain(`\n${container.postCreateCommand} `)
})
