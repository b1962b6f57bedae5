#!/usr/bin/env python3
"""host.py NAME: a host, which runs what it is asked for, so that no launcher is above it; its socket has that name.
host.py NAME HOST COMMAND: asks it, as ssh asks a host.
"""

import os
import signal
import socket
import sys
import threading


def address(name):
    """In no folder: paths may be too long."""
    return "\0brigade_test_host." + name


def serve(name):
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(address(name))
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


def ask(name, command):
    # As ssh, which every signal ends at once.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    mark = os.environ["BRIGADE_TEST_MARK"]
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(address(name))
        socket.send_fds(connection, [f"export BRIGADE_TEST_MARK={mark}; {command}".encode()], [0, 1, 2])
        os.close(0)
        os.close(1)
        code = connection.recv(1)
    return code[0] if code else 255


if __name__ == "__main__":
    if len(sys.argv) == 2:
        serve(sys.argv[1])
    sys.exit(ask(sys.argv[1], sys.argv[3]))
