import { type TensorBackend, tf } from '@tsrun/training/backends'
import { currentEager, type Eager } from './eager.ts'

type Backend = Required<TensorBackend>

/** Operations of tsrun for transformers, which read and write each value as few times as possible. */
const passes: Pick<Backend, 'normalize' | 'gate' | 'attention'> = {
  normalize(epsilon, x, scale, shift) {
    const centers = shift !== undefined
    const inputs = [x, scale, shift ?? scale]
    const [value, statistics] = operate('TsrunNormalize', { epsilon, centers }, inputs, 2)
    return {
      value: value!,
      saved: [x, scale, statistics!],
      gradients(dy, saved) {
        const all = operate('TsrunNormalizeGradient', { centers }, [dy, ...saved], 3)
        return centers ? all : all.slice(0, 2)
      },
    }
  },

  gate(input, linear, cubic) {
    const x = input.dtype === 'float32' ? input : tf.cast(input, 'float32')
    const [value, slope] = operate('TsrunGate', { linear, cubic }, [x], 2)
    return {
      value: value!,
      saved: [slope!],
      gradients: (dy, [slope]) => [tf.mul(dy, slope!)],
    }
  },

  attention(rows, size) {
    const [value, statistics] = operate('TsrunAttention', { size }, [rows], 2)
    return {
      value: value!,
      saved: [rows, statistics!],
      gradients: (dy, saved) => operate('TsrunAttentionGradient', { size }, [...saved, dy], 1),
    }
  },
}

const operate: Eager['operate'] = (...given) => currentEager()!.operate(...given)

/** The passes by operations of tsrun; undefined on a GPU, or if the binding is from before them. */
export function operations(): typeof passes | undefined {
  return currentEager()?.hasOperations === true ? passes : undefined
}
