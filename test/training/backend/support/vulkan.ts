import { spawnSync } from 'node:child_process'
import { existsSync } from 'node:fs'
import { delimiter } from 'node:path'
import { fileURLToPath } from 'node:url'

const folder = fileURLToPath(new URL('../../../../node_modules/.cache/vulkan', import.meta.url))

/** The driver that scripts/vulkan-driver.sh brings, else the ones of the machine. */
function candidates(): Record<string, string>[] {
  const description = `${folder}/vk_swiftshader_icd.json`
  const libraries = [folder, process.env['LD_LIBRARY_PATH']].filter(Boolean).join(delimiter)
  const fetched = { VK_ICD_FILENAMES: description, LD_LIBRARY_PATH: libraries }
  return existsSync(description) ? [fetched] : [{}]
}

const probe = `
  const { create } = await import('webgpu')
  const gpu = create([])
  process.exit((await gpu.requestAdapter()) === null ? 1 : 0)`

/** What a process needs in its environment to use webgpu; undefined where no driver is there. */
export const vulkan = candidates().find(
  (env) =>
    spawnSync(process.execPath, ['--input-type=module', '-e', probe], {
      env: { ...process.env, ...env, NODE_OPTIONS: '' },
    }).status === 0,
)
