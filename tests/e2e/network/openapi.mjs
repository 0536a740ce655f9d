// A client of any API, `swagger-client`: it reads an OpenAPI document, and makes requests of what is given for operations.
//   node openapi.mjs < PLAN      PLAN: {url, calls}
// `url` is the document's, and `calls` are {path, method, parameters, body, credentials}: an operation of it, values for its
// parameters by name, its body, if it has one, and what is presented by the name of a security scheme.
// Prints one line of JSON for each call: {status, type, body}.
import { text } from 'node:stream/consumers'
import SwaggerClient from 'swagger-client'

const plan = JSON.parse(await text(process.stdin))
const client = await SwaggerClient(plan.url)
if (client.errors.length) throw new AggregateError(client.errors, 'the document is not understood')

for (const { path, method, parameters, body, credentials } of plan.calls) {
  const answer = await client
    .execute({
      pathName: path,
      method,
      parameters,
      ...(body && { requestBody: body }),
      securities: { authorized: credentials ?? {} },
    })
    .catch((failure) => {
      if (!failure.response) throw failure
      return failure.response
    })
  const type = answer.headers['content-type']
  console.log(JSON.stringify({ status: answer.status, type, body: JSON.parse(answer.text) }))
}
