import { existsSync, readdirSync } from 'node:fs'
import { join } from 'node:path'
import { formatBytes, formatRanks } from '@tsrun/core'
import { parseSpanFileName, spansFolder, TRACE_FILE } from '@tsrun/distributed/record'
import type { OutputOptions, TraceOptions } from './args/output-options.ts'
import { quoted, usageError } from './args/readers.ts'
import { watchGpus } from './gpu-use.ts'
import type { Job } from './job/job.ts'
import type { Interrupts } from './job/process/interrupts.ts'
import {
  cpuSeconds,
  residentBytes,
  ratesOf,
  useOf,
  type RankUse,
} from './job/process/process-use.ts'
import type { Announcer } from './logs/console.ts'
import { type RankLineReader, withoutCodes } from './logs/lines.ts'
import { findPackage, loadPackage } from './optional-package.ts'

type Observe = typeof import('@tsrun/observe')

const OBSERVE = '@tsrun/observe'

/** @param what - the feature that needs @tsrun/observe @throws the errors of `loadPackage` */
export async function loadObserve(what: string, cwd: string): Promise<Observe> {
  return (await loadPackage(OBSERVE, what, cwd)) as Observe
}

interface Place {
  readonly env: NodeJS.ProcessEnv
  readonly cwd: string
  readonly interrupts: Interrupts
}

/** Opens the servers that show the state of a job. */
export async function openWatchers(
  { dashboard: page, metrics: endpoint, trace }: OutputOptions,
  { script, program }: Job,
  { env, cwd, interrupts: { stop } }: Place,
  announcer: Announcer,
) {
  if (page === undefined && endpoint === undefined) {
    return { dashboard: undefined, metrics: undefined, onLine: undefined }
  }
  const observe = await loadObserve(page === undefined ? '--metrics' : '--dashboard', cwd)
  const host = observeHost(env, stop, announcer)
  const refuse = (source: string) => (cause: unknown) => {
    throw usageError(`${source}: ${(cause as Error).message}`, cause)
  }
  const traces = trace?.directory ?? ''
  const command = [program.script, ...program.arguments].map(quoted).join(' ')
  const dashboard =
    page &&
    (await observe
      .openJobDashboard({ ...page, script, command, traces }, host)
      .catch(refuse(`--dashboard ${page.port}`)))
  try {
    const metrics =
      endpoint &&
      (await observe
        .openJobMetrics({ ...endpoint, script }, host)
        .catch(refuse(`--metrics ${endpoint.host}:${endpoint.port}`)))
    const onLine: RankLineReader | undefined =
      dashboard &&
      ((rank, stream, { text }) => {
        dashboard.addLine({ rank, stream, text: withoutCodes(text) })
      })
    return { dashboard, metrics, onLine }
  } catch (error) {
    await dashboard?.close()
    throw error
  }
}

function observeHost(
  env: NodeJS.ProcessEnv,
  stop: AbortSignal,
  announcer: Announcer,
): Parameters<Observe['openJobDashboard']>[1] {
  const gpus = watchGpus(env, stop)
  let before: ReadonlyMap<number, RankUse> = new Map()
  return {
    stop,
    say: (...said) => {
      announcer.say(...said)
    },
    ratesOf: (ranks) => {
      void gpus.ask()
      const now = new Map(ranks.map((rank) => [rank.pid, useOf(rank, gpus.latest)]))
      const rates = [...now].map(([pid, use]) => [pid, ratesOf(pid, before.get(pid), use)] as const)
      before = now
      return new Map(rates)
    },
    cpuSeconds,
    residentBytes,
  }
}

/** Merges the span files of a run and announces the result. */
export async function finishTrace(
  { directory, steps, bytes }: TraceOptions,
  runId: string,
  cwd: string,
  announcer: Announcer,
): Promise<void> {
  const file = join(directory, TRACE_FILE)
  try {
    const observe = (await findPackage(OBSERVE, cwd)) as Observe | undefined
    if (observe === undefined) {
      const text = `trace: the spans are in ${directory}; \`npm install ${OBSERVE}\`, then \`tsrun trace ${directory}\` merges and summarizes them`
      announcer.say('trace', text, { directory })
      return
    }
    const merged = observe.mergeTrace([directory], runId, file)
    if (merged === undefined || merged.spans === 0) {
      const reason =
        merged !== undefined && steps !== undefined
          ? `no rank has reported such a step (--trace-steps ${steps})`
          : merged === undefined && existsSync(spansFolder(directory, runId))
            ? 'no rank could write to its file'
            : 'only ranks that call initProcessGroup() are traced'
      announcer.say('trace', `the trace is empty: ${reason}`, { directory })
      return
    }
    const { spans, ranks } = merged
    const files = readdirSync(spansFolder(directory, runId))
    if (files.some((name) => (parseSpanFileName(name)?.part ?? 0) > 0)) {
      const text = `trace: it begins late, because a rank has written more than ${formatBytes(bytes)}; --trace-steps or --trace-max-size keeps more`
      announcer.say('trace', text, { directory })
    }
    announcer.say(
      'trace',
      `trace: ${file} (${spans.toLocaleString('en')} spans of ${formatRanks(ranks)}), ` +
        `which https://ui.perfetto.dev opens; tsrun trace ${directory} summarizes it`,
      { file, spans, ranks: ranks.size },
    )
  } catch (error) {
    announcer.say('trace', `trace: ${file} could not be written: ${(error as Error).message}`)
  }
}
