// The validators of `@atproto/api`, held against what the lexicons describe.
//   node lexicons.mjs < PLAN      PLAN: {lexicons, checks}
// `lexicons` are documents, `checks` are ["params" or "output", method, value]. Prints one line of JSON for each: null, or
// what the validator says against it.
import { text } from 'node:stream/consumers'
import { Lexicons } from '@atproto/lexicon'

const plan = JSON.parse(await text(process.stdin))
const lexicons = new Lexicons(plan.lexicons)

for (const [part, method, value] of plan.checks) {
  let complaint = null
  try {
    if (part === 'params') lexicons.assertValidXrpcParams(method, value)
    else lexicons.assertValidXrpcOutput(method, value)
  } catch (failure) {
    complaint = failure.message
  }
  console.log(JSON.stringify(complaint))
}
