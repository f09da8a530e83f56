import { tsrError } from '@tsrun/core'

/** Layers `from` up to, but without, `to`. */
export interface LayerRange {
  readonly from: number
  readonly to: number
}

/**
 * Cuts `layers` layers into `stages` runs of neighbours, as even as can be; the first stages take
 * one more when they don't divide.
 *
 * @example
 * splitLayers(16, 3) // [{ from: 0, to: 6 }, { from: 6, to: 11 }, { from: 11, to: 16 }]
 *
 * @throws ERR_TSR_STAGES when there are more stages than layers
 */
export function splitLayers(layers: number, stages: number): LayerRange[] {
  for (const [name, value] of Object.entries({ layers, stages })) {
    if (!Number.isSafeInteger(value) || value < 1) {
      throw tsrError('ERR_TSR_ARGUMENT', { name, value, expected: 'a whole number from 1' })
    }
  }
  if (stages > layers) throw tsrError('ERR_TSR_STAGES', { layers, stages })
  const each = Math.floor(layers / stages)
  const more = layers % stages
  const start = (stage: number): number => stage * each + Math.min(stage, more)
  return Array.from({ length: stages }, (_, stage) => ({
    from: start(stage),
    to: start(stage + 1),
  }))
}
