// An app on `@atproto/api`: signs in to a PDS, and asks one service through it.
//   node client.mjs < PLAN      PLAN: {pds, identifier, password, lexicons, service, calls}
// `lexicons` are documents, `service` is [the part of its DID document that answers, its DID], and `calls` are
// [name, parameters] for a query, [name, parameters, body] for a procedure, or ["write", record]: the record is written,
// and the list of the writer's own records asked for until `Atproto-Repo-Rev` has caught up with that commit.
// Prints one line of JSON for each call: {data, headers}, {error, status, message}, or {uri, rev, data, headers} of a write.
import { text } from 'node:stream/consumers'
import { AtpAgent } from '@atproto/api'
import { NAMESPACE, ask, serviceOf } from './ask.mjs'

const PATIENCE_MS = 30_000

const plan = JSON.parse(await text(process.stdin))
const agent = new AtpAgent({ service: plan.pds })
await agent.login({ identifier: plan.identifier, password: plan.password })
const service = serviceOf(agent, plan)

async function write(record) {
  const repo = agent.assertDid
  const written = await agent.com.atproto.repo.createRecord({ repo, collection: NAMESPACE + 'record', record })
  const { uri, commit } = written.data
  for (const started = performance.now(); performance.now() - started < PATIENCE_MS; ) {
    const answer = await ask(service, 'listRecords', { repo: [repo] })
    if (answer.error) throw new Error(answer.message)
    if ((answer.headers['atproto-repo-rev'] ?? '') >= commit.rev) return { uri, rev: commit.rev, ...answer }
    await new Promise((resolve) => setTimeout(resolve, 50))
  }
  throw new Error('Atproto-Repo-Rev never caught up')
}

for (const [name, ...given] of plan.calls) {
  console.log(JSON.stringify(await (name === 'write' ? write(...given) : ask(service, name, ...given))))
}
