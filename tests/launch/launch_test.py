#!/usr/bin/env python3
"""launch_test.py BRIGADE_LAUNCH: what ranks get and print, how a job ends, and what starts it again."""

import os
import pathlib
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest
import uuid

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from launching import FEW_DESCRIPTORS, LAUNCH, Host, Job, run, stand_in_for_ssh


def shell(script):
    return ["bash", "-c", script]


class LaunchTest(unittest.TestCase):

    def test_ranks_know_their_places(self):
        code, printed, said = run("--nproc_per_node=3", *shell(
            'echo $RANK $LOCAL_RANK $WORLD_SIZE $LOCAL_WORLD_SIZE $GROUP_RANK $MASTER_ADDR $CUDA_VISIBLE_DEVICES '
            '${#BRIGADE_JOB_SECRET} $TORCHELASTIC_RESTART_COUNT; [ "$MASTER_PORT" -gt 0 ] || exit 1'))
        self.assertEqual((code, said), (0, ""))
        self.assertEqual(sorted(printed.splitlines()),
                         [f"[{rank}] {rank} {rank} 3 3 0 127.0.0.1 0,1,2 64 0" for rank in range(3)])

    def test_devices_that_were_chosen_before_stay(self):
        code, printed, _ = run("--nproc_per_node=2", *shell("echo $CUDA_VISIBLE_DEVICES"),
                               variables={"CUDA_VISIBLE_DEVICES": "GPU-7,GPU-9"})
        self.assertEqual((code, sorted(printed.splitlines())), (0, ["[0] GPU-7,GPU-9", "[1] GPU-7,GPU-9"]))

    def test_a_filter_leaves_devices_that_were_chosen_before(self):
        for flag in ("--include=localhost:1,2", "--exclude=localhost:0"):
            code, printed, _ = run(flag, *shell("echo $LOCAL_RANK $CUDA_VISIBLE_DEVICES"),
                                   variables={"CUDA_VISIBLE_DEVICES": "GPU-7,GPU-8,GPU-9"})
            self.assertEqual((code, sorted(printed.splitlines())), (0, ["[0] 0 GPU-8,GPU-9", "[1] 1 GPU-8,GPU-9"]))
        # Of ranks that have no GPU each nothing can be left.
        code, printed, _ = run("--nproc_per_node=3", "--include=localhost:1,2", *shell("echo $CUDA_VISIBLE_DEVICES"),
                               variables={"CUDA_VISIBLE_DEVICES": "GPU-7"})
        self.assertEqual((code, sorted(printed.splitlines())), (0, ["[0] GPU-7", "[1] GPU-7"]))

    def test_output_is_whole_lines_of_one_rank_and_nothing_is_lost(self):
        code, printed, said = run("--nproc_per_node=4", *shell(
            'for i in $(seq 3000); do echo "line $i of rank $RANK"; done; printf "no end" >&2'))
        self.assertEqual(code, 0)
        for rank in range(4):
            lines = [line for line in printed.splitlines() if line.startswith(f"[{rank}] ")]
            self.assertEqual(lines, [f"[{rank}] line {i} of rank {rank}" for i in range(1, 3001)])
        self.assertEqual(sorted(said.splitlines()), [f"[{rank}] no end" for rank in range(4)])

    def test_one_rank_has_no_prefix_and_any_bytes(self):
        job = Job("printf", r"a\x00\xff\x1b[1m\r\n")
        try:
            self.assertEqual(job.wait(), 0)
            self.assertEqual(job.out.read_bytes(), b"a\0\xff\x1b[1m\r\n")
        finally:
            job.close()

    def test_one_rank_has_as_many_bytes_as_it_wrote(self):
        code, printed, _ = run("head", "-c", "300000", "/dev/zero")
        self.assertEqual((code, len(printed)), (0, 300000))

    def test_a_bar_of_progress_is_seen_while_it_grows(self):
        job = Job("--nproc_per_node=2", *shell(r"printf '10 %%\r'; exec sleep 1000"))
        try:
            while job.out.read_bytes().count(b"10 %\r") < 2:
                time.sleep(0.01)
            self.assertEqual(sorted(job.out.read_bytes().split(b"\r")), [b"", b"[0] 10 %", b"[1] 10 %"])
        finally:
            job.close()

    def test_without_errors_the_last_line_says_why(self):
        code, _, said = run(*shell("echo first; sleep 0.1; echo second; exit 3"))
        self.assertEqual(code, 3)
        self.assertRegex(said, r"ended with code 3: second\n$")

    def test_what_was_ignored_before_stays_ignored(self):
        # SIGHUP, as behind nohup; and SIGCHLD, by who does not wait for children, is no reason to wait for ever.
        with tempfile.TemporaryDirectory(dir=os.environ["TEST_TMPDIR"]) as folder:
            ignoring = pathlib.Path(folder) / "ignoring"
            ignoring.write_text("import os, signal, sys\n"
                                "for each in (signal.SIGHUP, signal.SIGCHLD):\n"
                                "    signal.signal(each, signal.SIG_IGN)\n"
                                "os.execv(sys.argv[1], sys.argv[1:])\n")
            fifo = pathlib.Path(folder) / "fifo"
            os.mkfifo(fifo)
            process = subprocess.Popen([sys.executable, ignoring, LAUNCH, *shell(
                f"echo ready; read line <{fifo}; echo $line")], stdout=subprocess.PIPE, text=True)
            self.assertEqual(process.stdout.readline(), "ready\n")
            process.send_signal(signal.SIGHUP)
            fifo.write_text("went on\n")
            self.assertEqual(process.stdout.read(), "went on\n")
            self.assertEqual(process.wait(), 0)
            process.stdout.close()

    def test_ctrl_z_stops_nothing(self):
        # The launcher goes on passing on; a rank stops itself if it likes.
        with tempfile.TemporaryDirectory(dir=os.environ["TEST_TMPDIR"]) as folder:
            fifo = pathlib.Path(folder) / "fifo"
            os.mkfifo(fifo)
            job = Job(*shell(f"trap 'echo rank has it' TSTP; kill -TSTP $$; echo ready; read line <{fifo}; echo $line"))
            try:
                job.wait_for("ready")
                for process in (job.process.pid, *job.children(job.process.pid)):
                    os.kill(process, signal.SIGTSTP)
                fifo.write_text("went on\n")
                self.assertEqual(job.wait(), 0)
                self.assertEqual(job.printed(), "rank has it\nready\nwent on\n")
            finally:
                job.close()

    def test_programs_of_python_are_run_by_it_and_keep_nothing_back(self):
        with tempfile.TemporaryDirectory(dir=os.environ["TEST_TMPDIR"]) as folder:
            fifo = pathlib.Path(folder) / "fifo"
            os.mkfifo(fifo)
            # Without a line's end it would stay in Python's buffer until the end.
            program = pathlib.Path(folder) / "program.py"
            program.write_text(f"import sys\nprint('ready')\nopen({str(fifo)!r}).read()\nprint(*sys.argv[1:])\n")
            for arguments in ([program], ["--module", "program"]):
                job = Job(*arguments, "--flag", "word", variables={"PYTHONPATH": folder, "PYTHONDONTWRITEBYTECODE": "1"})
                try:
                    job.wait_for("ready")
                    fifo.write_text("go on")
                    self.assertEqual(job.wait(), 0)
                    self.assertEqual(job.printed(), "ready\n--flag word\n")
                finally:
                    job.close()
            # As it is: not executable.
            self.assertNotEqual(run("--no_python", program)[0], 0)

    def test_a_line_without_an_end_is_passed_on(self):
        code, printed, _ = run("--nproc_per_node=2", *shell("head -c 1000000 /dev/zero | tr '\\0' x"))
        self.assertEqual(code, 0)
        self.assertEqual(printed.count("x"), 2000000)

    def test_output_goes_to_a_file_for_each_rank(self):
        with tempfile.TemporaryDirectory(dir=os.environ["TEST_TMPDIR"]) as folder:
            code, printed, said = run("--nproc_per_node=2", f"--enable_each_rank_log={folder}/logs", *shell(
                f"echo out $RANK; echo err $RANK >&2; until grep -q err {folder}/logs/rank_0.log; do sleep 0.01; done; "
                "exit $RANK"))
            self.assertEqual((code, printed), (1, ""))
            for rank in range(2):
                text = pathlib.Path(f"{folder}/logs/rank_{rank}.log").read_text()
                self.assertEqual(text, f"out {rank}\nerr {rank}\n")
            self.assertRegex(said, r"^brigade_launch: rank 1 on localhost \(process \d+\) ended with code 1: err 1\n$")

    def test_the_first_error_is_the_last_line_once(self):
        code, _, said = run("--nproc_per_node=3", *shell(
            'if [ $RANK = 1 ]; then echo "cannot read x" >&2; exit 3; fi; '
            'trap "echo late >&2; exit 9" TERM; while true; do sleep 0.01; done'))
        self.assertEqual(code, 3)
        lines = said.splitlines()
        self.assertRegex(lines[-1], r"^brigade_launch: rank 1 on localhost \(process \d+\) ended with code 3: cannot read x$")
        self.assertEqual(sum(line.startswith("brigade_launch") for line in lines), 1)

    def test_the_error_file_says_why(self):
        code, _, said = run("--nproc_per_node=2", *shell(
            '[ $RANK = 1 ] || exec sleep 1000; '
            'echo \'{"message": {"message": "INTERNAL: lost", "extraInfo": {"timestamp": "1"}}}\' '
            '>$TORCHELASTIC_ERROR_FILE; echo other >&2; exit 1'))
        self.assertEqual(code, 1)
        self.assertIn("ended with code 1: INTERNAL: lost\n", said)

    def test_what_is_in_the_error_file_ends_nobody(self):
        for content in ("", "{", "[]", '{"message": 7}', '{"message": {"message": [1]}}', "[" * 5000):
            code, _, said = run(*shell(f"echo '{content}' >$TORCHELASTIC_ERROR_FILE; exit 4"))
            self.assertEqual(code, 4, said)
            self.assertIn("ended with code 4", said)

    def test_a_rank_that_was_killed_goes_before_one_that_ended_first(self):
        job = Job("--nproc_per_node=2", *shell(
            'trap "exit 5" USR1; echo "ready $RANK $$."; while true; do sleep 0.01; done'))
        try:
            job.wait_for("ready", 2)
            ranks = {int(line.split()[2]): int(line.split()[3].rstrip(".")) for line in job.printed().splitlines()}
            agent = job.children(job.children(job.process.pid)[0])[0]
            # Both have ended before the agent looks.
            os.kill(agent, signal.SIGSTOP)
            for rank, number in ((0, signal.SIGUSR1), (1, signal.SIGKILL)):
                os.kill(ranks[rank], number)
                while job.state(ranks[rank]) != "Z":
                    time.sleep(0.01)
            os.kill(agent, signal.SIGCONT)
            self.assertEqual(job.wait(), 137)
            self.assertIn("rank 1 on localhost", job.said())
        finally:
            job.close()

    def test_codes_are_passed_on(self):
        self.assertEqual(run(*shell("exit 77"))[0], 77)
        self.assertEqual(run(*shell("kill -SEGV $$"))[0], 128 + signal.SIGSEGV)
        code, _, said = run("./nothere")
        self.assertEqual(code, 127)
        self.assertIn('rank 0 on localhost did not start: program "./nothere": No such file or directory', said)
        code, _, said = run("/")
        self.assertEqual(code, 126)
        self.assertIn("Permission denied", said)
        code, _, said = run("--nproc_per_node=x", "true")
        self.assertEqual(code, 2)
        self.assertIn("brigade_launch: --nproc_per_node is", said)

    def test_ranks_that_take_no_signal_are_killed_when_the_grace_is_over(self):
        start = time.monotonic()
        code, _, said = run("--nproc_per_node=2", "--grace=0.2", *shell(
            'trap "" TERM; [ $RANK = 0 ] || exit 6; while true; do sleep 0.01; done'))
        self.assertEqual(code, 6, said)
        # With the usual grace this takes half a minute.
        self.assertLess(time.monotonic() - start, 20)

    def test_ranks_may_save_within_the_grace(self):
        job = Job("--nproc_per_node=2", "--grace=10m", *shell(
            'trap "sleep 0.3; echo saved; exit 0" TERM; echo ready; while true; do sleep 0.01; done'))
        try:
            job.wait_for("ready", 2)
            job.process.send_signal(signal.SIGTERM)
            self.assertEqual(job.wait(), 143)
            self.assertEqual(job.printed().count("saved"), 2)
            self.assertEqual(job.said().splitlines()[-1], "brigade_launch: ended by SIGTERM")
            job.wait_until_none_is_left()
        finally:
            job.close()

    def test_a_second_signal_kills(self):
        job = Job("--nproc_per_node=2", "--grace=10m", *shell(
            'trap "echo no" INT TERM; echo ready; while true; do sleep 0.01; done'))
        try:
            job.wait_for("ready", 2)
            job.process.send_signal(signal.SIGINT)
            job.wait_for("no", 2)
            job.process.send_signal(signal.SIGINT)
            self.assertEqual(job.wait(), 130)
            job.wait_until_none_is_left()
        finally:
            job.close()

    def test_what_a_rank_leaves_behind_ends_with_the_job(self):
        code, _, _ = run("--nproc_per_node=2", *shell("setsid sleep 1000 & sleep 1000 & disown -a; exit 0"))
        self.assertEqual(code, 0)

    def test_a_reader_that_does_not_read_keeps_no_signal_waiting(self):
        # While ranks write, to one pipe with both outputs; and when all have ended.
        for arguments in (["--nproc_per_node=2", *shell("yes & yes >&2")], shell("seq 200000; exit 3")):
            read_end, write_end = os.pipe()
            process = subprocess.Popen([LAUNCH, *arguments], stdout=write_end, stderr=write_end)
            os.read(read_end, 3000)
            time.sleep(0.3)
            process.send_signal(signal.SIGTERM)
            self.assertEqual(process.wait(), 143)
            os.close(read_end)
            os.close(write_end)

    def test_a_full_disk_is_told_once(self):
        with open("/dev/full", "wb") as full:
            result = subprocess.run([LAUNCH, *shell("for i in 1 2 3; do echo $i; sleep 0.1; done")], stdout=full,
                                    stderr=subprocess.PIPE, text=True, check=False)
        self.assertEqual((result.returncode, result.stderr),
                         (0, "brigade_launch: what ranks print is lost: No space left on device\n"))
        # Who reads no more has asked for it.
        read_end, write_end = os.pipe()
        os.close(read_end)
        result = subprocess.run([LAUNCH, *shell("echo 1; sleep 0.1; echo 2")], stdout=write_end, stderr=subprocess.PIPE,
                                check=False)
        os.close(write_end)
        self.assertEqual((result.returncode, result.stderr), (0, b""))

    def test_a_slow_reader_loses_no_host(self):
        with tempfile.TemporaryDirectory(dir=os.environ["TEST_TMPDIR"]) as folder:
            host = Host(folder)
            read_end, write_end = os.pipe()
            process = subprocess.Popen(
                [LAUNCH, f"--ssh={host.ssh}", "--hosts=a", "--host_timeout=1", *shell("seq 1500000; echo end")],
                stdout=write_end, stderr=subprocess.PIPE, text=True, env=dict(os.environ, BRIGADE_TEST_MARK="slow"))
            os.close(write_end)
            time.sleep(3)
            with open(read_end, encoding="ascii") as reader:
                self.assertTrue(reader.read().endswith("1500000\nend\n"))
            self.assertEqual(process.wait(), 0, process.stderr.read())
            process.stderr.close()
            host.close()

    def test_cores_are_shared_out(self):
        count = len(os.sched_getaffinity(0))
        code, printed, _ = run(f"--nproc_per_node={count}", "--bind_cores_to_rank", *shell(
            "grep Cpus_allowed_list /proc/self/status"))
        self.assertEqual(code, 0)
        cores = sorted(int(line.split()[-1]) for line in printed.splitlines())
        self.assertEqual(cores, sorted(os.sched_getaffinity(0)))

    def test_ranks_may_be_more_than_half_the_descriptors_of_a_process(self):
        code, printed, said = run("--nproc_per_node=30", *shell("ulimit -Sn"), few_descriptors=True)
        self.assertEqual((code, said), (0, ""))
        # Theirs are as many as before.
        self.assertEqual(sorted(printed.splitlines()), sorted(f"[{rank}] {FEW_DESCRIPTORS}" for rank in range(30)))

    def test_an_agent_ends_whose_launcher_says_nothing(self):
        # As where a host was cut off before ranks had begun, of which no end of messages tells.
        with subprocess.Popen([LAUNCH, f"--agent=test.{uuid.uuid4()}", "--agent_patience=0.5"], stdin=subprocess.PIPE,
                              stdout=subprocess.PIPE) as agent:
            self.assertTrue(agent.stdout.readline().startswith(b"@brigade_launch "))
            self.assertEqual(agent.wait(), 0)

    def test_an_agent_that_waits_for_another_one_ends_with_its_launcher(self):
        name = f"--agent=test.{uuid.uuid4()}"
        with subprocess.Popen([LAUNCH, name], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as first:
            self.assertTrue(first.stdout.readline())
            with subprocess.Popen([LAUNCH, name], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as second:
                # It says nothing.
                self.assertEqual(select.select([second.stdout], [], [], 0.3)[0], [])
                second.stdin.close()
                self.assertEqual(second.wait(), 0)
                self.assertEqual(second.stdout.read(), b"")
            # A socket, as some servers of ssh have, of which only what the launcher writes has ended.
            ours, theirs = socket.socketpair()
            with ours, subprocess.Popen([LAUNCH, name], stdin=theirs, stdout=subprocess.PIPE) as third:
                theirs.close()
                self.assertEqual(select.select([third.stdout], [], [], 0.3)[0], [])
                ours.shutdown(socket.SHUT_WR)
                self.assertEqual(third.wait(), 0)
            self.assertIsNone(first.poll())
            first.stdin.close()
            self.assertEqual(first.wait(), 0)

    def test_an_agent_says_what_it_cannot_read(self):
        # Each the begin or all of what it is told: a message that is none, and an order without what it needs.
        for told, reason in ((b"@brigade_launch x\n", '"x" is no length of a message'),
                             (b"@brigade_launch 2\nab", "not a message of this protocol"),
                             (b"@brigade_launch 7\n5:start", "not an order to start"),
                             (b"@brigade_launch 7\n4:stop@other\n", "not a message of this protocol"),
                             (b"@brigade_launch 6\n4:kill@other\n", '"@other" instead of a message')):
            agent = subprocess.Popen([LAUNCH, f"--agent=test.{uuid.uuid4()}"], stdin=subprocess.PIPE,
                                     stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
            # What it reads does not end before it does.
            agent.stdin.write(told)
            agent.stdin.flush()
            self.assertEqual(agent.stderr.read().decode(),
                             f"brigade_launch: {reason}; is the launcher of another version?\n")
            self.assertEqual(agent.wait(), 0)
            agent.stdin.close()
            agent.stderr.close()

    def test_the_launchers_id_is_in_a_file(self):
        job = Job("--save_pid", *shell("echo ready; exec sleep 1000"))
        try:
            job.wait_for("ready")
            path = job.folder / f"{job.process.pid}.ds"
            self.assertEqual(path.read_text(), str(job.process.pid))
            job.process.send_signal(signal.SIGTERM)
            job.wait()
            self.assertFalse(path.exists())
        finally:
            job.close()


class RestartTest(unittest.TestCase):

    def test_a_failure_is_a_restart_up_to_a_number(self):
        script = ('echo "try $TORCHELASTIC_RESTART_COUNT of $TORCHELASTIC_MAX_RESTARTS"; '
                  'if [ $RANK = 1 ] && [ $TORCHELASTIC_RESTART_COUNT -lt 2 ]; then kill -9 $$; fi')
        code, printed, said = run("--nproc_per_node=2", "--max_restarts=2", *shell(script))
        self.assertEqual(code, 0)
        self.assertIn("[1] try 2 of 2\n", printed)
        self.assertEqual(said.count("restart 1 of 2"), 1)
        self.assertEqual(said.count("restart 2 of 2"), 1)
        code, printed, said = run("--nproc_per_node=2", "--max_restarts=1", *shell(script))
        self.assertEqual(code, 137)
        self.assertRegex(said.splitlines()[-1], r"^brigade_launch: rank 1 .* was ended by SIGKILL: try 1 of 1$")

    def test_each_start_has_a_secret_and_a_port_of_its_own(self):
        with tempfile.TemporaryDirectory(dir=os.environ["TEST_TMPDIR"]) as folder:
            # Both have written before one ends the other.
            script = (f'cd {folder}; echo $BRIGADE_JOB_SECRET >>$RANK; touch 0 1; '
                      'until [ $(cat 0 1 | wc -l) = $((2 * TORCHELASTIC_RESTART_COUNT + 2)) ]; do sleep 0.01; done; exit 1')
            run("--nproc_per_node=2", "--max_restarts=2", *shell(script))
            first, second = (pathlib.Path(f"{folder}/{rank}").read_text().split() for rank in range(2))
            self.assertEqual(first, second)
            self.assertEqual(len(set(first)), 3)
            given = "ab" * 32
            run("--nproc_per_node=1", *shell(f"echo $BRIGADE_JOB_SECRET >{folder}/given"),
                variables={"BRIGADE_JOB_SECRET": given})
            self.assertNotEqual(pathlib.Path(f"{folder}/given").read_text().strip(), given)

    def test_no_restart_after_a_signal(self):
        job = Job("--max_restarts=5", *shell("echo ready; exec sleep 1000"))
        try:
            job.wait_for("ready")
            job.process.send_signal(signal.SIGTERM)
            self.assertEqual(job.wait(), 143)
            self.assertEqual(job.printed().count("ready"), 1)
        finally:
            job.close()


class SeveralHostsTest(unittest.TestCase):

    def setUp(self):
        self.folder = tempfile.mkdtemp(dir=os.environ["TEST_TMPDIR"])

    def job(self, *arguments, body='sh -c "$2"', variables=None):
        return Job(f"--ssh={stand_in_for_ssh(self.folder, body)}", *arguments, variables=variables)

    def ends(self, job, code):
        try:
            self.assertEqual(job.wait(), code, job.said())
            job.wait_until_none_is_left()
            return job.printed(), job.said()
        finally:
            job.close()

    def test_ranks_are_those_of_a_hostfile(self):
        hostfile = pathlib.Path(self.folder) / "hosts"
        hostfile.write_text("# two of three\na slots=2\nb slots=3\nc slots=1\n")
        printed, said = self.ends(self.job(
            f"--hostfile={hostfile}", "--exclude=c@b:1", *shell(
                "echo $RANK $LOCAL_RANK $WORLD_SIZE $GROUP_RANK $CUDA_VISIBLE_DEVICES $NCCL_THIS")), 0)
        self.assertEqual(sorted(printed.splitlines()), ["[0] 0 0 4 0 0,1", "[1] 1 1 4 0 0,1", "[2] 2 0 4 1 0,2",
                                                        "[3] 3 1 4 1 0,2"])
        self.assertEqual(sorted(said.splitlines()), ["[a] Welcome to a", "[b] Welcome to b"])

    def test_variables_and_the_folder_are_passed_on(self):
        pathlib.Path(f"{self.folder}/env").write_text("# for all\nMORE=of it\n")
        job = self.job("--hosts=a:0", *shell("pwd; echo $NCCL_THIS $MORE $OTHER."),
                       body='cd /; env -u OTHER -u NCCL_THIS sh -c "$2"',
                       variables={"NCCL_THIS": "is it", "OTHER": "x", "DS_ENV_FILE": f"{self.folder}/env"})
        folder = job.folder
        printed, _ = self.ends(job, 0)
        self.assertEqual(printed.splitlines()[0], str(folder))
        self.assertEqual(printed.splitlines()[1], "is it of it .")

    def test_a_host_that_is_not_there_is_named(self):
        _, said = self.ends(self.job("--hosts=a@b", "--host_timeout=5", "true",
                                     body='[ $1 = a ] || { echo "no route to $1" >&2; exit 255; }; sh -c "$2"'), 1)
        self.assertIn("no route to b", said)
        self.assertIn("brigade_launch: 1 of 2 hosts are there, and 2 are needed; host b is lost: its agent ended with "
                      "code 255", said)

    def test_a_host_that_wants_a_password_ends_the_job_at_once(self):
        # Not after the hour in which other hosts may come.
        ssh = stand_in_for_ssh(self.folder, name="ssh", body=(
            '[ "$1 $2 $3 $4" = "-p 7 -o BatchMode=yes" ] || exit 9; '
            '[ $5 = a ] || { printf "user@$5: Permission denied (publickey,password).\\r\\n" >&2; exit 255; }; '
            'sh -c "$6"'))
        start = time.monotonic()
        _, said = self.ends(Job(f"--ssh={ssh}", "--launcher_args=-p 7", "--hosts=a@b", "--host_timeout=1h", "true"), 1)
        self.assertLess(time.monotonic() - start, 600)
        self.assertIn("[b] user@b: Permission denied (publickey,password).\n", said)
        self.assertTrue(said.endswith("of 2 hosts are there, and 2 are needed; host b is lost: its agent ended with code 255: "
                                      "user@b: Permission denied (publickey,password).\n"), said)

    def test_without_a_host_that_wants_a_password_others_may_be_enough(self):
        count = f"{self.folder}/count"
        ssh = stand_in_for_ssh(self.folder, name="ssh", body=(
            f'[ $3 = a ] || {{ echo >>{count}; echo "Host key verification failed." >&2; exit 255; }}; '
            # Time for more tries.
            'sleep 3; sh -c "$4"'))
        printed, _ = self.ends(Job(f"--ssh={ssh}", "--hosts=a@b", "--nnodes=1:2", "--host_timeout=1h", "echo", "there"), 0)
        self.assertEqual(printed, "there\n")
        self.assertEqual(pathlib.Path(count).read_text(), "\n")

    def test_a_refusal_is_seen_behind_which_ssh_says_that_it_was_disconnected(self):
        count = f"{self.folder}/count"
        refusal = "Received disconnect from 10.0.0.7 port 22:2: Too many authentication failures"
        ssh = stand_in_for_ssh(self.folder, name="ssh", body=(
            f'echo >>{count}; printf "%s\\r\\n" "{refusal}" "Disconnected from 10.0.0.7 port 22" >&2; exit 255'))
        _, said = self.ends(Job(f"--ssh={ssh}", "--hosts=a:0,1", "--host_timeout=1h", "true"), 1)
        self.assertEqual(pathlib.Path(count).read_text(), "\n")
        self.assertTrue(said.endswith(f"host a is lost: its agent ended with code 255: {refusal}\n"), said)
        self.assertIn("[a] Disconnected from 10.0.0.7 port 22\n", said)

    def test_an_error_of_each_try_is_told_once(self):
        _, said = self.ends(self.job("--hosts=a", "--host_timeout=3", "true", body='echo "no route to $1" >&2; exit 255'), 1)
        self.assertEqual(said.count("[a] no route to a\n"), 1)
        self.assertTrue(said.endswith("its agent ended with code 255: no route to a\n"), said)

    def test_a_host_that_has_no_ranks_is_kept(self):
        # Longer than a host may be silent; its agent is asked once.
        count = f"{self.folder}/count"
        job = self.job("--hosts=a@b", "--nnodes=1:1", "--max_restarts=1", "--host_timeout=1", *shell(
            "echo start; sleep 3; exit $((1 - TORCHELASTIC_RESTART_COUNT))"), body=f'echo $1 >>{count}; sh -c "$2"')
        printed, said = self.ends(job, 0)
        self.assertEqual(printed.count("start"), 2)
        self.assertEqual(sorted(pathlib.Path(count).read_text().split()), ["a", "b"], said)

    def test_a_host_that_talks_nonsense_is_named(self):
        _, said = self.ends(self.job("--hosts=a", "--host_timeout=5", "true",
                                     body='printf "@brigade_launch 99999999999\\n"; sleep 1000'), 1)
        self.assertIn("a says \"99999999999\" is no length of a message", said)

    def test_a_silent_host_is_lost(self):
        # Its agent is stopped, as a machine that hangs.
        job = self.job("--hosts=a@b", "--host_timeout=5", *shell(
            'echo ready $RANK; [ $RANK = 0 ] || kill -STOP $PPID; exec sleep 1000'))
        try:
            self.assertEqual(job.wait(), 137, job.said())
            self.assertIn("host b is lost: it has said nothing for 5s", job.said())
        finally:
            job.close()

    def test_a_silent_host_without_ranks_is_lost_and_asked_again(self):
        count, lost = (pathlib.Path(self.folder) / name for name in ("count", "lost"))
        job = self.job("--hosts=a@b", "--nnodes=1:1", "--max_restarts=1", "--host_timeout=2", *shell(
            f"echo start; until [ -e {lost} ]; do sleep 0.05; done; exit $((1 - TORCHELASTIC_RESTART_COUNT))"),
            body=f'echo $1 >>{count}; sh -c "$2"')
        try:
            job.wait_for("start")
            # The stand-in for ssh, its shell's command, and below them the agent, which says nothing any more.
            stand_in = process = job.children(job.process.pid)[1]
            while job.children(process):
                process = job.children(process)[0]
            os.kill(process, signal.SIGSTOP)
            while stand_in in job.children(job.process.pid):
                self.assertIsNone(job.process.poll(), job.said())
                time.sleep(0.01)
            # It costs no rank.
            self.assertEqual(job.printed().count("start"), 1)
            lost.touch()
            self.assertEqual(job.wait(), 0, job.said())
            self.assertEqual(job.printed().count("start"), 2)
            self.assertEqual(sorted(count.read_text().split()), ["a", "b", "b"], job.said())
        finally:
            job.close()

    def test_an_agent_ends_without_a_launcher_that_takes_what_it_says(self):
        # The launcher is stopped, as a machine that hangs, while ranks have more to say than a pipe holds.
        job = self.job("--hosts=a", "--host_timeout=2", *shell("echo ready; exec yes"))
        try:
            while not job.out.stat().st_size:
                self.assertIsNone(job.process.poll(), job.said())
                time.sleep(0.01)
            job.process.send_signal(signal.SIGSTOP)
            while job.processes() != [job.process.pid]:
                time.sleep(0.01)
        finally:
            job.close()

    def test_a_lost_host_is_left_out_and_taken_in_again(self):
        # b is away while the file is there; its agent is killed twice.
        body = f'[ $1 = a ] || [ ! -e {self.folder}/away ] || exit 255; sh -c "$2"'
        script = (f'echo "rank $RANK of $WORLD_SIZE, start $TORCHELASTIC_RESTART_COUNT"; cd {self.folder}; '
                  'case $TORCHELASTIC_RESTART_COUNT in '
                  '0) [ $GROUP_RANK = 0 ] || { touch away; kill -9 $PPID; } ;; '
                  '1) rm away; exit 1 ;; '
                  '2) exit 0 ;; esac; exec sleep 1000')
        job = self.job("--hosts=a:0,1@b:0", "--nnodes=1:2", "--max_restarts=3", "--host_timeout=20", *shell(script),
                       body=body)
        printed, said = self.ends(job, 0)
        self.assertRegex(printed, "rank [01] of 2, start 1")
        self.assertNotIn("of 3, start 1", printed)
        self.assertIn("rank 2 of 3, start 2", printed)
        self.assertIn("host b is lost", said)
        self.assertIn("starting 2 ranks on 1 host\n", said)
        self.assertIn("starting 3 ranks on 2 hosts\n", said)

    def test_a_host_whose_ssh_was_killed_is_asked_again(self):
        host = Host(self.folder)
        job = Job(f"--ssh={host.ssh}", "--hosts=a:0,1@b:0", "--max_restarts=1", *shell(
            'echo "ready for $TORCHELASTIC_RESTART_COUNT with $WORLD_SIZE"; '
            '[ $TORCHELASTIC_RESTART_COUNT = 1 ] || exec sleep 1000'))
        try:
            job.wait_for("ready for 0 with 3", 3)
            os.kill(job.children(job.process.pid)[1], signal.SIGKILL)
            self.assertEqual(job.wait(), 0, job.said())
            self.assertEqual(job.printed().count("ready for 1 with 3"), 3)
            job.wait_until_none_is_left()
        finally:
            job.close()
            host.close()

    def test_the_same_command_on_each_host(self):
        printed = []
        for k in range(2):
            code, lines, said = run("--no_ssh", f"--node_rank={k}", "--nnodes=2", "--nproc_per_node=2",
                                    "--master_addr=here", "--master_port=7",
                                    *shell("echo $RANK $WORLD_SIZE $MASTER_ADDR $MASTER_PORT $GROUP_RANK"))
            self.assertEqual((code, said), (0, ""))
            printed += lines.splitlines()
        self.assertEqual(sorted(printed), [f"[{r}] {r} 4 here 7 {r // 2}" for r in range(4)])

    def test_the_number_of_this_host_is_one_of_the_jobs(self):
        for nodes, hosts in (("1", "1 host"), ("2", "2 hosts")):
            code, printed, said = run("--no_ssh", f"--node_rank={nodes}", f"--nnodes={nodes}", "--master_addr=here",
                                      "--master_port=7", *shell("echo $RANK"))
            self.assertEqual((code, printed), (2, ""))
            self.assertEqual(said, f"brigade_launch: --node_rank is {nodes}, and the job has {hosts}\n")


# Rank 0 listens where the others look for it.
MEET = """
import os, socket
rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
where = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
if rank == 0:
    with socket.create_server(where) as server:
        for _ in range(size - 1):
            server.accept()[0].sendall(b"x")
else:
    while True:
        try:
            with socket.create_connection(where) as other:
                assert other.recv(1) == b"x"
            break
        except ConnectionRefusedError:
            pass
print("met at", where[0])
"""

# Behind it: in the first start the last rank's host is lost, in the second one the other host's ranks fail.
LOSE = """
import pathlib, signal, sys, time
away, start = pathlib.Path(sys.argv[1]), int(os.environ["TORCHELASTIC_RESTART_COUNT"])
print("start", start, "of", size, "at", where[0], flush=True)
if start == 0 and rank == size - 1:
    away.touch()
    os.kill(os.getppid(), signal.SIGKILL)
if start == 1 and rank == 0:
    away.unlink()
    sys.exit(1)
while start < 2:
    time.sleep(0.01)
"""


def can_make_hosts():
    command = ["unshare", "--net", "ip", "link", "set", "lo", "up"]
    return all(map(shutil.which, ("unshare", "nsenter", "ip"))) and subprocess.run(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode == 0


@unittest.skipUnless(can_make_hosts(), "[  SKIPPED ] network namespaces as hosts need root and iproute2")
class NamespacesTest(unittest.TestCase):
    """Two network namespaces as hosts, with a link between them."""

    def setUp(self):
        self.folder = tempfile.mkdtemp(dir=os.environ["TEST_TMPDIR"])
        self.holders = [subprocess.Popen(["unshare", "--net", "cat"], stdin=subprocess.PIPE) for _ in range(2)]
        own = os.readlink("/proc/self/ns/net")
        while any(os.readlink(f"/proc/{each.pid}/ns/net") == own for each in self.holders):
            time.sleep(0.01)
        first, second = self.holders
        subprocess.run(f"ip link add host0 netns {first.pid} type veth peer name host1 netns {second.pid}".split(),
                       check=True)
        for k, each in enumerate(self.holders):
            for command in (f"ip address add 10.79.7.{k + 1}/24 dev host{k}", f"ip link set host{k} up",
                            "ip link set lo up"):
                subprocess.run(["nsenter", "-t", str(each.pid), "-n", *command.split()], check=True)

    def tearDown(self):
        for each in self.holders:
            each.kill()
            each.wait()
            each.stdin.close()

    def run_on_both(self, *arguments, before=""):
        """A job on hosts a and b; `before`: what its stand-in for ssh does first."""
        body = "\n".join([before, *(f'[ $1 != {name} ] || exec nsenter -t {each.pid} -n sh -c "$2"'
                                    for name, each in zip("ab", self.holders))])
        return run(f"--ssh={stand_in_for_ssh(self.folder, body)}", "--hosts=b:0,1@a:0,1", *arguments)

    def test_ranks_of_two_hosts_meet(self):
        code, printed, said = self.run_on_both(sys.executable, "-c", MEET)
        self.assertEqual(code, 0, said)
        self.assertEqual(sorted(printed.splitlines()), [f"[{rank}] met at 10.79.7.2" for rank in range(4)])

    def test_a_host_that_is_lost_is_left_out_and_met_again(self):
        # a is away while the file is there; its agent is killed.
        away = f"{self.folder}/away"
        code, printed, said = self.run_on_both("--nnodes=1:2", "--max_restarts=2", sys.executable, "-c", MEET + LOSE, away,
                                               before=f"[ $1 = b ] || [ ! -e {away} ] || exit 255")
        self.assertEqual(code, 0, said)
        lines = printed.splitlines()
        self.assertIn("[0] start 1 of 2 at 127.0.0.1", lines)
        for rank in range(4):
            self.assertIn(f"[{rank}] start 2 of 4 at 10.79.7.2", lines)
        self.assertIn("host a is lost", said)


class MpirunTest(unittest.TestCase):

    @unittest.skipUnless(shutil.which("mpirun"), "[  SKIPPED ] no mpirun")
    def test_mpirun_starts_the_ranks(self):
        root = ["--allow-run-as-root"] if os.geteuid() == 0 else []
        arguments = " ".join(root + ["--oversubscribe"])
        code, printed, said = run("--launcher=openmpi", f"--launcher_args={arguments}", "--hosts=localhost:0,1", *shell(
            "echo $OMPI_COMM_WORLD_RANK of $OMPI_COMM_WORLD_SIZE at $MASTER_ADDR; exit $OMPI_COMM_WORLD_RANK"))
        self.assertEqual(code, 1, said)
        self.assertEqual(sorted(printed.splitlines()), ["0 of 2 at localhost", "1 of 2 at localhost"])

    def test_srun_and_pdsh_are_given_their_command(self):
        with tempfile.TemporaryDirectory(dir=os.environ["TEST_TMPDIR"]) as folder:
            for name in ("srun", "pdsh"):
                path = pathlib.Path(folder) / name
                path.write_text('#!/bin/sh\nfor word; do echo "<$word>"; done; echo "by $PDSH_RCMD_TYPE $PDSH_SSH_ARGS_APPEND"; exit 9\n')
                path.chmod(0o755)
            paths = {"PATH": f"{folder}:{os.environ['PATH']}"}
            code, printed, _ = run("--launcher=slurm", "--num_nodes=2", "--num_gpus=4", "train", "a b", variables=paths)
            self.assertEqual(code, 9)
            self.assertEqual(printed.split("\n")[:4], ["<-n>", "<8>", "<--nodes=2>", "<--ntasks-per-node=4>"])
            self.assertTrue(printed.endswith("<train>\n<a b>\nby  \n"), printed)
            code, printed, _ = run("--launcher=pdsh", "--hosts=a:0@b:0", "train", variables=paths)
            self.assertEqual(code, 9)
            self.assertIn("--no_ssh --node_rank=%n --hosts=a:0@b:0 --master_addr=a --master_port=29500", printed)
            # pdsh itself may ask by rsh, and ssh for a password.
            self.assertTrue(printed.endswith("\nby ssh -oBatchMode=yes\n"), printed)
            for name in ("PDSH_SSH_ARGS", "PDSH_SSH_ARGS_APPEND"):
                _, printed, _ = run("--launcher=pdsh", "--hosts=a:0@b:0", "train",
                                    variables={**paths, name: "-p 7 -oBatchMode=no"})
                self.assertEqual(printed.splitlines()[-1].strip(),
                                 "by ssh" if name == "PDSH_SSH_ARGS" else "by ssh -p 7 -oBatchMode=no")
            _, printed, _ = run("--launcher=pdsh", "--hosts=a:0@b:0", "train",
                                variables={**paths, "PDSH_SSH_ARGS_APPEND": "-p 7"})
            self.assertTrue(printed.endswith("\nby ssh -p 7 -oBatchMode=yes\n"), printed)
            _, printed, _ = run("--launcher=pdsh", "--hosts=a:0@b:0", "train",
                                variables={**paths, "PDSH_RCMD_TYPE": "exec"})
            self.assertIn("\nby exec ", printed)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[2:]])
