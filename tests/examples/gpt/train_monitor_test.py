#!/usr/bin/env python3
"""train_monitor_test.py TRAIN: what a training tells while it runs, and afterwards in files; and that nobody who does
not listen holds it up."""

import csv
import glob
import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import time
import unittest
import urllib.request

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.abspath("tests/monitor"))
from peers import Events

PAGE = os.path.abspath("docs/monitoring.md")
TRAIN = os.path.abspath(sys.argv.pop(1))
TINY = ["--layers=2", "--width=16", "--heads=2", "--context=16", "--ranks=2", "--batch=4", "--lr=0.001",
        "--precision=fp32"]
BATCH = 4
CONFIG = {"train_batch_size": "auto", "optimizer": {"type": "AdamW", "params": {"lr": "auto"}},
          "steps_per_print": 5, "wall_clock_breakdown": True,
          "tensorboard": {"enabled": True, "output_path": "logs", "job_name": "events"},
          "csv_monitor": {"enabled": True, "output_path": "logs/", "job_name": "csv"}}
LOSS = "Train/Samples/train_loss"


class MonitorTest(unittest.TestCase):
    def setUp(self):
        self.folder = f"{os.environ['TEST_TMPDIR']}/{self._testMethodName}"
        os.mkdir(self.folder)
        # Folders of the config begin where the training is started, not where the config is.
        os.mkdir(self.folder + "/configs")
        self.write_config({})

    def write_config(self, more):
        with open(self.folder + "/configs/config.json", "w") as file:
            json.dump({**CONFIG, **more}, file)

    def start(self, *flags, **how):
        environment = {key: value for key, value in os.environ.items() if key != "BUILD_WORKING_DIRECTORY"}
        process = subprocess.Popen([TRAIN, *TINY, "--config=configs/config.json", "--metrics=run.jsonl", *flags],
                                   cwd=self.folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                   text=True, **how)
        self.addCleanup(process.kill)
        return process

    def run_to_end(self, *flags):
        process = self.start(*flags)
        out, error = process.communicate()
        self.assertEqual(process.returncode, 0, error)
        return out, error

    def lines(self):
        with open(self.folder + "/run.jsonl") as file:
            return [json.loads(line) for line in file if line.endswith("\n")]

    def losses_of_lines(self):
        return [(BATCH * line["step"], line["loss"]) for line in self.lines() if "loss" in line]

    def losses_of_csv(self):
        with open(self.folder + "/logs/csv/Train_Samples_train_loss.csv", newline="") as file:
            rows = list(csv.reader(file))
        self.assertEqual(rows[0], ["step", "train_loss"])
        return [(int(step), float(value)) for step, value in rows[1:]]

    def events(self):
        return [Events(path) for path in sorted(glob.glob(self.folder + "/logs/events/events.out.tfevents.*"))]

    def check_files(self, steps):
        """All have the same steps, each once, with the same losses; those of events are floats."""
        losses = self.losses_of_lines()
        self.assertEqual([samples for samples, _ in losses], [BATCH * step for step in range(1, steps + 1)])
        self.assertEqual(self.losses_of_csv(), losses)
        shown = {}
        for events in self.events():
            # As TensorBoard does.
            shown = {samples: loss for samples, loss in shown.items() if samples < events.start}
            shown.update({samples: loss for tag, samples, loss in events.scalars if tag == LOSS})
        self.assertEqual(list(shown), [samples for samples, _ in losses])
        for samples, loss in losses:
            self.assertAlmostEqual(shown[samples], loss, delta=1e-6 * abs(loss))

    def test_the_page_shows_it_while_it_runs_and_files_have_the_same_at_the_end(self):
        self.write_config({"train_micro_batch_size_per_gpu": 2})
        # Steps that take so long that a disk which hangs for seconds drops no record.
        process = self.start("--steps=1000000", "--pipeline=2", "--evaluate_every=0", "--dashboard=0", "--width=64",
                             "--context=64")
        line = ""
        while not line.startswith("Dashboard: "):
            line = process.stdout.readline()
            self.assertNotEqual(line, "", "it ended")
        url = line.split()[1]

        def data():
            with urllib.request.urlopen(url + "data.json", timeout=120) as answer:
                return json.load(answer)

        # Nobody reads its output from here on, until it is asked to end.
        parts = "Train/Samples/elapsed_time_ms_forward"
        first = data()
        self.assertEqual((first["unit"], first["loss"]), ("byte", "nats"))
        while len(first["timeline"]["lanes"]) < 2 or parts not in first["series"]:
            self.assertIsNone(process.poll())
            first = data()
            time.sleep(0.05)
        second = data()
        while second["step"] <= first["step"] or second["timeline"]["step"] <= first["timeline"]["step"]:
            second = data()
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        out, error = process.communicate()
        self.assertEqual(process.returncode, 130, error)
        self.assertRegex(out, r"time \(ms\) \| forward: [0-9.]+ \| backward: [0-9.]+ \| backward_inner: ")

        timeline = second["timeline"]
        self.assertEqual([lane["name"] for lane in timeline["lanes"]], ["rank 0", "rank 1"])
        for lane in timeline["lanes"]:
            names = [name for name, _, _ in lane["passes"]]
            # Of each micro-batch both passes; 1F1B's first stage begins one more before it goes back.
            self.assertEqual(sorted(names), ["B0", "B1", "F0", "F1"])
            ends = [at for _, begin, end in lane["passes"] for at in (begin, end)]
            self.assertEqual(ends, sorted(ends))
        self.assertEqual([name for name, _, _ in timeline["lanes"][0]["passes"]], ["F0", "F1", "B0", "B1"])
        self.assertEqual([name for name, _, _ in timeline["lanes"][1]["passes"]], ["F0", "B0", "F1", "B1"])
        self.assertAlmostEqual(sum(seconds for _, seconds in timeline["split"]), timeline["seconds"],
                               delta=1e-3 * timeline["seconds"])
        self.assertEqual(second["samples"], BATCH * second["step"])
        self.assertGreater(second["series"]["Train/Memory/device_parameters_bytes"]["latest"], 0)
        self.assertIn("2 threads", second["title"])

        steps = self.lines()[-1]["step"]
        self.assertGreaterEqual(steps, second["step"])
        self.check_files(steps)
        tags = {tag for events in self.events() for tag, _, _ in events.scalars}
        for part in ("forward", "backward", "backward_inner", "backward_allreduce", "step"):
            self.assertIn("Train/Samples/elapsed_time_ms_" + part, tags)

    def test_the_page_has_the_pipeline_of_processes(self):
        self.write_config({"train_micro_batch_size_per_gpu": 2})
        if shutil.which("mpirun") is None:
            self.skipTest("no mpirun")
        # Below those that the kernel gives to others.
        port = random.randrange(20000, 30000)
        flags = [flag for flag in TINY if not flag.startswith("--ranks")]
        environment = {key: value for key, value in os.environ.items() if key != "BUILD_WORKING_DIRECTORY"}
        process = subprocess.Popen(["mpirun", "--allow-run-as-root", "--oversubscribe", "-n", "2", TRAIN, *flags,
                                    "--steps=1000000", "--pipeline=2", "--evaluate_every=0", "--dashboard=0",
                                    "--config=configs/config.json"],
                                   cwd=self.folder, env={**environment, "MASTER_PORT": str(port)},
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.addCleanup(process.kill)
        line = ""
        while not line.startswith("Dashboard: "):
            line = process.stdout.readline()
            if not line:
                self.fail("it ended: " + process.communicate()[1])
        url = line.split()[1]
        steps = []
        while len(steps) < 2:
            self.assertIsNone(process.poll())
            with urllib.request.urlopen(url + "data.json", timeout=120) as answer:
                timeline = json.load(answer)["timeline"]
            if timeline["lanes"] and timeline["step"] not in steps:
                steps.append(timeline["step"])
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        process.communicate()
        self.assertEqual([lane["name"] for lane in timeline["lanes"]], ["rank 0", "rank 1"])
        for lane in timeline["lanes"]:
            names = [name for name, _, _ in lane["passes"]]
            self.assertEqual(sorted(names), ["B0", "B1", "F0", "F1"])
        # What one stage sends the other waits for: their clocks are one.
        first, last = ({name: end for name, _, end in lane["passes"]} for lane in timeline["lanes"])
        self.assertLess(first["F0"], last["F0"])
        self.assertLess(last["F1"], last["B1"])
        self.assertLess(last["B1"], first["B1"])

    def test_a_training_that_goes_on_goes_on_with_its_files(self):
        out, error = self.run_to_end("--steps=20", "--save=saved", "--save_every=10", "--keep=0")
        self.assertEqual(error, "")
        self.assertIn("time (ms) | forward: ", out)
        self.check_files(20)
        before = self.losses_of_lines()
        # As if it had ended behind step 10, with files that have more.
        shutil.rmtree(self.folder + "/saved/step-00000020")
        self.run_to_end("--steps=25", "--save=saved", "--resume")
        self.check_files(25)
        # The same bits as before.
        self.assertEqual(self.losses_of_lines()[:20], before)
        self.assertEqual([events.start for events in self.events()], [0, 10 * BATCH + 1])
        seconds = [line["seconds"] for line in self.lines() if "seconds" in line]
        self.assertEqual(seconds, sorted(seconds))

    def test_the_values_of_a_profile_are_there_from_its_step_on(self):
        self.write_config({"flops_profiler": {"enabled": True, "profile_step": 3, "output_file": "profile.txt"}})
        out, error = self.run_to_end("--steps=20", "--evaluate_every=10")
        self.assertEqual(error, "")
        # It has a line of its own among those of progress.
        self.assertRegex(out, r"(?m)^Step 4: MFU, HFU [0-9.]+%, [0-9.]+% of ")
        once, each = {}, {}
        for events in self.events():
            for tag, samples, value in events.scalars:
                if tag.startswith("Train/Profile/"):
                    once.setdefault(tag, []).append((samples, value))
                elif tag in ("Train/Samples/mfu", "Train/Samples/hfu", "Train/Samples/tflops"):
                    each.setdefault(tag, {})[samples] = value
        limits = [f"Train/Profile/limited_by_{name}" for name in ("compute", "memory", "network", "host")]
        times = [f"Train/Profile/{name}_seconds" for name in ("step", "forward", "backward", "recompute")]
        self.assertEqual(set(once), {"Train/Profile/flops_per_token", "Train/Profile/mfu", "Train/Profile/hfu",
                                     *limits, *times})
        # Each once, of the step that was profiled.
        self.assertEqual({tag: [samples for samples, _ in values] for tag, values in once.items()},
                         {tag: [4 * BATCH] for tag in once})
        self.assertAlmostEqual(sum(once[limit][0][1] for limit in limits), 1, delta=1e-4)
        self.assertGreater(once["Train/Profile/mfu"][0][1], 0)
        # All steps behind it, to the last; before an evaluation it is waited for. Of the same tokens as the rate.
        lines = {line["step"]: line for line in self.lines() if "loss" in line}
        with_rate = [step for step, line in lines.items() if "mfu" in line]
        self.assertEqual(with_rate, list(range(with_rate[0], 21)))
        self.assertIn(with_rate[0], range(4, 12))
        flops = once["Train/Profile/flops_per_token"][0][1]
        for step in with_rate:
            line = lines[step]
            self.assertAlmostEqual(line["tflops"] / (1e-12 * flops * line["tokens_per_second"]), 1, delta=1e-5)
            for key in ("mfu", "hfu", "tflops"):
                self.assertAlmostEqual(each[f"Train/Samples/{key}"][BATCH * step] / line[key], 1, delta=1e-5)
        with open(self.folder + "/logs/csv/Train_Samples_mfu.csv", newline="") as file:
            rows = list(csv.reader(file))
        self.assertEqual([(int(samples), float(value)) for samples, value in rows[1:]],
                         [(BATCH * step, lines[step]["mfu"]) for step in with_rate])

    def test_a_pipe_that_nobody_reads_stops_no_step(self):
        self.write_config({"steps_per_print": 1})
        # More lines than the pipe and the queue behind it take, fewer records than that of a file does.
        process = self.start("--steps=2000", "--evaluate_every=0")
        while not (os.path.exists(self.folder + "/run.jsonl") and (lines := self.lines()) and
                   lines[-1]["step"] == 2000):
            self.assertIsNone(process.poll())
            time.sleep(0.2)
        out, error = process.communicate()
        self.assertEqual(process.returncode, 0, error)
        self.assertIn("Report: 2000 of 2000 steps", out)
        self.assertRegex(error, r"train: [0-9]+ lines of progress not printed: nobody took them in time\n")

    def test_a_reader_that_goes_away_ends_no_training(self):
        process = self.start("--steps=300", "--evaluate_every=0", "--save=saved", "--save_every=300")
        process.stdout.readline()
        process.stdout.close()
        error = process.stderr.read()
        # What it could not say is an error, but the training is at its end.
        self.assertEqual((process.wait(), error), (1, "train: cannot write the report\n"))
        self.check_files(300)
        self.assertIn("step-00000300", os.listdir(self.folder + "/saved"))

    def test_parts_of_steps_are_printed_of_the_shortest_training(self):
        for flags in (["--steps=2"], ["--steps=5"]):
            out, error = self.run_to_end("--evaluate_every=0", *flags)
            self.assertEqual(error, "")
            # Two, if the steps took so long that some were known at the last one's line.
            self.assertIn(out.count("time (ms) | forward: "), (1, 2))

    def test_the_config_of_the_page_makes_its_files(self):
        with open(PAGE) as file:
            config = json.loads(file.read().split("```json\n")[1].split("```")[0])
        with open(self.folder + "/configs/config.json", "w") as file:
            json.dump({**config, "train_batch_size": "auto", "optimizer": CONFIG["optimizer"]}, file)
        process = subprocess.run([TRAIN, *TINY, "--config=configs/config.json", "--steps=20"], cwd=self.folder,
                                 capture_output=True, text=True)
        self.assertEqual((process.returncode, process.stderr), (0, ""))
        self.assertIn("step 20/20", process.stdout)
        self.assertIn("time (ms) | forward: ", process.stdout)
        self.assertEqual(len(glob.glob(self.folder + "/logs/gpt/events.out.tfevents.*")), 1)
        self.assertTrue(os.path.exists(self.folder + "/logs/gpt_csv/Train_Samples_train_loss.csv"))

    def test_ports_that_cannot_be_used_are_named_before_the_first_step(self):
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = taken.getsockname()[1]
            process = self.start("--steps=3", f"--dashboard={port}")
            out, error = process.communicate()
        self.assertEqual((process.returncode, out), (1, ""))
        self.assertEqual(error, f"train: --dashboard: cannot listen on 127.0.0.1:{port}: Address already in use; "
                                "--dashboard=0 takes a port that is free\n")
        for port in ("65536", "-1"):
            process = self.start("--steps=3", f"--dashboard={port}")
            error = process.communicate()[1]
            self.assertEqual(process.returncode, 1)
            self.assertIn(f"--dashboard is {port}; it must be 0 to 65535", error)

    def test_a_folder_that_cannot_be_made_is_named_before_the_first_step(self):
        with open(self.folder + "/logs", "w"):
            pass
        process = self.start("--steps=3")
        out, error = process.communicate()
        self.assertEqual((process.returncode, out), (1, ""))
        self.assertIn("cannot make logs/events: Not a directory", error)


if __name__ == "__main__":
    unittest.main()
