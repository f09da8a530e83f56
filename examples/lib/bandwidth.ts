const GIB = 2 ** 30

/** One operation measured, by both accounts. */
export interface Bandwidth {
  readonly seconds: number
  /** What the lecture calls the bytes that were sent, over all ranks. */
  readonly sentBytes: number
  /** The lecture's figure in GiB/s (it prints "GB/s"). */
  readonly lecture: number
  /** nccl-tests' bus bandwidth in GiB/s, to compare with the lecture's. */
  readonly busbw: number
}

/**
 * `lecture_08.py` of CS336: the bytes of each rank's tensor, twice (in and out), to and from n - 1
 * others, over n times the duration. It is nccl-tests' busbw, 2(n-1)/n S / t.
 *
 * @param bytes - of the buffer S that is all-reduced
 */
export function allReduceBandwidth(bytes: number, ranks: number, seconds: number): Bandwidth {
  const sentBytes = bytes * 2 * (ranks - 1)
  return {
    seconds,
    sentBytes,
    lecture: sentBytes / (ranks * seconds) / GIB,
    busbw: (bytes * 2 * (ranks - 1)) / ranks / seconds / GIB,
  }
}

/**
 * The lecture takes the bytes of the output, the nth part of the input; busbw is (n-1)/n S / t with
 * the bytes S of the input.
 *
 * @param bytes - of the output
 */
export function reduceScatterBandwidth(bytes: number, ranks: number, seconds: number): Bandwidth {
  const sentBytes = bytes * (ranks - 1)
  return {
    seconds,
    sentBytes,
    lecture: sentBytes / (ranks * seconds) / GIB,
    busbw: (bytes * ranks * (ranks - 1)) / ranks / seconds / GIB,
  }
}
