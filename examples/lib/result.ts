type Figure = number | string | boolean | readonly Figure[]

/** Prints the line that every example ends with: its figures as JSON, numbers to four digits or more. */
export function printResult(figures: Readonly<Record<string, Figure>>, digits = 4): void {
  const short = (_key: string, value: unknown): unknown =>
    typeof value === 'number' ? Number(value.toPrecision(digits)) : value
  console.log(`result ${JSON.stringify(figures, short)}`)
}
