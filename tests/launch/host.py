#!/usr/bin/env python3
"""host.py SOCKET: a host, which runs what it is asked for, so that no launcher is above it.
host.py SOCKET HOST COMMAND: asks it, as ssh asks a host.
"""

import os
import signal
import socket
import sys
import threading


def serve(path):
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(path)
        server.listen()
        print("listening", flush=True)
        while True:
            connection, _ = server.accept()
            command, ends, _, _ = socket.recv_fds(connection, 1 << 16, 3)
            child = os.fork()
            if child == 0:
                os.setsid()
                for number, end in enumerate(ends):
                    os.dup2(end, number)
                os.closerange(3, 100)
                os.execvp("sh", ["sh", "-c", command.decode()])
            for end in ends:
                os.close(end)
            threading.Thread(target=tell_end, args=(child, connection), daemon=True).start()


def tell_end(child, connection):
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    try:
        connection.sendall(bytes([code if code >= 0 else 128 - code]))
    except OSError:
        pass  # nobody asks any more
    connection.close()


def ask(path, command):
    # As ssh, which every signal ends at once.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    mark = os.environ["BRIGADE_TEST_MARK"]
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(path)
        socket.send_fds(connection, [f"export BRIGADE_TEST_MARK={mark}; {command}".encode()], [0, 1, 2])
        os.close(0)
        os.close(1)
        code = connection.recv(1)
    return code[0] if code else 255


if __name__ == "__main__":
    if len(sys.argv) == 2:
        serve(sys.argv[1])
    sys.exit(ask(sys.argv[1], sys.argv[3]))
