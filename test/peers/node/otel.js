'use strict'

// A client that OpenTelemetry's library traces. It makes one trace for each of
// TARGETS: a client span, whose context goes into the request. COLLECTOR is the
// URL that spans go to. UNSAMPLED=1 keeps none of the traces.

const { context, propagation, trace, SpanKind } = require('@opentelemetry/api')
const { OTLPTraceExporter } = require('@opentelemetry/exporter-trace-otlp-proto')
const { resourceFromAttributes } = require('@opentelemetry/resources')
const {
  AlwaysOffSampler, AlwaysOnSampler, NodeTracerProvider, SimpleSpanProcessor
} = require('@opentelemetry/sdk-trace-node')
const { get, targets, say } = require('./call')

const provider = new NodeTracerProvider({
  resource: resourceFromAttributes({ 'service.name': 'node-otel' }),
  sampler: process.env.UNSAMPLED ? new AlwaysOffSampler() : new AlwaysOnSampler(),
  spanProcessors: [new SimpleSpanProcessor(new OTLPTraceExporter({ url: process.env.COLLECTOR + '/v1/traces' }))]
})
provider.register() // W3C trace context and baggage

async function main () {
  for (const target of targets) {
    await trace.getTracer('client').startActiveSpan('client', { kind: SpanKind.CLIENT }, async span => {
      const headers = {}
      propagation.inject(context.active(), headers)
      const { traceId, spanId } = span.spanContext()
      say({ trace: traceId, span: spanId, ...await get(target, headers) })
      span.end()
    })
  }
  await provider.shutdown()
}

main().catch(error => { console.error(error); process.exitCode = 1 })
