// The program of the page, and of the workers that it starts.
import { render } from 'preact'
import { Page } from './page.tsx'
import { serveRank } from './worker.ts'

if (typeof document === 'undefined') serveRank()
else render(<Page />, document.getElementById('page')!)
