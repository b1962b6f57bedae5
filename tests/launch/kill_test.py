#!/usr/bin/env python3
"""kill_test.py BRIGADE_LAUNCH ROUNDS: each process of a job is ended by each signal; nothing is left, and the launcher's
code is right."""

import os
import pathlib
import signal
import sys
import tempfile
import time

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from launching import Host, Job

SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGKILL)
# Each rank with a child in its own session, and one in the rank's group.
RANK = ["bash", "-c", "setsid sleep 1000 & sleep 1000 & echo ready; exec sleep 1000"]
RANK_ALONE = ["bash", "-c", "echo ready; exec sleep 1000"]


def chain(job, host):
    """{name: process} of a host, and of its first rank."""
    found = {"launcher": job.process.pid}
    if host:
        found["ssh"] = job.children(job.process.pid)[0]
    above = host.process.pid if host else job.process.pid
    for name in ("guardian", "agent", "rank"):
        above = job.children(above)[0]
        found[name] = above
    return found


def check(names, number, host):
    several = len(names) > 1
    arguments = [f"--ssh={host.ssh}", "--hosts=a:0,1@b:0"] if host else ["--nproc_per_node=3"]
    job = Job("--grace=1", *arguments, *(RANK_ALONE if several else RANK))
    try:
        job.wait_for("ready", 3)
        processes = chain(job, host)
        # Before, the rank is a shell, which ignores SIGQUIT.
        while job.program(processes["rank"]) != "sleep":
            time.sleep(0.01)
        for name in names if several else ():
            os.kill(processes[name], signal.SIGSTOP)
        for name in names:
            os.kill(processes[name], number)
        code = job.wait()
        job.wait_until_none_is_left()
        if code != 128 + number:
            sys.exit(f"{' and '.join(names)} ended by {number.name}{', two hosts' if host else ''}: the launcher's code is "
                     f"{code}\n{job.said()}")
    finally:
        job.close()


def main():
    rounds = int(sys.argv[2])
    with tempfile.TemporaryDirectory(dir=os.environ["TEST_TMPDIR"]) as folder:
        host = Host(folder)
        try:
            cases = [((name,), number, where) for where in (None, host) for number in SIGNALS
                     for name in ("launcher", "guardian", "agent", "rank", "ssh") if where or name != "ssh"]
            # Both that end what is left: the system ends the ranks.
            cases.append((("guardian", "agent"), signal.SIGKILL, host))
            for turn in range(rounds):
                for names, number, where in cases:
                    check(names, number, where)
                print(f"round {turn + 1} of {rounds}: {len(cases)} jobs ended", flush=True)
        finally:
            host.close()


if __name__ == "__main__":
    main()
