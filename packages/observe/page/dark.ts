import { useEffect, useState } from 'preact/hooks'

const dark = window.matchMedia('(prefers-color-scheme: dark)')

/** Whether colours are dark; what is drawn on a canvas has to be drawn again when that changes. */
export function useDark(): boolean {
  const [isDark, setDark] = useState(dark.matches)
  useEffect(() => {
    const follow = (): void => {
      setDark(dark.matches)
    }
    dark.addEventListener('change', follow)
    return () => {
      dark.removeEventListener('change', follow)
    }
  }, [])
  return isDark
}
