// Talks to the web socket at URL by the client that CLIENT names, and prints
// what it has seen as JSON: it says what SAY has, a message each, and closes the
// socket with CODE after as many answers; without CODE it waits for the server.
const WebSocket = process.env.CLIENT === 'ws' ? require('ws') : require('undici').WebSocket

const say = JSON.parse(process.env.SAY)
const seen = []
let answers = 0
const s = new WebSocket(process.env.URL, ['echo.v1'])
s.binaryType = 'arraybuffer'
s.addEventListener('open', () => {
  seen.push(`open ${s.protocol}`)
  for (const text of say) s.send(text)
})
s.addEventListener('message', e => {
  seen.push(typeof e.data === 'string' && e.data.length < 100 ? e.data : `${e.data.length ?? e.data.byteLength} of it`)
  if (++answers === say.length && process.env.CODE) s.close(Number(process.env.CODE), 'bye')
})
s.addEventListener('close', e => {
  seen.push(`close ${e.code} ${e.reason} ${e.wasClean}`)
  console.log(JSON.stringify(seen))
})
s.addEventListener('error', e => seen.push(`error ${e.message}`))
