#!/usr/bin/env python3
"""kill_test.py BRIGADE_LAUNCH ROUNDS: each process of a job is ended by each signal; nothing is left, and the launcher's
code is right."""

import os
import pathlib
import signal
import sys
import tempfile

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from launching import Job

# As ssh, which every signal ends at once; shells wait for what they have started.
SSH = """#!/usr/bin/env python3
import signal, subprocess, sys
signal.signal(signal.SIGINT, signal.SIG_DFL)
code = subprocess.call(["sh", "-c", sys.argv[2]])
sys.exit(code if code >= 0 else 128 - code)
"""

SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGKILL)
# Each rank with a child in its own session, and one in the rank's group.
RANK = ["bash", "-c", "setsid sleep 1000 & sleep 1000 & echo ready; exec sleep 1000"]


def chain(job, remote):
    """{name: process} of the first host, and of its first rank."""
    found = {"launcher": job.process.pid}
    above = job.process.pid
    for name in (["ssh"] if remote else []) + ["guardian", "agent", "rank"]:
        above = job.children(above)[0]
        found[name] = above
    return found


def check(name, number, remote, ssh):
    arguments = [f"--ssh={ssh}", "--hosts=a:0,1@b:0"] if remote else ["--nproc_per_node=3"]
    job = Job("--grace=1", *arguments, *RANK)
    try:
        job.wait_for("ready", 3)
        os.kill(chain(job, remote)[name], number)
        code = job.wait()
        job.wait_until_none_is_left()
        right = {128 + number}
        if remote and name == "guardian" and number == signal.SIGKILL:
            # Its child, which lives on, is told by a signal of its own.
            right.add(128 + signal.SIGTERM)
        if code not in right:
            sys.exit(f"{name} ended by {number.name}{', two hosts' if remote else ''}: the launcher's code is {code}\n"
                     f"{job.said()}")
    finally:
        job.close()


def main():
    rounds = int(sys.argv[2])
    with tempfile.TemporaryDirectory(dir=os.environ["TEST_TMPDIR"]) as folder:
        ssh = pathlib.Path(folder) / "ssh"
        ssh.write_text(SSH)
        ssh.chmod(0o755)
        cases = [(name, number, remote) for remote in (False, True) for number in SIGNALS
                 for name in ("launcher", "guardian", "agent", "rank", "ssh") if remote or name != "ssh"]
        for turn in range(rounds):
            for name, number, remote in cases:
                check(name, number, remote, ssh)
            print(f"round {turn + 1} of {rounds}: {len(cases)} jobs ended", flush=True)


if __name__ == "__main__":
    main()
