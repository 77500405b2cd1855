// Sockets of Node.js with files, pipes and other processes beside them, which get numbers that sockets have had.
//   node node.js SCENARIO DIRECTORY
// Prints "ok" and ends when everything was as it should be.
'use strict';
const assert = require('assert');
const { once } = require('events');
const fs = require('fs');
const net = require('net');
const path = require('path');

const [, script, scenario, directory] = process.argv;
const HOST = '127.0.0.1';

function pattern(length, seed) {
  const bytes = Buffer.alloc(length);
  for (let at = 0; at < length; at++) bytes[at] = (at * 31 + seed * 7) & 0xff;
  return bytes;
}

async function listen(server) {
  server.listen(0, HOST);
  await once(server, 'listening');
  return server.address().port;
}

// Small files, written and read while sockets open and close.
async function files(count, name) {
  for (let at = 0; at < count; at++) {
    const file = path.join(directory, `${name}-${process.pid}-${at}`);
    const text = `${name} ${at} `.repeat(at % 50 + 1);
    await fs.promises.writeFile(file, text);
    assert.strictEqual(await fs.promises.readFile(file, 'utf8'), text);
    fs.appendFileSync(file, '.');
    assert.strictEqual(fs.readFileSync(file, 'utf8'), text + '.');
    await fs.promises.unlink(file);
  }
}

// Sends pieces and gets them back.
function echo(connection, seed, pieces, size) {
  return new Promise((resolve, reject) => {
    let got = 0;
    const wanted = pattern(size, seed);
    connection.on('error', reject);
    connection.on('data', (bytes) => {
      for (const byte of bytes) {
        if (byte !== wanted[got % size]) return reject(new Error(`wrong byte ${got} of ${seed}`));
        got++;
      }
      if (got % size) return;
      if (got === pieces * size) resolve();
      else connection.write(wanted);
    });
    connection.write(wanted);
  });
}

async function netScenario() {
  const server = net.createServer((socket) => socket.pipe(socket));
  const port = await listen(server);
  const one = async (seed) => {
    const socket = net.connect(port, HOST);
    await once(socket, 'connect');
    await echo(socket, seed, 60, seed % 3 ? 100 : 20000);
    socket.end();
    await once(socket, 'close');
  };
  for (let round = 0; round < 8; round++) {
    await Promise.all([...Array(10).keys()].map((at) => one(round * 10 + at)).concat(files(20, 'net')));
  }
  server.close();
}

async function httpScenario() {
  const http = require('http');
  const server = http.createServer(async (request, response) => {
    const body = [];
    for await (const piece of request) body.push(piece);
    const bytes = Buffer.concat(body);
    const file = path.join(directory, `http-${request.url.slice(1)}`);
    await fs.promises.writeFile(file, bytes);
    fs.createReadStream(file).pipe(response).on('close', () => fs.unlinkSync(file));
  });
  const port = await listen(server);
  const ask = (agent, name, seed, length) => new Promise((resolve, reject) => {
    const request = http.request({ host: HOST, port, agent, method: 'POST', path: `/${name}` }, async (response) => {
      const body = [];
      for await (const piece of response) body.push(piece);
      assert(Buffer.concat(body).equals(pattern(length, seed)));
      resolve();
    });
    request.on('error', reject);
    request.end(pattern(length, seed));
  });
  const kept = new http.Agent({ keepAlive: true, maxSockets: 4 });
  for (let round = 0; round < 5; round++) {
    const all = [];
    for (let at = 0; at < 12; at++) all.push(ask(kept, `${round}-k${at}`, at, 5000 * at + 1), ask(false, `${round}-c${at}`, at, 100));
    all.push(files(20, 'http'));
    await Promise.all(all);
  }
  for (let at = 0; at < 50; at++) await ask(kept, `one-${at}`, at, 64);
  kept.destroy();
  server.close();
}

