// A function of AWS Lambda, and the part of its runtime that calls it.
import { appendFileSync } from "node:fs";
import * as semel from "../../../../sdk/node/index.js";

const handler = semel.idempotent({ key: "/order_id", fingerprint: "/amount" }, async (event, context, run) => {
  appendFileSync(process.argv[2], JSON.stringify({ order_id: event.order_id, effect_key: run.effectKey, unknown: run.unknown }) + "\n");
  if (event.dies && !run.unknown) process.kill(process.pid, "SIGKILL");
  return { charged: event.amount };
});

const api = `http://${process.env.AWS_LAMBDA_RUNTIME_API}/2018-06-01/runtime/invocation`;
for (;;) {
  const invocation = await fetch(`${api}/next`);
  const event = await invocation.json();
  let path = "response", result;
  try {
    result = await handler(event, { getRemainingTimeInMillis: () => event.milliseconds }, () => {});
  } catch (error) {
    path = "error";
    result = { errorType: error.name, errorMessage: error.message };
  }
  await (await fetch(`${api}/${invocation.headers.get("Lambda-Runtime-Aws-Request-Id")}/${path}`, { method: "POST", body: JSON.stringify(result) })).text();
}
