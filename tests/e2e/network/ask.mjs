// Calls of the methods that the plan's lexicons describe, by anything that `@atproto/api` takes for an agent.
import { XRPCError } from '@atproto/api'

export const NAMESPACE = 'dev.bastienrobert.memory.'

// The service that the plan names, asked through the agent's PDS.
export function serviceOf(agent, plan) {
  const service = agent.withProxy(...plan.service)
  for (const document of plan.lexicons) service.lex.add(document)
  return service
}

// What one call was answered: {data, headers}, or {error, status, message}.
export async function ask(service, name, parameters, body) {
  try {
    const options = body === undefined ? undefined : { encoding: 'application/json' }
    const { data, headers } = await service.call(NAMESPACE + name, parameters, body, options)
    return { data, headers }
  } catch (failure) {
    if (!(failure instanceof XRPCError)) throw failure
    return { error: failure.error, status: failure.status, message: failure.message }
  }
}
