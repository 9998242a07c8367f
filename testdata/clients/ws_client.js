// Sessions with Node.js's ws; prints a JSON list.
//
//     NODE_PATH=ENVIRONMENT/node_modules node ws_client.js --base http://127.0.0.1:PORT --plan JSON
//
// Plan and output: ws_steps.py. "deflate": false for none, or {"client_bits", "server_bits", "client_reset",
// "server_reset"}; messages of any size are compressed.
'use strict';

const WebSocket = require('ws');

const args = Object.fromEntries(process.argv.slice(2).reduce((a, v, i, all) => (i % 2 ? [...a, [all[i - 1].slice(2), v]] : a), []));
const text = (n) => 'aé€😀'.repeat(Math.floor(n / 10)) + 'x'.repeat(n % 10);
const binary = (n) => Buffer.alloc(n, Buffer.from(Array.from({ length: 251 }, (_, i) => i)));

function offer(d) {
  if (d === false) return false;
  return {
    threshold: 0,
    ...(d?.client_bits && { clientMaxWindowBits: d.client_bits }),
    ...(d?.server_bits && { serverMaxWindowBits: d.server_bits }),
    ...(d?.client_reset && { clientNoContextTakeover: true }),
    ...(d?.server_reset && { serverNoContextTakeover: true }),
  };
}

// Waits for one event of ws, or its end.
const next = (ws, event) =>
  new Promise((resolve, reject) => {
    const over = () => reject(new Error(`closed ahead of ${event}`));
    ws.once('close', over);
    ws.once(event, (...values) => {
      ws.off('close', over);
      resolve(values);
    });
  });

async function talk(ws, step, out) {
  const ping = async () => {
    if (!step.ping) return;
    const pong = next(ws, 'pong');
    ws.ping(step.ping);
    out.pong = String((await pong)[0]);
  };
  const echoed = async (kind, sent, send) => {
    const reply = next(ws, 'message');
    reply.catch(() => {}); // sending may meet the end first
    await send();
    const [data, isBinary] = await reply;
    const got = isBinary ? 'binary' : 'text';
    out.got.push(`${got} ${data.length} ${kind === got && Buffer.from(sent).equals(data) ? 'same' : 'differs'}`);
  };
  await ping();
  for (const [kind, size] of step.send ?? []) {
    const m = kind === 'text' ? text(size) : binary(size);
    if (step.path.includes('/ws/echo')) await echoed(kind, m, () => ws.send(m, { binary: kind === 'binary' }));
    else ws.send(m, { binary: kind === 'binary' });
  }
  if (step.pieces) {
    const all = step.pieces.map((n) => 'x'.repeat(n));
    await echoed('text', all.join(''), async () => {
      for (const [i, p] of all.entries()) {
        if (i) await ping();
        ws.send(p, { fin: i === all.length - 1 });
      }
    });
  }
}

async function drive(step) {
  const out = { name: step.name, status: 0, protocol: '', extensions: '', got: [], pong: '', close: { code: 0, reason: '' }, error: '' };
  const ws = new WebSocket(args.base.replace(/^http/, 'ws') + step.path, step.protocols ?? [], { perMessageDeflate: offer(step.deflate) });
  const ended = new Promise((resolve) => {
    ws.on('error', (e) => (out.error = String(e)));
    ws.on('upgrade', (r) => (out.extensions = r.headers['sec-websocket-extensions'] ?? ''));
    ws.on('unexpected-response', (_, r) => {
      out.status = r.statusCode;
      out.error = 'refused';
      r.resume();
      r.on('end', resolve);
    });
    ws.on('close', (code, reason) => {
      out.close = { code, reason: String(reason) };
      resolve();
    });
  });
  ws.on('open', async () => {
    out.status = 101;
    out.protocol = ws.protocol;
    try {
      await talk(ws, step, out);
      if (step.close) ws.close(step.close.code, step.close.reason);
    } catch (e) {
      out.error ||= String(e);
      ws.terminate();
    }
  });
  await ended;
  return out;
}

(async () => {
  const results = [];
  for (const step of JSON.parse(args.plan)) results.push(await drive(step));
  process.stdout.write(JSON.stringify(results), () => process.exit(0)); // a refusal's connection may be kept
})();
