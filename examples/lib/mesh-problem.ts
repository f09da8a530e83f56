interface Sizes {
  readonly dp: number
  readonly pp: number
  readonly tp: number
  readonly cp: number
  readonly between: 'replicated' | 'sequence'
  readonly batch: number
  readonly block: number
  readonly layers: number
  readonly heads: number
  readonly width: number
}

/** Which number of a GPT does not divide by which axis of a mesh, if any. */
export function meshProblem(sizes: Sizes, ranks: number): string | undefined {
  const { dp, pp, tp, cp, between, batch, block, layers, heads, width } = sizes
  const places = dp * pp * cp * tp
  const perRank = block / cp
  const checks: readonly (readonly [isGood: boolean, problem: string])[] = [
    [
      places === ranks,
      `a mesh of dp ${dp}, pp ${pp}, cp ${cp} and tp ${tp} has ${places} places, and the job ${ranks} ranks`,
    ],
    [batch % dp === 0, `--batch ${batch} does not divide by ${dp} replicas`],
    [pp <= layers, `--layers ${layers} are too few for --pp ${pp} stages`],
    [width % heads === 0, `--width ${width} does not divide by --heads ${heads}`],
    [heads % tp === 0, `--heads ${heads} do not divide by --tp ${tp} ranks`],
    [
      cp === 1 || block % (2 * cp) === 0,
      `--block ${block} does not divide by ${2 * cp}, two chunks for each of --cp ${cp} ranks`,
    ],
    [
      between === 'replicated' || perRank % tp === 0,
      `${perRank} positions a rank do not divide by --tp ${tp}, as --between sequence asks for`,
    ],
  ]
  return checks.find(([isGood]) => !isGood)?.[1]
}
