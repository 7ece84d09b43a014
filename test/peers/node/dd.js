'use strict'

// A client that Datadog's own library traces. It makes one trace for each of
// TARGETS: a span "client.work", and below it the library's span of the request.
// AGENT is the agent's URL. DD_TRACE_SAMPLE_RATE=0 keeps none of the traces.

const tracer = require('dd-trace').init({ url: process.env.AGENT, service: 'node-dd', flushInterval: 0 })
tracer.use('net', false) // no span of a connection, which not every request has
tracer.use('dns', false)
const { get, targets, say } = require('./call')

async function main () {
  for (const target of targets) {
    await tracer.trace('client.work', async span => {
      const context = span.context()
      say({ trace: context.toTraceId(true).padStart(32, '0'), span: context.toSpanId(true), ...await get(target) })
    })
  }
}

main().catch(error => { console.error(error); process.exitCode = 1 })
