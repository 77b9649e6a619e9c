// A real semel serve for tests: SEMEL_BINARY names the binary.
import { spawn } from "node:child_process";
import { once as event } from "node:events";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";

/** Starts a server. It can be killed, and started again on its port. */
export async function serve(t) {
  const dir = mkdtempSync(join(tmpdir(), "semel-node-"));
  let address = "127.0.0.1:0";
  let process_;
  const server = {
    async start() {
      process_ = spawn(process.env.SEMEL_BINARY, ["serve", "--queue", `sqlite:${dir}/q.db?queue=orders`, "--listen", address, "-o", "json"],
        { stdio: ["ignore", "pipe", "inherit"] });
      const { value } = await createInterface({ input: process_.stdout })[Symbol.asyncIterator]().next();
      server.url = JSON.parse(value).listening;
      address = server.url.slice("http://".length);
    },
    async kill() {
      process_.kill("SIGKILL");
      await event(process_, "exit");
    },
  };
  await server.start();
  t.after(async () => {
    await server.kill();
    rmSync(dir, { recursive: true });
  });
  return server;
}
