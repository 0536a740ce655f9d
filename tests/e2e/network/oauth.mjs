// An app on `@atproto/oauth-client-node`, and the browser of its user, who signs in at the PDS and consents.
//   node oauth.mjs < PLAN      PLAN: {pds, plc, did, identifier, password, scope, lexicons, service, calls}
// The app is a native one, which no page on the web describes. It knows its user by `did`, asks the PDS for `scope`, and then
// the service through the PDS; `lexicons`, `service`, `calls` and what is printed of them are as in client.mjs, but for writes.
// A line before those tells what the PDS has granted: {did, scope}.
import { text } from 'node:stream/consumers'
import { Agent } from '@atproto/api'
import { NodeOAuthClient } from '@atproto/oauth-client-node'
import { ask, serviceOf } from './ask.mjs'
import { consent } from './browser.mjs'

const REDIRECT = 'http://127.0.0.1:9/callback' // nobody listens there: what the browser is sent to is read, not fetched

class Memory extends Map {
  del(key) {
    this.delete(key)
  }
}

const plan = JSON.parse(await text(process.stdin))
const query = new URLSearchParams({ redirect_uri: REDIRECT, scope: plan.scope })
const client = new NodeOAuthClient({
  clientMetadata: {
    client_id: `http://localhost?${query}`,
    redirect_uris: [REDIRECT],
    scope: plan.scope,
    response_types: ['code'],
    grant_types: ['authorization_code', 'refresh_token'],
    application_type: 'native',
    token_endpoint_auth_method: 'none',
    dpop_bound_access_tokens: true,
  },
  allowHttp: true,
  plcDirectoryUrl: plan.plc,
  handleResolver: plan.pds,
  stateStore: new Memory(),
  sessionStore: new Memory(),
  requestLock: (_, run) => run(),
})
const signIn = await client.authorize(plan.did, { scope: plan.scope })
const sentBack = await consent(signIn, plan.identifier, plan.password)
const { session } = await client.callback(sentBack.searchParams)
const { sub: did, scope } = await session.getTokenInfo()
console.log(JSON.stringify({ did, scope }))

const service = serviceOf(new Agent(session), plan)
for (const call of plan.calls) console.log(JSON.stringify(await ask(service, ...call)))
