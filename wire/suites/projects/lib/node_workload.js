// Requests and messages of many sizes, with Node's own http and net, with undici and with ws, between two processes: the server is a child.
"use strict";
const assert = require("node:assert");
const { fork } = require("node:child_process");
const { createHash } = require("node:crypto");
const { once } = require("node:events");
const fs = require("node:fs");
const http = require("node:http");
const net = require("node:net");
const { Readable } = require("node:stream");
const { pipeline } = require("node:stream/promises");
const undici = require("undici");
const WebSocket = require("ws");

const sizes = [0, 1, 100, 4096, 70_000, 1_000_000];

function payload(size, seed = 1) {
  const data = Buffer.alloc(size);
  let state = (size + seed) >>> 0;
  for (let at = 0; at < size; at++) {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    data[at] = state >>> 24;
  }
  return data;
}

async function all(stream) {
  const parts = [];
  for await (const part of stream) parts.push(part);
  return Buffer.concat(parts);
}

function serve() {
  const server = http.createServer((request, response) => {
    if (request.url === "/abort") return request.once("data", () => request.socket.destroy());
    if (request.url === "/endless") return void Readable.from((function* () { for (;;) yield payload(4096); })()).pipe(response).on("error", () => {});
    pipeline(request, response).catch(() => {});
  });
  const sockets = new WebSocket.Server({ server, maxPayload: 1 << 26 });
  sockets.on("connection", (socket) => {
    socket.on("error", () => {});
    socket.on("message", (data, binary) => socket.send(data, { binary }));
  });
  const echo = net.createServer({ allowHalfOpen: true }, (socket) => socket.on("error", () => {}).pipe(socket));
  // In a separate network namespace any port is free; fetch() refuses many ports that the kernel might pick.
  server.listen(18080, "127.0.0.1", () =>
    echo.listen(0, "127.0.0.1", () => process.send({ http: server.address().port, echo: echo.address().port })));
  process.on("disconnect", () => process.exit(0));
}

