// A server with Node.js's ws, which honours every window size and takeover that a client offers. Paths: ws_uvicorn.py.
//
//     NODE_PATH=ENVIRONMENT/node_modules node ws_server.js
//
// Prints its port as the first line of standard output; SIGTERM ends it.
'use strict';

const { createHash } = require('crypto');
const { createServer } = require('http');
const { WebSocketServer } = require('ws');

const sessions = new Map(); // key: what was seen of those that ended
const waiting = [];

function note(key, entry) {
  sessions.set(key, [...(sessions.get(key) ?? []), entry]);
  waiting.splice(0).forEach((look) => look());
}

const http = createServer((req, res) => {
  const q = new URL(req.url, 'http://x').searchParams;
  const look = () => {
    const seen = sessions.get(q.get('key')) ?? [];
    if (seen.length < Number(q.get('n'))) return void waiting.push(look);
    sessions.delete(q.get('key'));
    res.end(JSON.stringify(seen));
  };
  look();
});
const wss = new WebSocketServer({
  noServer: true,
  maxPayload: 64 << 20,
  perMessageDeflate: { threshold: 0 },
  handleProtocols: (offered) => (offered.has('realtime') ? 'realtime' : false),
});

http.on('upgrade', (req, socket, head) => {
  const url = new URL(req.url, 'http://x');
  const q = url.searchParams;
  if (url.pathname === '/ws/refuse') {
    socket.end(`HTTP/1.1 ${q.get('status')} No\r\nContent-Length: 7\r\nConnection: close\r\n\r\nrefused`);
    return;
  }
  wss.handleUpgrade(req, socket, head, (ws) => {
    const messages = [];
    ws.on('message', (data, isBinary) => {
      messages.push([isBinary ? 'binary' : 'text', data.length, createHash('sha256').update(data).digest('hex')]);
      if (url.pathname === '/ws/echo') ws.send(data, { binary: isBinary });
      else if (q.has('code')) ws.close(Number(q.get('code')), q.get('reason') ?? '');
      else ws.close();
    });
    ws.on('error', () => {}); // 'close' tells
    ws.on('close', (code, reason) => note(q.get('key'), { headers: req.rawHeaders, messages, close: [code, String(reason)] }));
  });
});
http.listen(0, '127.0.0.1', () => console.log(http.address().port));
process.on('SIGTERM', () => process.exit(0));
