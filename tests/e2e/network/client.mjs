// An app on `@atproto/api`: signs in to a PDS, and asks one service through it.
//   node client.mjs < PLAN      PLAN: {pds, identifier, password, lexicons, did, service, calls}
// `lexicons` are documents, `service` is the part of the service's DID document that answers, and `calls` are
// [name, parameters] for a query, [name, parameters, body] for a procedure, or ["write", record]: the record is written,
// and the list of the writer's own records asked for until `Atproto-Repo-Rev` has caught up with that commit.
// Prints one line of JSON for each call: {data, headers}, {error, status, message}, or {uri, rev, data, headers} of a write.
import { text } from 'node:stream/consumers'
import { AtpAgent, XRPCError } from '@atproto/api'

const NAMESPACE = 'dev.bastienrobert.memory.'
const PATIENCE_MS = 30_000

const plan = JSON.parse(await text(process.stdin))
const agent = new AtpAgent({ service: plan.pds })
await agent.login({ identifier: plan.identifier, password: plan.password })
const service = agent.withProxy(plan.service, plan.did)
for (const document of plan.lexicons) service.lex.add(document)

const shown = ({ data, headers }) => ({ data, headers })

async function ask(name, parameters, body) {
  try {
    const options = body === undefined ? undefined : { encoding: 'application/json' }
    return shown(await service.call(NAMESPACE + name, parameters, body, options))
  } catch (failure) {
    if (!(failure instanceof XRPCError)) throw failure
    return { error: failure.error, status: failure.status, message: failure.message }
  }
}

async function write(record) {
  const repo = agent.assertDid
  const written = await agent.com.atproto.repo.createRecord({ repo, collection: NAMESPACE + 'record', record })
  const { uri, commit } = written.data
  for (const started = performance.now(); performance.now() - started < PATIENCE_MS; ) {
    const answer = await ask('listRecords', { repo: [repo] })
    if (answer.error) throw new Error(answer.message)
    if ((answer.headers['atproto-repo-rev'] ?? '') >= commit.rev) return { uri, rev: commit.rev, ...answer }
    await new Promise((resolve) => setTimeout(resolve, 50))
  }
  throw new Error('Atproto-Repo-Rev never caught up')
}

for (const [name, ...given] of plan.calls) {
  console.log(JSON.stringify(await (name === 'write' ? write(...given) : ask(name, ...given))))
}
