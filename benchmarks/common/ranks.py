"""Ranks that are processes of this host, started as torchrun starts them."""

import os
import signal
import socket
import subprocess
import sys
import tempfile
import time


def _free_port():
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        return listening.getsockname()[1]


class Ended:
    """What a rank has printed, and the largest memory that it had at a time by the system's
    account of a process that has ended, in bytes; and what it has had of the processors."""

    def __init__(self, out, usage):
        self.out = out
        self.peak_bytes = usage.ru_maxrss * 1024
        self.processor_seconds = usage.ru_utime + usage.ru_stime


def run_ranks(command, ranks, launched=True):
    """Runs the command as so many processes until all have ended, in order of ranks; ends the script if one fails. One that
    is not launched has ranks of its own."""
    port, started = _free_port(), []
    for rank in range(ranks):
        variables = dict(os.environ)
        if launched:
            variables.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(ranks), LOCAL_WORLD_SIZE=str(ranks),
                             MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
        out, err = tempfile.TemporaryFile("w+"), tempfile.TemporaryFile("w+")
        process = subprocess.Popen([str(word) for word in command], env=variables, stdin=subprocess.DEVNULL, stdout=out,
                                   stderr=err)
        started.append((process, out, err))
    ended, failed = [None] * ranks, None
    while None in ended and failed is None:
        for rank, (process, out, _) in enumerate(started):
            if ended[rank] is not None:
                continue
            pid, status, usage = os.wait4(process.pid, os.WNOHANG)
            if pid == 0:
                continue
            process.returncode = os.waitstatus_to_exitcode(status)
            out.seek(0)
            ended[rank] = Ended(out.read(), usage)
            if process.returncode != 0:
                failed = rank
        time.sleep(0.01)
    if failed is not None:
        for process, _, _ in started:
            if process.returncode is None:
                process.send_signal(signal.SIGKILL)
                process.wait()
        err = started[failed][2]
        err.seek(0)
        sys.exit(f"rank {failed} of {' '.join(map(str, command))} failed:\n{err.read()}")
    return ended
