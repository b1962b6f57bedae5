"""The operations of this folder."""

# Those with a CPU loop and a launcher of their own, which tools/vendor copies.
OPERATIONS = [
    "adafactor",
    "adam",
    "adam8",
    "amax",
    "block_quant",
    "cast",
    "dequant_reduce",
    "digest",
    "fill",
    "grad_check",
    "lamb",
    "lion",
    "loco_quant",
    "muon",
    "one_bit_lamb",
    "orthogonalize",
    "reduce",
    "sgd",
    "sign_pack",
    "step_control",
    "top_k",
    "zero_one_adam",
]