const parts = {
  async http_keep_alive({ http: port }) {
    const agent = new http.Agent({ keepAlive: true, maxSockets: 4 });
    const one = async (size) => {
      const request = http.request({ port, host: "127.0.0.1", method: "POST", agent });
      request.end(payload(size));
      const [response] = await once(request, "response");
      assert.deepStrictEqual(await all(response), payload(size));
    };
    for (let round = 0; round < 40; round++) await Promise.all(sizes.map(one));
    agent.destroy();
  },
  async http_closing({ http: port }) {
    for (let round = 0; round < 200; round++) {
      const request = http.request({ port, host: "127.0.0.1", method: "POST", agent: false });
      request.end(payload(round * 37));
      const [response] = await once(request, "response");
      assert.deepStrictEqual(await all(response), payload(round * 37));
    }
  },
  async http_chunks({ http: port }) {
    for (const size of sizes.slice(1)) {
      const request = http.request({ port, host: "127.0.0.1", method: "POST" });
      const answer = once(request, "response").then(([response]) => all(response));
      for (let chunk = 0; chunk < 30; chunk++) if (!request.write(payload(size, chunk))) await once(request, "drain");
      request.end();
      assert.deepStrictEqual(await answer, Buffer.concat(Array.from({ length: 30 }, (_, chunk) => payload(size, chunk))));
    }
  },
  async http_reset({ http: port }) {
    for (let round = 0; round < 50; round++) {
      const request = http.request({ port, host: "127.0.0.1", method: "POST", path: "/abort", agent: false });
      request.write(payload(1000));
      const [error] = await once(request, "error").catch((error) => [error]);
      assert.strictEqual(error.code, "ECONNRESET");
    }
  },
  async http_abandoned({ http: port }) {
    for (let round = 0; round < 50; round++) {
      const request = http.get({ port, host: "127.0.0.1", path: "/endless", agent: false });
      const [response] = await once(request, "response");
      for (let part = 0; part < 5; part++) await once(response, "data");
      response.destroy();
    }
  },
  async http_pipelined({ http: port }) {
    const socket = net.connect(port, "127.0.0.1");
    const one = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello";
    const last = one.replace("Host: a", "Host: a\r\nConnection: close");
    socket.write(one.repeat(999) + last);
    assert.strictEqual((await all(socket)).toString().split("hello").length, 1001);
  },
  async net_half_closed({ echo: port }) {
    for (const size of [...sizes, 20_000_000]) {
      const socket = net.connect({ port, host: "127.0.0.1", allowHalfOpen: true });
      socket.end(payload(size));
      const digest = (data) => createHash("sha256").update(data).digest("hex");
      assert.strictEqual(digest(await all(socket)), digest(payload(size)));
    }
  },
  async net_ping_pong({ echo: port }) {
    const socket = net.connect(port, "127.0.0.1").setNoDelay();
    for (let round = 0; round < 5000; round++) {
      socket.write("ping");
      let read = 0;
      while (read < 4) read += (await once(socket, "data"))[0].length;
    }
    socket.destroy();
  },
  async net_many({ echo: port }) {
    await Promise.all(Array.from({ length: 200 }, async (_, number) => {
      const socket = net.connect({ port, host: "127.0.0.1", allowHalfOpen: true });
      for (let piece = 0; piece < 20; piece++) {
        socket.write(payload(1000, number + piece));
        await new Promise(setImmediate);
      }
      socket.end();
      const wanted = Buffer.concat(Array.from({ length: 20 }, (_, piece) => payload(1000, number + piece)));
      assert.deepStrictEqual(await all(socket), wanted);
    }));
  },
  async net_paused({ echo: port }) {
    const socket = net.connect({ port, host: "127.0.0.1", allowHalfOpen: true });
    const data = payload(8_000_000);
    socket.end(data);
    let read = 0;
    for await (const part of socket) {
      assert.ok(part.equals(data.subarray(read, read + part.length)));
      read += part.length;
      socket.pause();
      await new Promise(setImmediate);
      socket.resume();
    }
    assert.strictEqual(read, data.length);
  },
  async undici_request({ http: port }) {
    const client = new undici.Pool(`http://127.0.0.1:${port}`, { connections: 8, pipelining: 1 });
    const one = async (size) => {
      const { body } = await client.request({ path: "/", method: "POST", body: payload(size) });
      assert.deepStrictEqual(Buffer.from(await body.arrayBuffer()), payload(size));
    };
    for (let round = 0; round < 60; round++) await Promise.all(sizes.map(one));
    await client.close();
  },
  async undici_pipelining({ http: port }) {
    const client = new undici.Client(`http://127.0.0.1:${port}`, { pipelining: 10 });
    await Promise.all(Array.from({ length: 1000 }, async (_, number) => {
      const { body } = await client.request({ path: "/", method: "PUT", idempotent: true, body: `number ${number}` });
      assert.strictEqual(await body.text(), `number ${number}`);
    }));
    await client.close();
  },
  async undici_fetch({ http: port }) {
    for (const size of sizes.flatMap((size) => Array(20).fill(size))) {
      const response = await undici.fetch(`http://127.0.0.1:${port}`, { method: "POST", body: payload(size) });
      assert.deepStrictEqual(Buffer.from(await response.arrayBuffer()), payload(size));
    }
  },
  async undici_aborted({ http: port }) {
    for (let round = 0; round < 50; round++) {
      const abort = new AbortController();
      const response = await undici.fetch(`http://127.0.0.1:${port}/endless`, { signal: abort.signal });
      const reader = response.body.getReader();
      await reader.read();
      abort.abort();
      await assert.rejects(async () => { for (;;) if ((await reader.read()).done) break; }, { name: "AbortError" });
    }
  },
  async ws_messages({ http: port }) {
    const socket = new WebSocket(`ws://127.0.0.1:${port}`, { perMessageDeflate: false });
    await once(socket, "open");
    for (const size of sizes.flatMap((size) => Array(50).fill(size))) {
      socket.send(payload(size));
      const [data] = await once(socket, "message");
      assert.deepStrictEqual(data, payload(size));
    }
    socket.close(1000, "enough");
    assert.strictEqual((await once(socket, "close"))[0], 1000);
  },
  async ws_burst({ http: port }) {
    await Promise.all(Array.from({ length: 20 }, async (_, number) => {
      const socket = new WebSocket(`ws://127.0.0.1:${port}`);
      await once(socket, "open");
      let next = 0;
      const done = new Promise((resolve, reject) => socket.on("message", (data) => {
        if (data.toString() !== `${number}: ${next}`) reject(new Error(`${data} at ${next}`));
        if (++next === 500) resolve();
      }));
      for (let message = 0; message < 500; message++) socket.send(`${number}: ${message}`);
      await done;
      socket.terminate();
    }));
  },
  async ws_ping({ http: port }) {
    const socket = new WebSocket(`ws://127.0.0.1:${port}`);
    await once(socket, "open");
    for (let round = 0; round < 500; round++) {
      socket.ping(`${round}`);
      assert.strictEqual((await once(socket, "pong"))[0].toString(), `${round}`);
    }
    socket.close();
    await once(socket, "close");
  },
};

async function main() {
  const only = process.env.ONLY && fs.readFileSync(process.env.ONLY, "utf8").split("\n");
  const server = fork(__filename, ["serve"]);
  const [ports] = await once(server, "message");
  for (const [name, part] of Object.entries(parts)) {
    if (only && !only.includes(name)) continue;
    let outcome = "passed";
    // A part that hangs is abandoned; the process's end cleans up the rest.
    const patience = new AbortController();
    const late = new Promise((_, reject) => {
      const timer = setTimeout(() => reject(new Error("hangs")), 30_000);
      patience.signal.addEventListener("abort", () => clearTimeout(timer));
    });
    try {
      await Promise.race([part(ports), late]);
    } catch (error) {
      console.error(name, error);
      outcome = "failed";
    }
    patience.abort();
    fs.appendFileSync(process.env.RESULTS, `${outcome}\t${name}\n`);
  }
  server.disconnect();
  await once(server, "exit");
  process.exit(0);
}

if (process.argv[2] === "serve") serve(); else main();
