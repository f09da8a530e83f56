/** Whether all GPUs are hidden: by an empty list, or an index that there is not (CUDA programming guide). */
export function gpusAreHidden(
  env: Readonly<Record<string, string | undefined>> = process.env,
): boolean {
  const visible = env['CUDA_VISIBLE_DEVICES']
  return visible === '' || visible === '-1'
}
