// The standard effect, in Node.js: handler.mjs exec | pipe | http PORT.
import { readFileSync } from "node:fs";
import { createServer } from "node:http";

const row = (key, body) => ({ insert: "ledger", row: { id: key, size: body.order } });

const [mode, port] = process.argv.slice(2);
if (mode === "pipe") {
  const { run } = await import(process.env.SDK);
  await run((message) => message.insert("ledger", { id: message.key, size: message.body.order }));
} else if (mode === "http") {
  createServer((request, response) => {
    const chunks = [];
    request.on("data", (chunk) => chunks.push(chunk));
    request.on("end", () => {
      const body = JSON.parse(Buffer.concat(chunks));
      const out = Array.isArray(body)
        ? body.map((m) => ({ id: m.id, outcome: "done", effects: [row(m.key, m.body)] }))
        : row(body.id, body);
      response.end(JSON.stringify(out));
    });
  }).listen(Number(port), "127.0.0.1");
} else {
  console.log(JSON.stringify(row(process.env.SEMEL_KEY, JSON.parse(readFileSync(0)))));
}
