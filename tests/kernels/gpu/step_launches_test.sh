#!/bin/bash
# step_launches_test.sh FILE
#
# step_launches.h has every launch of kernels/ that reads the values of an optimizer's step: those
# that take parameters of one, but for what is named here.
exec python3 -B - "$@" <<'END'
import pathlib
import re
import sys

# They take parameters of another kind, or of a step's nothing that a state holds.
NOT_OF_A_STEP = {
    "LaunchDequantReduce": "DequantReduceParameters",
    "LaunchLocoQuantize": "LocoParameters",
    "LaunchSignUnpack": "SignUnpackParameters",
    # Writes the values.
    "LaunchStepControl": "StepParameters",
    # Read whether the step is skipped, or weight decay, and of the step's values none.
    "LaunchLambTrusts": "LambParameters",
    "LaunchOneBitLambRatios": "LambParameters",
    "LaunchOneBitLambTrusts": "LambParameters",
}
# The step of 0/1 Adam stands in a struct of another name, which every run of its elements follows.
OF_A_STEP_TOO = {"LaunchZeroOneRates"}

launches = {}
for path in sorted(pathlib.Path("kernels").glob("*/*_cuda.h")):
    code = re.sub(r"//[^\n]*", "", path.read_text(encoding="utf-8"))
    for name, arguments in re.findall(r"\bcudaError_t\s+(Launch\w+)\((.*?)\);", code, re.S):
        parameters = re.search(r"\b(\w+Parameters)\s*&", arguments)
        launches[name] = parameters and parameters[1]
held = set(re.findall(r"\b(Launch[A-Z]\w*)\s*[<(]", pathlib.Path(sys.argv[1]).read_text(encoding="utf-8")))

of_a_step = {name for name, parameters in launches.items() if parameters} - set(NOT_OF_A_STEP)
of_a_step |= OF_A_STEP_TOO
failures = [f"{sys.argv[1]} does not have {name}" for name in sorted(of_a_step - held)]
failures += [f"{sys.argv[1]} has {name}, which is none of those" for name in sorted(held - of_a_step)]
for name, parameters in NOT_OF_A_STEP.items():
    if launches.get(name) != parameters:
        failures.append(f"no {name} takes {parameters}&, as this test says")
print(f"{len(launches)} launches, {len(held)} of a step")
if len(launches) < 40:
    failures.append("headers of kernels/ are missing")
if failures:
    sys.exit("\n".join(failures))
END