async function tlsScenario() {
  const tls = require('tls');
  const psk = Buffer.from('0123456789abcdef');
  const settings = { ciphers: 'PSK', maxVersion: 'TLSv1.2', pskIdentityHint: 'it' };
  const server = tls.createServer({ ...settings, pskCallback: () => psk }, (socket) => socket.pipe(socket));
  const port = await listen(server);
  const one = async (seed) => {
    const socket = tls.connect({
      ...settings, host: HOST, port, checkServerIdentity: () => undefined,
      pskCallback: () => ({ psk, identity: 'me' }),
    });
    await once(socket, 'secureConnect');
    await echo(socket, seed, 40, 3000);
    socket.end();
    await once(socket, 'close');
  };
  for (let round = 0; round < 4; round++) {
    await Promise.all([...Array(6).keys()].map((at) => one(round * 6 + at)).concat(files(10, 'tls')));
  }
  server.close();
}

async function clusterScenario(policy) {
  const cluster = require('cluster');
  if (!cluster.isPrimary) {
    const server = net.createServer((socket) => socket.on('data', (bytes) => socket.write(bytes)).on('error', () => {}));
    server.listen(Number(process.env.TEST_PORT), HOST);
    process.on('disconnect', () => process.exit(0));
    return;
  }
  // A port for all workers. Round robin: this process accepts and passes the sockets on; else they accept themselves.
  const reserve = net.createServer();
  const port = await listen(reserve);
  reserve.close();
  await once(reserve, 'close');
  cluster.schedulingPolicy = cluster[policy];
  const workers = [0, 1, 2].map(() => cluster.fork({ TEST_PORT: port }));
  await Promise.all(workers.map((worker) => once(worker, 'listening')));
  const one = async (seed) => {
    const socket = net.connect(port, HOST);
    await once(socket, 'connect');
    await echo(socket, seed, 50, 500);
    socket.destroy();
  };
  for (let round = 0; round < 5; round++) {
    await Promise.all([...Array(8).keys()].map((at) => one(round * 8 + at)).concat(files(10, 'cluster')));
  }
  const ends = workers.map((worker) => once(worker, 'exit'));
  workers.forEach((worker) => worker.disconnect());
  await Promise.all(ends);
}

async function workersScenario() {
  const { Worker, isMainThread, workerData } = require('worker_threads');
  if (!isMainThread) {
    for (let round = 0; round < 15; round++) {
      const socket = net.connect(workerData.port, HOST);
      await once(socket, 'connect');
      await Promise.all([echo(socket, round, 40, 300), files(3, `worker${workerData.at}`)]);
      socket.destroy();
    }
    return;
  }
  const server = net.createServer((socket) => socket.on('data', (bytes) => socket.write(bytes)).on('error', () => {}));
  const port = await listen(server);
  const workers = [0, 1, 2, 3].map((at) => new Worker(script, { argv: [scenario, directory], workerData: { port, at } }));
  const codes = await Promise.all(workers.map((worker) => once(worker, 'exit')));
  codes.forEach(([code]) => assert.strictEqual(code, 0));
  server.close();
}

// A child that talks by its standard streams, while sockets open and close.
async function childrenScenario() {
  const { spawn } = require('child_process');
  const server = net.createServer((socket) => socket.pipe(socket));
  const port = await listen(server);
  for (let round = 0; round < 15; round++) {
    const socket = net.connect(port, HOST);
    await once(socket, 'connect');
    const child = spawn('cat');
    let text = '';
    child.stdout.on('data', (bytes) => { text += bytes; });
    child.stdin.end(`round ${round}`);
    await Promise.all([once(child, 'close'), echo(socket, round, 40, 200)]);
    assert.strictEqual(text, `round ${round}`);
    socket.destroy();
  }
  server.close();
}

const scenarios = {
  net: netScenario,
  http: httpScenario,
  tls: tlsScenario,
  cluster: () => clusterScenario('SCHED_NONE'),
  scheduled_cluster: () => clusterScenario('SCHED_RR'),
  workers: workersScenario,
  children: childrenScenario,
};

process.on('unhandledRejection', (error) => {
  console.error(error);
  process.exit(1);
});
scenarios[scenario]().then(() => {
  if (require('worker_threads').isMainThread && require('cluster').isPrimary) console.log('ok');
});
