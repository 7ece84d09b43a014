'use strict'

// What both clients do with a request: they send it, read the answer, and print
// one line of JSON with its status and what it carried.

const http = require('http')

// get calls url and gives the status and the headers of the request, with those
// that a library has put into it.
function get (url, headers = {}) {
  return new Promise((resolve, reject) => {
    const request = http.get(url, { headers }, response => {
      response.resume()
      response.on('end', () => resolve({ status: response.statusCode, headers: { ...request.getHeaders() } }))
    })
    request.on('error', reject)
  })
}

// targets are the URLs to call, one after another.
const targets = process.env.TARGETS.split(' ')

function say (line) { console.log(JSON.stringify(line)) }

module.exports = { get, targets, say }
