// The official TypeScript SDK. Node looks for packages beside the program, so it is copied there.
import { existsSync } from "node:fs";
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StdioClientTransport } from "@modelcontextprotocol/sdk/client/stdio.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";

const said = JSON.parse(process.argv[2]);
const seen = {};
const transport = said.url
  ? new StreamableHTTPClientTransport(new URL(said.url), {
      requestInit: { headers: { Authorization: `Bearer ${said.token}` } },
    })
  : new StdioClientTransport({ command: said.command[0], args: said.command.slice(1), stderr: "ignore", env: process.env });
const client = new Client({ name: "typescript", version: "1" });
try {
  await client.connect(transport);
  const names = (await client.listTools()).tools.map((one) => one.name);
  seen.list = names.includes("math_calculate") && names.includes("bash");
  const called = await client.callTool({ name: "math_calculate", arguments: { expression: "6 * 7" } });
  seen.call = called.content[0].text.includes("42");
  const failed = await client.callTool({ name: "math_calculate", arguments: { expression: "6 *" } });
  seen.error = failed.isError === true && failed.content[0].text.includes("6 *");
  const stop = new AbortController();
  const waiting = client
    .callTool({ name: "bash", arguments: { command: said.waits } }, undefined, { signal: stop.signal })
    .then(() => false, () => true);
  for (let tries = 0; tries < 600 && !existsSync(said.begun); tries += 1) {
    await new Promise((done) => setTimeout(done, 50));
  }
  stop.abort("enough");
  seen.cancel = (await waiting) && existsSync(said.begun);
  await new Promise((done) => setTimeout(done, 1000)); // the SDK does not wait until its notification is sent
} catch (error) {
  seen.problem = String(error).slice(0, 300);
}
await client.close().catch(() => {});
console.log(JSON.stringify(seen));
process.exit(0);
