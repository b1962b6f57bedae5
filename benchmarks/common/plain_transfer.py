#!/usr/bin/env python3
"""One of two hosts that send each other bytes over plain TCP, both ways at once: what a link carries.

    plain_transfer.py serve ADDRESS CONNECTIONS BYTES
    plain_transfer.py connect ADDRESS PORT CONNECTIONS BYTES

Each of CONNECTIONS carries BYTES in both directions, as the connections of ranks do: acknowledgements ride on data. The one
that serves prints its port first. Both print the seconds from the moment when all are connected to the last byte received.
"""

import socket
import sys
import threading
import time

PIECE = bytes(1 << 16)


def send(connection, count):
    while count > 0:
        piece = PIECE[:min(count, len(PIECE))]
        connection.sendall(piece)
        count -= len(piece)


def receive(connection, count):
    while count > 0:
        got = len(connection.recv(min(count, len(PIECE))))
        if got == 0:
            raise ConnectionError(f"the other host has ended, {count} bytes before the end")
        count -= got


def exchange(connections, count):
    """Seconds until all has been received; raises what a thread has met."""
    errors = []

    def run(what, connection):
        try:
            what(connection, count)
        except OSError as error:
            errors.append(error)

    # A byte each way first: nobody sends to a host that is not there yet.
    for connection in connections:
        connection.sendall(b"x")
    for connection in connections:
        receive(connection, 1)
    begin = time.monotonic()
    receivers = [threading.Thread(target=run, args=(receive, each)) for each in connections]
    senders = [threading.Thread(target=run, args=(send, each)) for each in connections]
    for thread in receivers + senders:
        thread.start()
    for thread in receivers:
        thread.join()
    seconds = time.monotonic() - begin
    for thread in senders:
        thread.join()
    if errors:
        raise errors[0]
    return seconds


def main():
    if "--help" in sys.argv or "-h" in sys.argv:
        print(__doc__)
        return 0
    if len(sys.argv) == 5 and sys.argv[1] == "serve":
        address, count, size = sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
        with socket.create_server((address, 0)) as listening:
            print(listening.getsockname()[1], flush=True)
            connections = [listening.accept()[0] for _ in range(count)]
    elif len(sys.argv) == 6 and sys.argv[1] == "connect":
        address, port, count, size = sys.argv[2], *map(int, sys.argv[3:])
        connections = [socket.create_connection((address, port)) for _ in range(count)]
    else:
        print(__doc__, file=sys.stderr)
        return 2
    for connection in connections:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    print(exchange(connections, size), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
