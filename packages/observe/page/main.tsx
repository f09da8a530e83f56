import { render } from 'preact'
import 'uplot/dist/uPlot.min.css'
import './page.css'
import { Page } from './page.tsx'

render(<Page />, document.body)
