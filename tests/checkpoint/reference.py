"""What the reference implementation of safetensors makes of files, for reference_test.sh.

reference.py check FOLDER: the checkpoint FOLDER/in_place/step-00000003 against FOLDER/expected,
and FOLDER/exported-{none,fp32,fp16,bf16}.safetensors against its masters.
reference.py write FOLDER: files of all types, with what is in them in FOLDER/expected-{one,sharded}.
"""

import glob
import json
import os
import sys

import numpy as np
from safetensors import TensorSpec, deserialize, serialize_file
from safetensors.numpy import save_file

DTYPES = {"F32": "<f4", "F16": "<f2", "F64": "<f8", "I32": "<i4", "I64": "<i8", "U8": "u1"}


def load(path):
    """{name: (type, shape, bytes)}, by the reference's own parser, also of BF16."""
    with open(path, "rb") as file:
        tensors = deserialize(file.read())
    return {name: (info["dtype"], tuple(info["shape"]), bytes(info["data"])) for name, info in tensors}


def expected(path):
    result = {}
    for line in open(path):
        prefix, name, dtype, shape, data = line.rstrip("\n").split("\t")
        extents = tuple(int(extent) for extent in shape.split("x")) if shape else ()
        result[prefix, name] = (dtype, extents, bytes.fromhex(data))
    return result


def floats(dtype, data):
    return np.frombuffer(data, DTYPES[dtype]).astype(np.float32)


def as_type(values, dtype):
    """Rounded to nearest even."""
    if dtype != "BF16":
        return values.astype(DTYPES[dtype]).tobytes()
    words = values.view(np.uint32).astype(np.uint64)
    return ((words + 0x7FFF + ((words >> 16) & 1)) >> 16).astype("<u2").tobytes()


def check(folder):
    wanted = expected(folder + "/expected")
    step = folder + "/in_place/step-00000003"
    found = {}
    in_file = {}
    for path in sorted(glob.glob(step + "/*.safetensors")):
        file = os.path.basename(path)
        for name, tensor in load(path).items():
            assert (file.split("-")[0], name) not in found, name
            found[file.split("-")[0], name] = tensor
            if file.startswith("master-"):
                in_file[name] = file
    assert found == wanted, "other tensors in the checkpoint"
    index = json.load(open(step + "/model.safetensors.index.json"))
    assert index["weight_map"] == in_file, "another index"
    masters = {name: tensor for (prefix, name), tensor in wanted.items() if prefix == "master"}
    assert index["metadata"]["total_size"] == sum(len(data) for _, _, data in masters.values())
    for kind in ["none", "fp32", "fp16", "bf16"]:
        exported = load(f"{folder}/exported-{kind}.safetensors")
        assert exported.keys() == masters.keys()
        for name, (dtype, shape, data) in masters.items():
            to = {"none": dtype, "fp32": "F32", "fp16": "F16", "bf16": "BF16"}[kind]
            assert exported[name] == (to, shape, as_type(floats(dtype, data), to)), (kind, name)


def write(folder):
    random = np.random.default_rng(1)
    tensors = {}
    for dtype, numpy_dtype in DTYPES.items():
        for shape in [(), (0,), (3,), (2, 0, 5), (4, 5, 6)]:
            name = f"{dtype.lower()}.{'x'.join(map(str, shape))}"
            tensors[name] = np.asarray(random.integers(0, 200, shape)).astype(numpy_dtype)
    save_file(tensors, folder + "/one.safetensors", metadata={"some": "text", "other": "\u00e9\n"})
    # numpy has no bfloat16: by the reference's lower layer.
    bf16 = random.integers(0, 2**16, (3, 7)).astype("<u2")
    spec = TensorSpec(dtype="bfloat16", shape=(3, 7), data_ptr=bf16.ctypes.data, data_len=bf16.nbytes)
    serialize_file({"bf16": spec}, folder + "/bf16.safetensors")
    types = {np.dtype(value): key for key, value in DTYPES.items()}

    def line(name, tensor):
        shape = "x".join(map(str, tensor.shape))
        return f"-\t{name}\t{types[tensor.dtype]}\t{shape}\t{tensor.tobytes().hex()}\n"

    with open(folder + "/expected-one", "w") as file:
        file.writelines(sorted(line(*each) for each in tensors.items()))
    with open(folder + "/expected-bf16", "w") as file:
        file.write(f"-\tbf16\tBF16\t3x7\t{bf16.tobytes().hex()}\n")
    os.mkdir(folder + "/sharded")
    weight_map = {}
    names = sorted(tensors)
    for i in range(3):
        file = f"model-0000{i + 1}-of-00003.safetensors"
        save_file({name: tensors[name] for name in names[i::3]}, f"{folder}/sharded/{file}",
                  metadata={"format": "np"})
        weight_map.update({name: file for name in names[i::3]})
    total = sum(tensor.nbytes for tensor in tensors.values())
    with open(folder + "/sharded/model.safetensors.index.json", "w") as file:
        json.dump({"metadata": {"total_size": total}, "weight_map": weight_map}, file, indent=2)


{"check": check, "write": write}[sys.argv[1]](sys.argv[2])
