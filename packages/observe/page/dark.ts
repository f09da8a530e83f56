import { useEffect, useState } from 'preact/hooks'

const dark = window.matchMedia('(prefers-color-scheme: dark)')

/** Whether the colour scheme is dark. Canvases must be redrawn when it changes. */
export function useDark(): boolean {
  const [isDark, setDark] = useState(dark.matches)
  useEffect(() => {
    const follow = () => {
      setDark(dark.matches)
    }
    dark.addEventListener('change', follow)
    return () => {
      dark.removeEventListener('change', follow)
    }
  }, [])
  return isDark
}
