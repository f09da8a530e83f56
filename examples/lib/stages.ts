import type { LayerRange } from '@tsrun/training'
import { schedule, type ScheduleName } from '@tsrun/training/planning'
import { endWith, integer, isFirst } from './flags.ts'
import { percent, wrap } from './output.ts'

/** `Layers by rank: 0 to 6; 7 to 15`. @param ranges - of each rank, one for each of its stages */
export function describeLayers(ranges: readonly (readonly LayerRange[])[]): string {
  const shown = ({ from, to }: LayerRange): string =>
    to - from === 1 ? String(from) : `${from} to ${to - 1}`
  return `Layers by rank: ${ranges.map((own) => own.map(shown).join(', ')).join('; ')}`
}

/** The flag `--stages`, of all ranks together; 0: as many as the schedule has by default. */
export const stagesFlag = integer(0)

interface Sizes {
  readonly stages: number
  readonly ranks: number
  readonly layers: number
  readonly microbatches: number
}

/** The ranks of this job, which may not have started yet. */
export function ranksOfJob(): number {
  return Number(process.env['WORLD_SIZE'] ?? 1)
}

/** Ends the process with exit code 2 if there are more ranks than layers. */
export function checkRanks(layers: number, ranks = ranksOfJob()): void {
  if (ranks <= layers) return
  endWith(`${layers} layers are too few for ${ranks} ranks: start it with --nproc ${layers}`)
}

/** The largest number of ranks, up to `ranks`, that divides each of `sizes`. */
export function ranksThatDivide(sizes: readonly number[], ranks: number): number {
  let fit = ranks
  while (sizes.some((size) => size % fit !== 0)) fit--
  return fit
}

/** Ends the process with exit code 2 if a size does not divide by the ranks of this job. */
export function checkDivides(flag: string, size: number, ranks = ranksOfJob()): void {
  const fit = ranksThatDivide([size], ranks)
  if (fit === ranks) return
  endWith(`--${flag} ${size} does not divide by ${ranks} ranks: start it with --nproc ${fit}`)
}

/**
 * Where `--stages` differs from the ranks of the job: predicts how long so many ranks would be idle, and
 * ends the process.
 */
export function predictStages(
  name: ScheduleName,
  { stages, layers, microbatches }: Omit<Sizes, 'ranks'>,
): void {
  if (stages === 0 || stages === ranksOfJob()) return
  if (stages > layers) endWith(`--layers ${layers} are too few for --stages ${stages}`)
  const { bubble } = schedule(name, { stages, microbatches }).simulate()
  const wanted = `${name} with ${stages} stages and ${microbatches} micro-batches`
  const ideal = `would ideally be idle for ${percent(bubble)} of the time, with a core for each rank`
  if (isFirst()) console.log(wrap(`${wanted} ${ideal}. Start it with --nproc ${stages}.`))
  process.exit(0)
}

/**
 * Ends the process with exit code 2 if the ranks cannot have so many stages in this schedule, and says
 * how many ranks could.
 */
export function checkStages(
  name: ScheduleName,
  { stages, ranks, layers, microbatches }: Sizes,
): void {
  if (stages === 0) return
  if (stages > layers) endWith(`--layers ${layers} are too few for --stages ${stages}`)
  let hint = ''
  try {
    const wanted = schedule(name, { stages, microbatches })
    const { bubble } = wanted.simulate()
    hint =
      `Start it with --nproc ${wanted.actions.length}. With a core for each of these ranks, they would ` +
      `ideally be idle for ${percent(bubble)} of the time.`
    schedule(name, { stages, ranks, microbatches })
  } catch (error) {
    // The first sentence says what is wrong; the others are for the author of a call.
    const [problem] = (error as Error).message.split('. ')
    endWith(`--${problem!}.\n${wrap(hint)}`)
  }
}

/**
 * The option `chunks` of a pipeline, for stages that `checkStages` accepts; undefined if the schedule
 * leaves no choice.
 */
export function chunksOf(
  name: ScheduleName,
  { stages, ranks }: Pick<Sizes, 'stages' | 'ranks'>,
): number | undefined {
  if (stages === 0) return undefined
  try {
    schedule(name, { stages: 3, ranks: 1, microbatches: 1 })
  } catch {
    return undefined
  }
  return stages / ranks
}
