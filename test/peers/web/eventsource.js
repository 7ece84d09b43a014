// Reads the events of URL, one of which it answers by leaving, and prints what
// it has seen as JSON.
const { EventSource } = require('undici')

const seen = []
const source = new EventSource(process.env.URL)
source.onopen = () => seen.push('open')
source.onmessage = e => seen.push(`message ${e.data}`)
source.addEventListener('end', e => {
  seen.push(`end ${e.lastEventId}`)
  source.close()
  console.log(JSON.stringify(seen))
})
source.onerror = () => seen.push('error')
