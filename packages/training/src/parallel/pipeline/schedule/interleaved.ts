import type { Action } from './action.ts'

/**
 * One rank's share of interleaved 1F1B (Narayanan et al., Megatron-LM, 2021): of the stages, dealt
 * out in turn, rank r has r, r + ranks, r + 2 ranks and so on, its chunks. Micro-batches go in groups
 * of as many as there are ranks through one chunk, then through the next; after a warm-up one forward
 * and one backward alternate. With v chunks a rank the bubble is that of 1F1B divided by v, for v
 * times the messages.
 *
 * Where the micro-batches do not divide by the ranks, all forwards come first.
 */
export function interleaved(
  rank: number,
  ranks: number,
  microbatches: number,
  chunks: number,
): Action[] {
  const visits = visitsOf(ranks, chunks, microbatches)
  const forwards = visits.map(({ chunk, microbatch }): Action => ({
    kind: 'F',
    stage: chunk * ranks + rank,
    microbatch,
  }))
  const backwards = visits.map(({ chunk, microbatch }): Action => ({
    kind: 'B',
    stage: (chunks - 1 - chunk) * ranks + rank,
    microbatch,
  }))
  const total = visits.length
  const warmup =
    microbatches % ranks === 0
      ? Math.min(2 * (ranks - rank - 1) + (chunks - 1) * ranks, total)
      : total
  const steady = forwards.slice(warmup).flatMap((forward, i) => [forward, backwards[i]!])
  return [...forwards.slice(0, warmup), ...steady, ...backwards.slice(total - warmup)]
}

/** The order in which micro-batches come to the chunks of a rank. */
function visitsOf(
  ranks: number,
  chunks: number,
  microbatches: number,
): { chunk: number; microbatch: number }[] {
  const visits: { chunk: number; microbatch: number }[] = []
  for (let first = 0; first < microbatches; first += ranks) {
    const end = Math.min(first + ranks, microbatches)
    for (let chunk = 0; chunk < chunks; chunk++) {
      for (let microbatch = first; microbatch < end; microbatch++)
        visits.push({ chunk, microbatch })
    }
  }
  return visits
}
