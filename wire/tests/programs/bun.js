// Sockets of Bun's own kind.
//   bun bun.js serve        prints its port, and sends back what one connection says
//   bun bun.js talk PORT    sends messages and checks what comes back; prints "ok"
'use strict';

const ROUNDS = 400;
const LARGE = 4 << 20;
const hostname = '127.0.0.1';
const [, , role, port] = process.argv;

// Sends what there is room for, and the rest when there is some again.
function send(socket) {
  const { waiting } = socket.data;
  while (waiting.length) {
    const sent = Math.max(socket.write(waiting[0]), 0);
    if (sent < waiting[0].length) {
      waiting[0] = waiting[0].subarray(sent);
      return;
    }
    waiting.shift();
  }
}

function message(round) {
  const bytes = new Uint8Array(round === ROUNDS ? LARGE : 1 + (round * 37) % 5000);
  return bytes.map((_, at) => at + round);
}

function begin(socket) {
  const { data } = socket;
  data.wanted = message(data.round);
  data.got = 0;
  data.waiting.push(data.wanted);
  send(socket);
}

function check(socket, bytes) {
  const { data } = socket;
  for (const byte of bytes) {
    if (byte !== data.wanted[data.got++]) {
      console.error(`wrong byte ${data.got - 1} of message ${data.round}`);
      process.exit(1);
    }
  }
  if (data.got < data.wanted.length) return;
  if (data.round++ < ROUNDS) return begin(socket);
  console.log('ok');
  socket.end();
}

if (role === 'serve') {
  const server = Bun.listen({
    hostname,
    port: 0,
    socket: {
      open(socket) { socket.data = { waiting: [] }; },
      data(socket, bytes) { socket.data.waiting.push(Uint8Array.from(bytes)); send(socket); },
      drain: send,
      close() { server.stop(); },
    },
  });
  console.log(server.port);
} else {
  Bun.connect({
    hostname,
    port: Number(port),
    socket: {
      open(socket) { socket.data = { waiting: [], round: 0 }; begin(socket); },
      data: check,
      drain: send,
      close() {},
      connectError(_, error) { throw error; },
    },
  });
}
