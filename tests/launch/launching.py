"""What the tests of brigade_launch share: a job with a mark in its environment, by which its processes are found."""

import contextlib
import os
import pathlib
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import uuid

HERE = pathlib.Path(__file__).resolve().parent
LAUNCH = pathlib.Path(sys.argv[1]).resolve()
FEW_DESCRIPTORS = 40


def leave_few_descriptors():
    resource.setrlimit(resource.RLIMIT_NOFILE, (FEW_DESCRIPTORS, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))


class Job:
    """A launcher with these arguments. Its processes, wherever they went, are those with its mark."""

    def __init__(self, *arguments, variables=None, few_descriptors=False):
        self.mark = f"BRIGADE_TEST_MARK={uuid.uuid4()}"
        name, value = self.mark.split("=")
        environment = {key: text for key, text in os.environ.items() if key != "CUDA_VISIBLE_DEVICES"}
        environment.update({name: value, "OMP_NUM_THREADS": "1"}, **(variables or {}))
        self.folder = pathlib.Path(tempfile.mkdtemp(dir=os.environ["TEST_TMPDIR"]))
        environment["TMPDIR"] = str(self.folder)
        self.out, self.errors = self.folder / "out", self.folder / "errors"
        with open(self.out, "wb") as out, open(self.errors, "wb") as errors:
            self.process = subprocess.Popen([LAUNCH, *map(str, arguments)], stdin=subprocess.DEVNULL, stdout=out,
                                            stderr=errors, env=environment, cwd=self.folder,
                                            preexec_fn=leave_few_descriptors if few_descriptors else None)

    def wait(self):
        """The launcher's code, as a shell has it."""
        code = self.process.wait()
        return code if code >= 0 else 128 - code

    def printed(self):
        return self.out.read_text(errors="replace")

    def said(self):
        return self.errors.read_text(errors="replace")

    def wait_for(self, text, times=1):
        """Until the ranks have printed it so often."""
        while self.printed().count(text) < times:
            if self.process.poll() is not None:
                raise AssertionError(f"it ended before '{text}':\n{self.printed()}{self.said()}")
            time.sleep(0.01)

    def processes(self):
        """Ids of all that are alive and have the mark."""
        found = []
        for entry in pathlib.Path("/proc").iterdir():
            if not entry.name.isdigit():
                continue
            try:
                has_mark = self.mark.encode() in (entry / "environ").read_bytes().split(b"\0")
                state = (entry / "stat").read_text().rsplit(")", 1)[1].split()[0]
            except OSError:
                continue
            if has_mark and state not in "ZX":
                found.append(int(entry.name))
        return found

    def state(self, process):
        """The letter that the system has for it: Z of one that has ended."""
        return pathlib.Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()[0]

    def program(self, process):
        """The name of what it runs."""
        return pathlib.Path(f"/proc/{process}/comm").read_text().strip()

    def children(self, process):
        """Ids of the processes that one has started, in their order."""
        try:
            text = "".join(path.read_text() for path in pathlib.Path(f"/proc/{process}/task").glob("*/children"))
        except OSError:
            return []
        return [int(word) for word in text.split()]

    def wait_until_none_is_left(self):
        while self.processes():
            time.sleep(0.01)

    def close(self):
        for process in self.processes():
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        self.process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)


def run(*arguments, variables=None, few_descriptors=False):
    """(code, what was printed, what was said on the error output) of a job that ends by itself."""
    job = Job(*arguments, variables=variables, few_descriptors=few_descriptors)
    try:
        code = job.wait()
        job.wait_until_none_is_left()
        return code, job.printed(), job.said()
    finally:
        job.close()


class Host:
    """What other hosts are here: a process beside the launcher."""

    def __init__(self, folder):
        name = str(uuid.uuid4())
        self.process = subprocess.Popen([sys.executable, HERE / "host.py", name], stdout=subprocess.PIPE)
        self.process.stdout.readline()
        # Not "ssh", which is given options.
        self.ssh = pathlib.Path(folder) / "ask_host"
        self.ssh.write_text(f'#!/bin/sh\nexec {sys.executable} {HERE}/host.py {name} "$@"\n')
        self.ssh.chmod(0o755)

    def close(self):
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()


def stand_in_for_ssh(folder, body='sh -c "$2"', name="stand_in_for_ssh"):
    """A program that takes HOST COMMAND as ssh does, in a session of its own, and prints a greeting first."""
    path = pathlib.Path(folder) / name
    path.write_text(f'#!/bin/sh\necho "Welcome to $1"\n{body}\n')
    path.chmod(0o755)
    return path
