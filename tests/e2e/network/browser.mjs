// The browser of a user: what it holds and says of itself, for pages that look at that.
import http from 'node:http'
import { json, text } from 'node:stream/consumers'

const API = '/@atproto/oauth-provider/~api'

class Browser {
  #cookies = new Map()
  #page

  // Goes to a page, from another site or from the page that it shows; where that leads, if elsewhere.
  async open(url, site) {
    const answer = await this.#ask(url, { 'sec-fetch-site': site, 'sec-fetch-mode': 'navigate', 'sec-fetch-dest': 'document' })
    if (answer.statusCode >= 400) throw new Error(`${url}: ${answer.statusCode} ${await text(answer)}`)
    answer.resume()
    this.#page = url
    return answer.headers.location
  }

  // What a script of the page sends to where the page came from.
  async post(path, body, authorization) {
    const { origin } = new URL(this.#page)
    const headers = {
      origin,
      'content-type': 'application/json',
      'sec-fetch-site': 'same-origin',
      'sec-fetch-mode': 'same-origin',
      'sec-fetch-dest': 'empty',
      'x-csrf-token': this.#cookies.get('csrf-token'),
      ...(authorization && { authorization }),
    }
    const answer = await this.#ask(origin + path, headers, JSON.stringify(body))
    if (answer.statusCode >= 400) throw new Error(`${path}: ${answer.statusCode} ${await text(answer)}`)
    return json(answer)
  }

  // Not by fetch(), which says by itself what kind of request it is.
  async #ask(url, headers, body) {
    const cookie = [...this.#cookies].map(([name, value]) => `${name}=${value}`).join('; ')
    const about = { ...headers, ...(cookie && { cookie }), ...(this.#page && { referer: this.#page }) }
    const answer = await new Promise((resolve, reject) => {
      http.request(url, { method: body ? 'POST' : 'GET', headers: about }, resolve).on('error', reject).end(body)
    })
    for (const line of answer.headers['set-cookie'] ?? []) {
      const [name, value] = line.split(';')[0].split('=')
      this.#cookies.set(name, value)
    }
    return answer
  }
}

// Signs in on the page of the PDS that an app has sent its user to, and agrees to all that the app asks for.
// Where the browser is sent then: the app's own address, with the code.
export async function consent(url, username, password) {
  const browser = new Browser()
  await browser.open(url, 'cross-site')
  const { account, ephemeralToken } = await browser.post(`${API}/sign-in`, { locale: 'en', username, password })
  const agreed = await browser.post(`${API}/consent`, { did: account.did }, `Bearer ${ephemeralToken}`)
  return new URL(await browser.open(agreed.url, 'same-origin'))
}
