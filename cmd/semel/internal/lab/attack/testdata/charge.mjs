// A handler of semel work --pipe with a habit: the first argument.
import { Dead, Later, run } from "../../../../../../sdk/node/index.js";

const habit = process.argv[2];
let latest;

async function post(key, body) {
  const headers = { "content-type": "application/json", connection: "close" };
  if (key) headers["Idempotency-Key"] = key;
  const response = await fetch(process.env.ATTACK_URL + "/charges", { method: "POST", headers, body: JSON.stringify(body) });
  if (response.status === 429) throw new Later("throttled");
  if (!response.ok && response.status !== 409) throw new Error(`the service responded ${response.status}`);
}

await run(async (message) => {
  if (message.body.amount === undefined) throw new Dead("no amount");
  latest ??= message.effectKey;
  switch (habit) {
    case "bare":
      return post("", message.body);
    case "remembers": // the key of its first message
      return post(latest, message.body);
    case "forgets": // to wait
      post(message.effectKey, message.body).catch(() => {});
      return undefined;
    case "prints": // where the results go
      process.stdout.constructor.prototype.write.call(process.stdout, "charging\n");
  }
  return post(message.effectKey, message.body);
});
