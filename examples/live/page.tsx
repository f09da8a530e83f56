import type { JSX } from 'preact'
import { useState } from 'preact/hooks'
import type { LinkCosts } from './collective.ts'
import { CollectiveSection } from './collective-section.tsx'
import { FaultsSection } from './faults-section.tsx'
import { PingPongSection } from './ping-pong-section.tsx'
import { PipelineSection } from './pipeline-section.tsx'

/** A network of a cluster: 10 µs and 1 GB/s. */
const initialCosts: LinkCosts = { latency: 0.01, bandwidth: 1 }

export function Page(): JSX.Element {
  const [costs, setCosts] = useState(initialCosts)
  return (
    <>
      <header>
        <h1>torch.distributed in a web page</h1>
        <p>
          This page runs the engine, the schedules and the kernels of tsrun, as they run on a
          cluster, with all ranks in this tab. Nothing is installed, and nothing leaves the page.
        </p>
      </header>
      <main>
        <CollectiveSection costs={costs} onCosts={setCosts} />
        <PingPongSection onCosts={setCosts} />
        <PipelineSection costs={costs} onCosts={setCosts} />
        <FaultsSection />
      </main>
    </>
  )
}
