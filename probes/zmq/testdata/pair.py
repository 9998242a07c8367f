"""One end of a ZMQ pair for the live test: sends or receives what it is told.

A line of input is a call and its arguments; the answer is one line. Messages are made
from their size, so that the test knows every byte.
"""
import asyncio
import functools
import sys

import zmq
import zmq.asyncio


@functools.cache
def content(n):
    return bytes((i * 13 + (i >> 8)) & 0xFF for i in range(n))


class End:
    def __init__(self, kind, endpoint):
        self.context = zmq.Context()
        self.socket = self.context.socket(zmq.PUSH if kind == "push" else zmq.PULL)
        self.socket.set_hwm(2)
        if kind == "push":
            self.socket.bind(endpoint)
        else:
            self.socket.connect(endpoint)

    def send(self, *sizes):
        """Parts of one message, each copied by libzmq or not."""
        self.socket.send_multipart([content(int(n.lstrip("z"))) for n in sizes], copy="z" not in sizes[0])

    def recv(self, parts):
        for i in range(int(parts)):
            m = self.socket.recv()
            assert m == content(len(m))

    def async_send(self, count, size):
        """Sends of an event loop, many under way at once."""

        async def go():
            s = zmq.asyncio.Socket.from_socket(self.socket)
            await asyncio.gather(*(s.send(content(int(size))) for _ in range(int(count))))

        asyncio.run(go())

    def fill(self, size):
        """Sends until it is told to come again, and then five times more in vain."""
        sent = again = 0
        while again < 6:
            try:
                self.socket.send(content(int(size)), zmq.DONTWAIT)
                sent += 1
            except zmq.Again:
                again += 1
        return sent

    def many(self, count, size):
        m = content(int(size))
        for _ in range(int(count)):
            self.socket.send(m)


def main():
    end = End(*sys.argv[1:3])
    print("ready", flush=True)
    for line in sys.stdin:
        name, *args = line.split()
        print(getattr(end, name)(*args) or "done", flush=True)


main()
