#!/usr/bin/env python3
"""clock_test.py BRIGADE_LAUNCH: what becomes of a job on two hosts when somebody sets their clocks: nothing.
BRIGADE_LAUNCH has the clock of tests/testing/jumping_clock.h."""

import os
import pathlib
import signal
import sys
import tempfile
import time

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from launching import Job, stand_in_for_ssh

# Looks often enough at the time for a wrong one to have its effect: hosts speak each second.
LONG = 3


def main():
    with tempfile.TemporaryDirectory(dir=os.environ["TEST_TMPDIR"]) as folder:
        hours = pathlib.Path(folder) / "hours"
        hours.write_text("")
        script = (f"trap 'echo asked; until [ -e {folder}/end ]; do sleep 0.01; done; echo saved; exit 0' TERM; "
                  "echo ready; while true; do sleep 0.01; done")
        job = Job(f"--ssh={stand_in_for_ssh(folder)}", "--hosts=a@b", "--host_timeout=10m", "--grace=10m", "bash", "-c",
                  script, variables={"BRIGADE_TEST_HOURS": str(hours)})
        try:
            job.wait_for("ready", 2)
            # Beyond the time after which a host that says nothing is lost.
            hours.write_text("x")
            time.sleep(LONG)
            assert job.process.poll() is None and "asked" not in job.printed(), job.said()
            # Beyond that in which ranks may save.
            job.process.send_signal(signal.SIGTERM)
            job.wait_for("asked", 2)
            hours.write_text("xx")
            time.sleep(LONG)
            (pathlib.Path(folder) / "end").touch()
            code = job.wait()
            assert code == 128 + signal.SIGTERM, (code, job.said())
            assert job.printed().count("saved") == 2, job.printed() + job.said()
            job.wait_until_none_is_left()
        finally:
            job.close()


if __name__ == "__main__":
    main()
